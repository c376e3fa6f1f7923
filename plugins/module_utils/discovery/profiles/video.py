# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cameras, capture cards and codecs: /dev/video*, with /dev/media* and /dev/v4l-subdev*."""

from __future__ import annotations

from typing import Any

from ..select import Profile, Selection, SelectRule, select
from ..snapshot import Snapshot

# Documentation/userspace-api/media/v4l/open.rst, "V4L2 Device Node Naming"; media nodes: the media controller API.
ROLES = (
    ("video[0-9]*", "video"),
    ("media[0-9]*", "media"),
    ("v4l-subdev[0-9]*", "subdev"),
    ("vbi[0-9]*", "vbi"),
    ("radio[0-9]*", "radio"),
)


def find(_options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each piece of hardware, with all its nodes."""
    rule = SelectRule(subsystem=("video4linux", "media"), roles=ROLES, group_by_parent=True)
    return select(rule, snapshot)


PROFILE = Profile(kind="fleet.cdi/video", name_by=("index",), options={}, find=find)
