# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make molecule`: every scenario of extensions/molecule, on container hosts; skipped without what they need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import counterparts

CHECKOUT = Path(__file__).resolve().parents[2]
STATE = CHECKOUT / "build/molecule/state"
NOBODY = "localhost,!localhost"  # a pattern without a host

# Scenarios wait more than they work: those of one half follow each other, the halves run at the same time.
HALVES = {
    "hosts": (("cdi_host", "runtime_hooks", "refresh"), "cdi_hosts:hook_hosts:event_hosts"),
    "engines": (("device_plugin", "runtimes", "reload"), "plugin_hosts:runtime_hosts:reload_hosts"),
}


def molecule(
    half: str, machines: str, *arguments: str, output: int | IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start molecule with what only this half uses."""
    environment = {
        **os.environ,
        "MOLECULE_EPHEMERAL_DIRECTORY": str(STATE / half),
        "MOLECULE_COMMAND_BORDERS": "0",
        "FLEET_CDI_MACHINES": machines,
        "FLEET_CDI_HALF": half,
    }
    command = ["molecule", *arguments]
    return subprocess.Popen(
        command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )


def main() -> int:
    """0 if every scenario passed."""
    lacking = counterparts.missing(counterparts.needed_by(["molecule"]))
    if lacking:
        print(f"SKIPPED all molecule scenarios: missing packages {' '.join(lacking)} (make test INSTALL=1)")
        return 0
    if os.geteuid() != 0:
        print("SKIPPED all molecule scenarios: container hosts with systemd need root")
        return 0
    there = {path.parent.name for path in CHECKOUT.glob("extensions/molecule/*/molecule.yml")} - {"default"}
    forgotten = sorted(there.symmetric_difference(name for names, _machines in HALVES.values() for name in names))
    if forgotten:
        print(f"tests/harness/scenarios.py: HALVES and extensions/molecule differ in {', '.join(forgotten)}")
        return 2
    # The hosts of a run that was interrupted would be taken for prepared ones.
    shutil.rmtree(STATE, ignore_errors=True)
    # Both halves start from the same images, so these are built first.
    status = molecule("images", NOBODY, "create", "--scenario-name", "default").wait()
    if status:
        return status
    passed = 0
    with ExitStack() as stack:
        running = {}
        for half, (names, machines) in HALVES.items():
            log = stack.enter_context(tempfile.TemporaryFile())
            options = [word for name in names for word in ("--scenario-name", name)]
            running[half] = (molecule(half, machines, "test", *options, output=log), log)
        for half, (process, log) in running.items():
            failed = process.wait()
            status = failed or status
            passed += 0 if failed else len(HALVES[half][0])
            log.seek(0)
            print(f"--- {half}: {', '.join(HALVES[half][0])}", flush=True)
            shutil.copyfileobj(log, sys.stdout.buffer)
            sys.stdout.flush()
    print(f"scenarios: {passed} passed", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
