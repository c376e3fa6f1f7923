# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the artifacts of a release from a commit of this repository; what is not committed is not built.

artifacts.py [--no-image] [REVISION] [OUT]     HEAD, and dist; an OUT of an earlier build is replaced

The same commit gives the same bytes on every machine (docs/release.md). Needs Python 3.9 with PyYAML, and git; for the
image of the device plugin also Debian's packages, which are downloaded once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import debian_packages
import source

CHECKOUT = Path(__file__).resolve().parents[1]
DIST = CHECKOUT / "dist"
CACHE = "build/debian-packages"  # of the checkout
SUMS = "SHA256SUMS"


def made(checkout: Path, revision: str, out: Path, image: bool = True) -> source.Commit:
    """Build the revision into `out`, and return its commit. Raises CalledProcessError, OSError, ValueError."""
    commit = source.commit_of(checkout, revision)
    if out.exists() and os.listdir(out) and not (out / SUMS).exists():
        raise ValueError(f"{out}: has other files; expected a new directory, or one that this program made")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        tree = source.extract(checkout, commit, Path(place))
        build = [sys.executable, str(tree / "release/from_tree.py"), str(out.resolve()), commit.id, str(commit.epoch)]
        if image:
            cache = checkout.resolve() / CACHE
            debian_packages.fetch(debian_packages.locked(tree / "release/debian.json"), cache)
            build.append(str(cache))
        subprocess.run(build, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return commit


def main(arguments: list[str]) -> int:
    """Build, and say what was built."""
    words = [word for word in arguments if word != "--no-image"]
    revision, out = [*words, *("HEAD", str(DIST))[len(words) :]]
    commit = made(CHECKOUT, revision, Path(out), image="--no-image" not in arguments)
    print(f"commit {commit.id}")
    print((Path(out) / SUMS).read_text(encoding="utf-8"), end="")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 4 or "--help" in sys.argv:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
