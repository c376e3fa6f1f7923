# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make orders`: demo, test and demo-undo in this checkout, each after each, on a machine where others work with CDI.

orders.py [TARGET...]    another order, e.g. demo test demo demo-undo

Specs of another tool lie in /etc/cdi and /var/run/cdi, one of them broken, and a docker runs if it is installed. Each
target has to pass. Each undo leaves the host as it was, and so does each target after it that is not the demo.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import footprint
from workplace import workplace

CHECKOUT = Path(__file__).resolve().parents[2]
TARGETS = ("demo", "test", "demo-undo")
# Each of the nine pairs once, then an undo.
ORDER = ["demo", "demo", "test", "test", "demo-undo", "demo-undo", "demo", "demo-undo", "test", "demo", "demo-undo"]
# Path -> text. Names that no vendor's tool uses: a file of the machine is never replaced.
FOREIGN = {
    "/etc/cdi/orders.example-card.json": '{"cdiVersion": "0.3.0", "kind": "orders.example/card", "devices": '
    '[{"name": "0", "containerEdits": {"env": ["CARD=0"]}}]}\n',
    "/var/run/cdi/orders.example-link.yaml": "cdiVersion: 0.5.0\nkind: orders.example/link\ndevices:\n- name: all\n"
    "  containerEdits:\n    deviceNodes:\n    - path: /dev/null\n",
    "/var/run/cdi/orders.example-broken.json": "{",
}
DOCKER = ["dockerd", "--bridge=none", "--iptables=false"]  # no network, so the host's rules stay as they are
READY_S = 60.0  # seconds that docker has for its start


@contextlib.contextmanager
def foreign() -> Iterator[None]:
    """The specs of another tool. Directories that had to be made are removed if they are empty at the end."""
    made = [directory for directory in {Path(path).parent for path in FOREIGN} if not directory.exists()]
    for directory in made:
        directory.mkdir()
    written: list[str] = []
    try:
        for path, text in FOREIGN.items():
            with open(path, "x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
        yield
    finally:
        for path in written:
            os.unlink(path)
        for directory in made:
            with contextlib.suppress(OSError):  # another process has put a file there
                directory.rmdir()


@contextlib.contextmanager
def docker() -> Iterator[str]:
    """A running docker: the machine's own, or one with a directory of its own. Gives a sentence about it."""
    if shutil.which("dockerd") is None:
        yield "no docker is installed"
    elif _answers():
        yield "the machine's docker runs"
    else:
        with workplace("orders-") as place, (place / "log").open("w") as log:
            command = [*DOCKER, f"--data-root={place}/data"]
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                until = time.monotonic() + READY_S
                while not _answers():
                    if daemon.poll() is not None or time.monotonic() > until:
                        sys.exit(f"{' '.join(command)} did not start:\n{(place / 'log').read_text()}")
                    time.sleep(0.5)
                yield "a docker of this test runs"
                if daemon.poll() is not None:
                    sys.exit("docker has ended meanwhile; expected that it runs to the end")
            finally:
                daemon.terminate()
                daemon.wait()


def _answers() -> bool:
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def main(order: list[str]) -> int:
    """Run the targets in this order; 1 as soon as one fails, or leaves the host other than it was."""
    unknown = sorted(set(order) - set(TARGETS))
    if unknown:
        print(f"tests/harness/orders.py: found targets {', '.join(unknown)}; expected some of {', '.join(TARGETS)}")
        return 2
    if os.geteuid() != 0:
        print("tests/harness/orders.py writes to /etc/cdi and /var/run/cdi: run `make orders` as root")
        return 2
    with foreign(), docker() as said:
        print(f"--- {said}", flush=True)
        before = footprint.look()
        shown = False  # whether the demo's files are there
        for number, target in enumerate(order, 1):
            print(f"===== {number} of {len(order)}: make {target} =====", flush=True)
            started = time.monotonic()
            # make passes its variables on, such as INSTALL=1.
            done = subprocess.run(["make", "--no-print-directory", target], cwd=CHECKOUT, check=False)
            print(f"===== make {target}: {done.returncode}, {(time.monotonic() - started) / 60:.1f} min", flush=True)
            shown = target == "demo" or (shown and target == "test")
            changes = [] if shown else footprint.changes(before, footprint.look())
            if done.returncode or changes:
                print("\n".join((f"FAILED: make {target}, number {number} of: {' '.join(order)}", *changes)))
                return 1
    print(f"orders: {len(order)} passed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ORDER))
