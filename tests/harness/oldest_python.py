# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part of `make floor`: the units of what runs on hosts, under the oldest Python and SQLite that hosts have.

EL9 has Python 3.9 and SQLite 3.34.1, and so has Debian 11. Its root directory is made once (build/python3.9/root), what
the tests need besides Python comes from PyPI (build/python3.9/site), and the tests run with it as their root directory.

oldest_python.py [PYTEST'S ARGUMENTS]     without any, all units of plugins/module_utils
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import counterparts
import engines

CHECKOUT = Path(__file__).resolve().parents[2]
HOME = CHECKOUT / "build/python3.9"
SUITE = "bullseye"
UNITS = "tests/unit/plugins/module_utils"
REQUIREMENTS = CHECKOUT / "tests/requirements-python3.9.txt"

# mmdebstrap's own way to /bin -> /usr/bin fails with a mirror of this suite alone; later releases have it so.
MERGED = 'for name in bin sbin lib lib64; do mkdir -p "$1/usr/$name" && ln -s "usr/$name" "$1/$name"; done'
RECIPE = [
    "--quiet",
    "--variant=minbase",
    f"--setup-hook={MERGED}",
    "--dpkgopt=force-unsafe-io",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")),
    '--aptopt=Acquire::Check-Valid-Until "false"',  # a mirror may be a snapshot, whose Release file is old
    "--include=python3,python3-pyudev,bzip2,kmod,mount,procps",
]

# $1: the root directory, then what is to be seen in it; the tests run as if they ran here, but for programs.
ENTER = """
root=$1; shift
mount --bind "$root" "$root" || exit  # / is a mount everywhere else, too
while [ "$1" != -- ]; do mkdir -p "$root$1" && mount --rbind "$1" "$root$1" || exit; shift; done; shift
exec chroot "$root" "$@"
"""


def install(site: Path) -> list[str]:
    """The command that gets the wheels for CPython 3.9 of this machine's kind."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    wheels = ["--python-version=3.9", "--implementation=cp", f"--platform=manylinux2014_{platform.machine()}"]
    return [*pip, *wheels, f"--target={site}", "-r", str(REQUIREMENTS)]


def made() -> Path:
    """The root directory and, beside it, the tests' packages; made unless the same recipe has been made before.

    Raises CalledProcessError: without them nothing was tested.
    """
    digest = hashlib.sha256(repr((RECIPE, REQUIREMENTS.read_text())).encode()).hexdigest()[:12]
    home = HOME / digest
    if not home.exists():
        shutil.rmtree(HOME, ignore_errors=True)  # of older recipes, or half made
        new = HOME / "new"
        new.mkdir(parents=True)
        subprocess.run(["mmdebstrap", *RECIPE, SUITE, str(new / "root"), *engines.mirror()], check=True)
        subprocess.run(install(new / "site"), check=True)
        new.rename(home)
    return home


def main(arguments: list[str]) -> int:
    """Run the tests; their exit status."""
    if os.geteuid() != 0 or counterparts.missing(("mmdebstrap",)):
        print("SKIPPED in floor: the units under Python 3.9 (they need root and mmdebstrap; make test INSTALL=1)")
        return 0
    home = made()
    data = os.environ.get("FLEET_CDI_DATA", "")
    seen = ["/proc", "/sys", "/dev", "/tmp", str(CHECKOUT), *([os.path.realpath(data)] if data else [])]
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": f"{home}/site",
        "FLEET_CDI_DATA": data and os.path.realpath(data),
    }
    variables = [f"{name}={value}" for name, value in environment.items()]
    inside = f'cd "{CHECKOUT}" && exec /usr/bin/python3 "$@"'
    tests = ["-m", "pytest", "-q", *arguments] if arguments else ["tests/harness/halves.py", UNITS]
    command = ["unshare", "--mount", "--propagation=private", "sh", "-c", ENTER, "sh", str(home / "root"), *seen, "--"]
    command += ["/usr/bin/env", "-i", *variables, "sh", "-c", inside, "sh", *tests]
    print(f"--- {' '.join(tests)}, in Debian's {SUITE}", flush=True)
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
