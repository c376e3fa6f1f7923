# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy the files that git knows, or would take, to a directory: a collection at its proper path, without build output.

mirror.py DIRECTORY
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def tracked(checkout: Path) -> list[str]:
    """Paths of tracked files and of new ones that git doesn't ignore, without those that are deleted."""
    command = ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({name for name in listed if name and os.path.lexists(checkout / name)})


def mirror(checkout: Path, target: Path) -> None:
    """Make `target` hold exactly the tracked files; what ansible-test writes (tests/output) is cleared too."""
    shutil.rmtree(target, ignore_errors=True)
    for name in tracked(checkout):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / name, copy, follow_symlinks=False)
    # ansible-test asks git which files are there; without a repository of its own the copy is an ignored directory.
    subprocess.run(["git", "init", "-q", str(target)], check=True)


if __name__ == "__main__":
    mirror(Path(__file__).resolve().parents[2], Path(sys.argv[1]).resolve())
