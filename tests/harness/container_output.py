# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what a container says from files. podman 4.3 now and then loses the output of a container that ends at once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

INSIDE = "/said"  # where the container has the directory of the files


class Output:
    """Two files in `directory`, which its owner lets the container write. One container at a time uses them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        above = directory.parent.stat()
        os.chown(directory, above.st_uid, above.st_gid)  # an ordinary user's container has the rights of this user
        self._files = directory / "out", directory / "err"
        self.volume = f"--volume={directory}:{INSIDE}"

    def of(self, command: str) -> str:
        """Return a shell command that does `command` and writes to the files, which are gone until then."""
        for path in self._files:
            path.unlink(missing_ok=True)
        return f"exec > {INSIDE}/out 2> {INSIDE}/err; {command}"

    def added(self, done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
        """Return what podman did and said, with what the container said behind it."""
        out, err = (path.read_text(encoding="utf-8") if path.exists() else "" for path in self._files)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout + out, done.stderr + err)
