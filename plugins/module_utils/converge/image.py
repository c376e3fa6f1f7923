# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on a mounted image as if it were this host.

The image becomes the root directory of the process (chroot(2)). So every path and symlink, including those in the
manifest, means what it will mean when the image runs, and none leads out of the image.
"""

from __future__ import annotations

import os
from importlib import import_module

from ..records import CdiError

# Modules that are otherwise imported late. Inside the image they can't be imported.
CODECS = ("ascii", "idna", "latin_1", "utf_8_sig")
LATER = (*(f"encodings.{name}" for name in CODECS), "difflib", "hashlib", "reprlib", "sqlite3", "subprocess", "time")
OURS = (
    "allocation.ledger.ledger",
    "explanations.every",
    "spec.text.yaml_subset",
    "system.processes",
    "system.programs",
)
THEIRS = ("yaml", "selinux")  # if the host has them


def enter(root: str) -> None:
    """Make `root` the root directory of this process. This can't be reverted. Raises CdiError."""
    if not root.startswith("/") or not os.path.isdir(root):
        raise CdiError(
            f"root: found {root!r}; expected the absolute path of a directory, as one that an image is mounted on"
        )
    for name in (*LATER, *(f"ansible_collections.fleet.cdi.plugins.module_utils.{name}" for name in OURS)):
        import_module(name)
    for name in THEIRS:
        try:
            import_module(name)
        except ImportError:
            continue
    try:
        os.chroot(root)
        os.chdir("/")
    except OSError as error:
        raise CdiError(f"root {root!r}: can't be entered ({error.strerror}); run as root (become: true)") from None
