# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that only root, or the user who runs this, can change a program before it is run.

If this holds, nobody else can replace the program between the check and its start. Imported only by code that runs
the programs of a configuration: an executable seldom does.
"""

from __future__ import annotations

import errno
import os
import stat

from .. import directories
from ..directories import Untrusted
from ..records import CdiError

# The next step if a program that passed the check can't be started, by errno.
ADVICE = {
    errno.ENOEXEC: "expected a program of this machine, or a script whose first line names its interpreter (#!/bin/sh)",
    errno.EACCES: "make it executable (chmod 755)",
    errno.ENOENT: "its interpreter is missing; install it, or correct the first line of the script",
}


def check(path: str) -> None:
    """Raise CdiError unless `path` is a regular file that only root and the user who runs this can change or replace.

    Symlinks are followed; the rule holds for each of them, and for the directories on every way.
    """
    here, links = path, 0
    try:
        while True:
            folder, name = os.path.split(here)
            at = directories.opened(folder or "/")
            try:
                found = os.stat(name or ".", dir_fd=at, follow_symlinks=False)
                if found.st_uid not in (0, os.geteuid()):
                    raise Untrusted(f"{here} belongs to user {found.st_uid}; expected root. Change its owner (chown).")
                if not stat.S_ISLNK(found.st_mode):
                    break
                target = os.readlink(name, dir_fd=at)
            finally:
                os.close(at)
            links += 1
            if links > directories.MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            here = os.path.join(directories.resolved(folder), target)
    except OSError as error:
        raise CdiError(f"{here}: can't be run ({error.strerror}). Check the path.") from None
    except ValueError as error:  # a NUL in the path
        raise CdiError(f"{path!r}: can't be run ({error}). Check the path.") from None
    if not stat.S_ISREG(found.st_mode):
        raise CdiError(f"{here} is not a regular file ({stat.filemode(found.st_mode)})")
    if found.st_mode & 0o022:
        raise Untrusted(
            f"{here} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}); expected only by root. "
            "Change its mode (chmod go-w)."
        )
