# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What udev knows of the chosen devices, through pyudev: symlinks, properties, tags.

sysfs is enough to find and to hand out devices; udev adds what its rules gave. A host without it gets a warning.
"""

from __future__ import annotations

import os
from typing import Optional

from ..safe_text import is_visible
from .discover import UNKNOWN_TO_UDEV, Enricher, Udev

DATABASE = "/run/udev/data"
LEFT_OUT = "symlinks, udev properties and serial numbers that only udev knows are left out"
INSTALL = (
    "Install python3-pyudev (Debian, Ubuntu: apt-get install python3-pyudev; RHEL and kin: dnf install python3-pyudev)"
)


LONGEST = 16384  # characters of a property; a line of udev's rules and database has no more (UDEV_LINE_SIZE)


def enricher(root: str = "/") -> tuple[Optional[Enricher], list[str]]:
    """(a look-up by sysfs path, warnings). None where udev is missing, and for an image or a dump: theirs is not up."""
    if root != "/":
        return None, []
    if not os.path.isdir(DATABASE):
        return None, [f"udev does not run here (no {DATABASE}); {LEFT_OUT}"]
    try:
        import pyudev

        context = pyudev.Context()
    except (ImportError, OSError) as error:  # OSError, in old releases ImportError: no libudev.so.1
        return None, [f"udev can't be asked ({error}); {LEFT_OUT}. {INSTALL}"]

    def look_up(path: str) -> Udev:
        properties = {}
        try:
            device = pyudev.Devices.from_sys_path(context, path)
            for name in sorted(device.properties):
                try:
                    value = device.properties[name]
                except UnicodeDecodeError:  # pyudev has no way to hand out the bytes
                    continue
                if len(value) <= LONGEST:
                    properties[name] = value
            return Udev(properties, tuple(sorted(filter(_is_link, properties.get("DEVLINKS", "").split()))))
        except (pyudev.DeviceNotFoundError, KeyError, OSError):  # gone since the snapshot, or while asking
            return UNKNOWN_TO_UDEV

    return look_up, []


def _is_link(path: str) -> bool:
    """Whether udev may have made a link there: rules make paths of what devices say."""
    return path.startswith("/dev/") and os.path.normpath(path) == path and is_visible(path)
