# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make molecule`: every scenario of extensions/molecule, on container hosts; skipped without what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import counterparts

CHECKOUT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Molecule's exit status."""
    lacking = counterparts.missing(counterparts.needed_by(["molecule"]))
    if lacking:
        print(f"SKIPPED all molecule scenarios: missing packages {' '.join(lacking)} (make test INSTALL=1)")
        return 0
    command = ["molecule", "test", "--all"]
    return subprocess.run(command, check=False, cwd=CHECKOUT / "extensions", stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
