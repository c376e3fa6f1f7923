# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make e2e`: get real kubelets and containerds, then the tests that run the device plugin against them.

e2e.py [PYTEST ARGUMENT...]    as root; e.g. `-k upgrade`, `-k 1.20`
"""

from __future__ import annotations

import os
import subprocess
import sys

import footprint
import kubelets


def main(arguments: list[str]) -> int:
    """Exit status of the tests, 1 if they changed this machine. What can't be had is skipped, and a line says so."""
    if os.geteuid() != 0:
        print("SKIPPED in e2e: everything (it makes namespaces, mounts and device nodes: run it as root)")
        return 0
    for name, why in kubelets.get().items():
        print(f"SKIPPED in e2e: what needs {name} ({why})", flush=True)
    before = footprint.look()
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments, "tests/e2e"], check=False)
    left = footprint.changes(before, footprint.look())
    for line in left:
        print(f"e2e: the tests left this machine changed: {line}")
    return tests.returncode or bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
