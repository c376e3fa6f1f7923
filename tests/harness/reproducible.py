# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make reproducible`: build the artifacts of HEAD in Debian 12 and Debian 13, and compare the digests.

The two builds differ in Python, git, zlib, user, umask, time zone, locale, path, and in the order of hashes.

reproducible.py [OUT]     build/reproducible
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import debian_root

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ["python3", "python3-yaml", "git"]
SHOW = "import platform, zlib; print('Python', platform.python_version() + ', zlib', zlib.ZLIB_RUNTIME_VERSION)"


class Way(NamedTuple):
    """How one of the builds is made."""

    suite: str
    user: int
    umask: str
    path: str  # of the clone, below the place of this build
    variables: dict[str, str]


WAYS = (
    Way("bookworm", 0, "022", "clone", {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}),
    Way("trixie", 1234, "077", "a longer path/é/clone", {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "2"}),
)


def build(way: Way, out: Path) -> dict[str, str]:
    """Build in one distribution; return the digest of each artifact. Raises CalledProcessError."""
    place = out / way.suite
    clone = place / way.path
    clone.parent.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", "--no-local", str(CHECKOUT), str(clone)], check=True)
    for path in (place, *place.rglob("*")):
        os.chown(path, way.user, way.user, follow_symlinks=False)
    root = debian_root.made(way.suite, PACKAGES)
    script = (
        f'umask {way.umask} && git --version && python3 -c "$1" && id -u && exec python3 release/artifacts.py HEAD "$2"'
    )
    words = ["setpriv", f"--reuid={way.user}", f"--regid={way.user}", "--clear-groups", "sh", "-c", script, "sh", SHOW]
    variables = {**debian_root.network(), **way.variables, "HOME": str(place)}
    command = root.command([*words, str(place / "dist")], [str(out), *debian_root.NETWORK], variables, str(clone))
    print(f"--- Debian's {way.suite}, umask {way.umask}, {way.variables}", flush=True)
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    lines = (place / "dist/SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return dict(line.split("  ", 1)[::-1] for line in lines)


def main(out: str = "build/reproducible") -> int:
    """Build all ways; 1 if an artifact differs. Raises CalledProcessError if one can't be built."""
    if why := debian_root.lacking():
        print(f"reproducible: not built: {why}")
        return 1
    place = (CHECKOUT / out).resolve()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    found = [build(way, place) for way in WAYS]
    differ = sorted(name for name in {*found[0], *found[1]} if found[0].get(name) != found[1].get(name))
    for name in differ:
        print(f"{name}: differs: {' and '.join(str(one.get(name)) for one in found)}")
    print(f"{len(found[0]) - len(differ)} artifacts are the same in {' and '.join(way.suite for way in WAYS)}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
