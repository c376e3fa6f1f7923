# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make molecule`: every scenario of extensions/molecule, on container hosts; skipped without what they need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import counterparts

CHECKOUT = Path(__file__).resolve().parents[2]
STATE = CHECKOUT / "build/molecule/state"


def main() -> int:
    """Molecule's exit status."""
    lacking = counterparts.missing(counterparts.needed_by(["molecule"]))
    if lacking:
        print(f"SKIPPED all molecule scenarios: missing packages {' '.join(lacking)} (make test INSTALL=1)")
        return 0
    if os.geteuid() != 0:
        print("SKIPPED all molecule scenarios: container hosts with systemd need root")
        return 0
    # The hosts of a run that was interrupted would be taken for prepared ones.
    shutil.rmtree(STATE, ignore_errors=True)
    environment = {**os.environ, "MOLECULE_EPHEMERAL_DIRECTORY": str(STATE), "MOLECULE_COMMAND_BORDERS": "0"}
    command = ["molecule", "test", "--all"]
    return subprocess.run(command, check=False, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
