# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the type and numbers of device nodes, and compare them with the expected ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple, Optional

from ..records import Node

Lstat = Callable[[str], os.stat_result]

TYPES = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}

MISSING = "node-missing"
RULES = {"type": "node-type", "major": "node-number", "minor": "node-number"}  # field -> the rule that it breaks


class Numbers(NamedTuple):
    """Type and numbers of a device node."""

    type: str  # "c", "b" or "p"
    major: int
    minor: int


class NoNode(OSError):
    """The file exists and is not a device node."""

    def __init__(self, mode: int) -> None:
        super().__init__()
        self.mode = stat.filemode(mode)
        self.strerror = f"is not a device node ({self.mode})"


def read(path: str, lstat: Lstat = os.lstat) -> Numbers:
    """Return the device node at `path`. Follows no symlink, like the reference library. Raises OSError, NoNode."""
    found = lstat(path)
    type_ = TYPES.get(stat.S_IFMT(found.st_mode))
    if type_ is None:
        raise NoNode(found.st_mode)
    return Numbers(type_, os.major(found.st_rdev), os.minor(found.st_rdev))


def numbers_at(path: str, stat: Lstat = os.stat) -> Optional[Numbers]:
    """Return the device at `path`, or None. Follows symlinks if `stat` does.

    Opens nothing: to open a FIFO or a device may take forever.
    """
    try:
        found = read(path, stat)
    except (OSError, ValueError):
        return None
    return found if found.type != "p" else None


def differences(found: Numbers, expected: Numbers) -> dict[str, tuple[str, str]]:
    """Map each different field to (found, expected). Numbers count if the type is right, and not for a FIFO."""
    if found == expected:
        return {}  # as most are: saves a look time (tests/bench/device_plugin_offer.py)
    fields = ("type",) if found.type != expected.type or found.type == "p" else Numbers._fields
    pairs = {field: (str(getattr(found, field)), str(getattr(expected, field))) for field in fields}
    return {field: pair for field, pair in pairs.items() if pair[0] != pair[1]}


def fault(node: Node, lstat: Lstat = os.lstat) -> tuple[str, str]:
    """Return (rule, reason) if the host does not have `node` as recorded, or ("", "")."""
    try:
        found = read(node.path, lstat)
    except (OSError, ValueError) as error:
        return MISSING, f"{node.path}: {getattr(error, 'strerror', None) or error}"
    for field, (is_, should) in differences(found, Numbers(node.type, node.major, node.minor)).items():
        return RULES[field], f"{node.path}: has {field} {is_}, expected {should}"
    return "", ""


def below(root: str) -> Lstat:
    """Return an lstat(2) for paths below `root`."""
    prefix = root.rstrip("/")
    return lambda path: os.lstat(prefix + path)
