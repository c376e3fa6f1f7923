# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make changelog BASE=COMMIT`: a change that users can see has a changelog fragment.

changelog.py BASE [CHECKOUT]     compares the checkout, with what is not committed, with where it left BASE
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# What reaches users: the code of hosts and controllers, roles, playbooks, and what Ansible reads of the collection.
SEEN = ("plugins/", "roles/", "playbooks/", "meta/")
FRAGMENTS = "changelogs/fragments/"
RELEASED = "changelogs/changelog.yaml"  # a release turns the fragments into this


def changed(checkout: Path, base: str) -> dict[str, str]:
    """Return the paths that differ since the checkout left `base`, with git's letter. Raises CalledProcessError."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(checkout), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    since = git("merge-base", base, "HEAD").strip()
    words = git("diff", "--name-status", "--no-renames", "-z", since).split("\0")[:-1]
    found = dict(zip(words[1::2], words[::2]))
    new = git("ls-files", "--others", "--exclude-standard", "-z").split("\0")[:-1]
    return {**found, **dict.fromkeys(new, "A")}


def missing(paths: dict[str, str]) -> list[str]:
    """Return the changed paths that users see and that no fragment tells of."""
    told = any(path.startswith(FRAGMENTS) and letter != "D" for path, letter in paths.items()) or RELEASED in paths
    return [] if told else sorted(path for path in paths if path.startswith(SEEN))


def main(base: str, checkout: str = str(Path(__file__).resolve().parents[2])) -> int:
    """Say what lacks a fragment; 1 if something does."""
    found = missing(changed(Path(checkout), base))
    if found:
        print(f"Users see these changes since {base}, and {FRAGMENTS} has no new fragment: {', '.join(found)}")
        print("Write one (changelogs/config.yaml lists the sections; section trivial is for what users do not notice).")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
