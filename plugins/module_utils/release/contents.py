# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a release: a set of source files, and the id that follows from them alone."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping

from ..records import CdiError

ROOT = "ansible_collections/fleet/cdi/plugins/module_utils"

# Empty files above ROOT. Without them ansible_collections/__init__.py of the PyPI package `ansible` would come first
# from any place on the path: a regular package takes precedence over a namespace package.
PACKAGES = (
    "ansible_collections",
    "ansible_collections/fleet",
    "ansible_collections/fleet/cdi",
    "ansible_collections/fleet/cdi/plugins",
)

_SOURCE = re.compile(r"ansible_collections/(?:[A-Za-z_][A-Za-z0-9_]*/)*[A-Za-z_][A-Za-z0-9_]*\.py")
_VERSION = re.compile(rb'^VERSION = "([0-9][0-9A-Za-z.+-]*)"$', re.MULTILINE)


def identify(sources: Mapping[str, bytes]) -> str:
    """Return the id `<version>-<digest>` of `sources` (relative path -> content).

    The digest is the beginning of a SHA-256 over names and contents; modes, times and order don't count. Raises
    CdiError for a path that a release can't have, or a missing version.
    """
    total = hashlib.sha256()
    for name in sorted(sources):
        if not is_source(name):
            raise CdiError(f"{name}: is not a source file of a release; expected ansible_collections/.../*.py")
        total.update(b"%s\0%d\0%s" % (name.encode(), len(sources[name]), sources[name]))
    version = _VERSION.search(sources.get(f"{ROOT}/release/version.py", b""))
    if version is None:
        raise CdiError(f'{ROOT}/release/version.py: expected a line VERSION = "..."; not a release of fleet.cdi')
    return f"{version.group(1).decode()}-{total.hexdigest()[:12]}"


def is_source(name: str) -> bool:
    """Return True if the file `name`, relative to the directory of a release, can be one of its sources."""
    return _SOURCE.fullmatch(name) is not None


def collect(directory: str, under: str) -> dict[str, bytes]:
    """Return the *.py files in and below `directory`: `under`/<relative path> -> content. Raises OSError.

    Byte code, hidden files, symlinks and directories that are not packages don't count: they appear and vanish with
    use.
    """
    sources: dict[str, bytes] = {}
    for entry in os.scandir(directory):
        name = f"{under}/{entry.name}" if under else entry.name
        if entry.is_dir(follow_symlinks=False):
            if entry.name.isidentifier() and entry.name != "__pycache__":
                sources.update(collect(entry.path, name))
        elif entry.is_file(follow_symlinks=False) and entry.name.endswith(".py") and entry.name[:-3].isidentifier():
            with open(entry.path, "rb") as file:
                sources[name] = file.read()
    return sources
