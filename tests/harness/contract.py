# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make contract`: the tests of the device plugin's contract with the kubelet, in two halves at the same time.

They wait more than they work: for a kubelet's patience, for a grace period. Two cores do both in the
time of one.
`pytest tests/contract` runs them one after the other; --part 1/2 and 2/2 are every second test.
"""

from __future__ import annotations

import subprocess
import sys

HALVES = ("1/2", "2/2")


def main() -> int:
    """Run both, print one after the other; 1 if either failed."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "tests/contract", "--part", half],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for half in HALVES
    ]
    for half, process in zip(HALVES, running):
        output, _none = process.communicate()
        print(f"--- half {half}\n{output}", end="", flush=True)
    return int(any(process.returncode for process in running))


if __name__ == "__main__":
    sys.exit(main())
