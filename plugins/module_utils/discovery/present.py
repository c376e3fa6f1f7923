# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a device node is there, now, as discovery saw it. Private API of fleet.cdi."""

from __future__ import annotations

import os
import stat

from ansible_collections.fleet.cdi.plugins.module_utils.records import Node

TYPES = {"c": stat.S_ISCHR, "b": stat.S_ISBLK}


def fault(node: Node, root: str) -> str:
    """What is wrong with a device node below `root`, as it is now; "" if it is the one that discovery saw."""
    try:
        found = os.lstat(root.rstrip("/") + node.path)
    except OSError as error:
        return f"{node.path}: {error.strerror}"
    if not TYPES[node.type](found.st_mode):
        return f"{node.path}: is no device node of type {node.type} any more"
    numbers = (os.major(found.st_rdev), os.minor(found.st_rdev))
    if numbers != (node.major, node.minor):
        return f"{node.path}: has the numbers {numbers[0]}:{numbers[1]}, not {node.major}:{node.minor} any more"
    return ""
