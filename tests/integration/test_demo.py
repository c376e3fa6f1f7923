# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo` and `make demo-undo` in a copy of the checkout, in every order. The README's first promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import counterparts
import footprint
import mirror
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SPECS = Path("/var/run/cdi")
# Specs of somebody else, which the demo may neither change nor be stopped by: path -> text.
FOREIGN = {
    "/etc/cdi/vendor.com-card.json": """
{"cdiVersion": "0.3.0", "kind": "vendor.com/card", "devices": [{"name": "0", "containerEdits": {"env": ["CARD=0"]}}]}
""",
    "/var/run/cdi/nvidia.yaml": """
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
  - name: all
    containerEdits:
      deviceNodes:
        - path: /dev/null
""",
    "/var/run/cdi/broken.json": "{",
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="looks at what the demo writes to /var/run/cdi: needs root")


@pytest.fixture
def demo(tmp_path):
    """Run a target in a copy of the checkout, on a machine with specs of somebody else: demo(target) -> its output."""
    mirror.mirror(CHECKOUT, tmp_path / "fleet.cdi")
    for path, text in FOREIGN.items():
        Path(path).write_text(text)

    def make(
        target: str, status: int = 0, path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ) -> str:
        python = os.path.join(sys.base_prefix, "bin", "python3")  # as on a machine where nothing was prepared
        command = ["make", "--no-print-directory", "-C", str(tmp_path / "fleet.cdi"), f"PYTHON={python}", target]
        # HOME is empty, and nothing of the environment that runs the tests may help.
        environment = {"PATH": path, "HOME": str(tmp_path)}
        keep = {name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "LANG") if name in os.environ}
        done = subprocess.run(
            command, capture_output=True, text=True, env={**environment, **keep}, stdin=subprocess.DEVNULL, check=False
        )
        assert bool(done.returncode) == bool(status), done.stdout + done.stderr
        return done.stdout + done.stderr

    yield make
    make("demo-undo")
    assert not (tmp_path / "fleet.cdi/build/demo").exists()
    for path in FOREIGN:
        Path(path).unlink()


def test_demo_and_its_undo_each_twice(demo, tmp_path):
    """In whatever order: what is there after an undo is what was there before, so any other order is one of these."""
    before = footprint.look()
    demo("demo-undo")
    assert footprint.look() == before
    first = demo("demo")
    assert "fleet.cdi/tty=tty13" in first and "podman run --rm --device" in first
    if not counterparts.missing(("podman", "runc", "busybox-static")):
        assert "Exactly its device." in first
    written = footprint.look()
    assert {Path(path).parent for path in written.keys() - before.keys()} == {SPECS.resolve()}
    assert "changed=0 " in demo("demo")
    assert footprint.look() == written
    for _again in range(2):
        demo("demo-undo")
        assert footprint.look() == before
        assert not (tmp_path / "fleet.cdi" / "build" / "demo").exists()


BROKEN = {
    "no program": "\x7fELF",
    "a library is missing": "#!/bin/sh\necho podman: error while loading libgpgme.so.11 >&2\nexit 127\n",
    "it crashes": "#!/bin/sh\nkill -SEGV $$\n",
}


@pytest.mark.counterpart("busybox-static")
def test_a_broken_podman_is_named_and_no_traceback(demo, tmp_path):
    podman = tmp_path / "bin/podman"
    podman.parent.mkdir()
    for text in BROKEN.values():
        podman.write_text(text)
        podman.chmod(0o755)
        said = demo("demo", status=1, path=f"{podman.parent}:/usr/sbin:/usr/bin:/sbin:/bin")
        assert f"{podman} can't start any container here" in said and "make demo-undo" in said
        assert "Traceback" not in said
