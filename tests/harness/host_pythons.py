# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of what runs on hosts, under the Pythons that hosts have, in root directories of Debian's suites.

EL9 has Python 3.9 and SQLite 3.34.1, and so has Debian 11: `make floor` runs there what meets SQLite, asyncio and the
kernel, `make matrix` all, in newer suites too. What the tests need besides Python comes from PyPI.

host_pythons.py SUITE [PYTEST'S ARGUMENTS]     without any, all units of plugins/module_utils
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

import debian_root

CHECKOUT = Path(__file__).resolve().parents[2]
UNITS = "tests/unit/plugins/module_utils"
REQUIREMENTS = CHECKOUT / "tests/requirements-host-pythons.txt"
PACKAGES = ["python3", "python3-pyudev", "bzip2", "e2fsprogs", "kmod", "mount", "procps"]


def site(root: debian_root.Root, version: str) -> Path:
    """Return the tests' packages for CPython `version` (X.Y), installed once. Raises CalledProcessError."""
    found = root.home / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12] / "site"
    if not found.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
        platforms = [f"--platform=manylinux{name}_{platform.machine()}" for name in ("2014", "_2_28")]
        wheels = [f"--python-version={version}", "--implementation=cp", *platforms]
        new = root.home / f"site.{os.getpid()}"
        subprocess.run([*pip, *wheels, f"--target={new}", "-r", str(REQUIREMENTS)], check=True)
        found.parent.mkdir(exist_ok=True)
        new.rename(found)
    return found


def command(suite: str, arguments: list[str]) -> list[str]:
    """The command that runs the tests in the suite. Raises CalledProcessError if that can't be made."""
    root = debian_root.made(suite, PACKAGES)
    packages = site(root, ".".join(root.python().split(".")[:2]))
    data = os.environ.get("FLEET_CDI_DATA", "")
    seen = ["/tmp", str(CHECKOUT), *([os.path.realpath(data)] if data else [])]
    variables = {"PYTHONPATH": str(packages), "FLEET_CDI_DATA": data and os.path.realpath(data)}
    # What an older Python lacks shows in few examples; rare values are for `make unit`.
    variables["HYPOTHESIS_PROFILE"] = "few"
    tests = ["-m", "pytest", "-q", *arguments] if arguments else ["tests/harness/halves.py", UNITS]
    return root.command(["/usr/bin/python3", *tests], seen, variables, str(CHECKOUT))


def main(suite: str, *arguments: str) -> int:
    """Run the tests; their exit status."""
    if why := debian_root.lacking():
        print(f"SKIPPED in floor: the units under the Python of Debian's {suite} ({why})")
        return 0
    print(f"--- {' '.join(arguments) or UNITS}, in Debian's {suite}", flush=True)
    return subprocess.run(command(suite, list(arguments)), check=False, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
