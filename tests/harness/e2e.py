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

import kubelets


def main(arguments: list[str]) -> int:
    """Exit status of the tests. What can't be had is skipped, with a line that says so."""
    if os.geteuid() != 0:
        print("SKIPPED in e2e: everything (it makes namespaces, mounts and device nodes: run it as root)")
        return 0
    for name, why in kubelets.get().items():
        print(f"SKIPPED in e2e: what needs {name} ({why})", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(arguments or []), "tests/e2e"], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
