# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo` in a copy of the checkout: first run, second run, undo. The README's first promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import counterparts
import mirror
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SPECS = Path("/var/run/cdi")


def specs() -> dict[str, bytes]:
    """The specs of the demo's kinds, by name."""
    return {path.name: path.read_bytes() for path in SPECS.glob("fleet.cdi-*")}


@pytest.mark.skipif(os.geteuid() != 0, reason="looks at what the demo writes to /var/run/cdi: needs root")
def test_demo(tmp_path):
    mirror.mirror(CHECKOUT, tmp_path / "fleet.cdi")
    before = specs()

    def make(target: str) -> str:
        python = os.path.join(sys.base_prefix, "bin", "python3")  # as on a machine where nothing was prepared
        command = ["make", "--no-print-directory", "-C", str(tmp_path / "fleet.cdi"), f"PYTHON={python}", target]
        # HOME is empty, and nothing of the environment that runs the tests may help.
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path)}
        keep = {name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "LANG") if name in os.environ}
        done = subprocess.run(
            command, capture_output=True, text=True, env={**environment, **keep}, stdin=subprocess.DEVNULL, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        first = make("demo")
        assert "fleet.cdi/tty=tty13" in first and "podman run --rm --device" in first
        if not counterparts.missing(("podman", "runc", "busybox-static")):
            assert "Exactly its device." in first
        written = specs()
        assert written != before
        assert "changed=0 " in make("demo")
        assert specs() == written
    finally:
        make("demo-undo")
    assert specs() == before
    assert not (tmp_path / "fleet.cdi" / "build" / "demo").exists()
