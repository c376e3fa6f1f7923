# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell NVIDIA's EGL and Vulkan which GPUs a container has.

They ask the kernel for every GPU of the host, and fail at a GPU whose node is missing. An application profile with the
setting EGLVisibleDGPUDevices, one bit for each device minor, limits them to the others (nvidia-container-toolkit
1.20.1, cmd/nvidia-cdi-hook/update-application-profile; "Application Profiles" of the driver's README).
"""

from __future__ import annotations

import errno
import os
import stat

from .container_root import ContainerRoot

FILE = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
NODE = "nvidia"
MINORS = 64  # bits of the setting
TEXT = """\
{{"profiles": [{{"name": "fleet-cdi", "settings": ["EGLVisibleDGPUDevices", {mask:#x}]}}],
 "rules": [{{"pattern": [], "profile": "fleet-cdi"}}]}}
"""


def write(container: ContainerRoot) -> list[str]:
    """Write the profile for the GPUs whose nodes the container has; return why not. Raises HookError and OSError."""
    minors = [minor for name in container.names("/dev", NODE) for minor in _minor(container, name)]
    mask = sum({1 << minor for minor in minors if minor < MINORS})
    if not mask:
        return []
    try:
        container.write(FILE, TEXT.format(mask=mask), 0o444)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return [f"{FILE}: {error.strerror}; the container's EGL may look for GPUs that it has not got"]
    return []


def _minor(container: ContainerRoot, name: str) -> list[int]:
    """Return the minor of a GPU's node in a list; nothing for other names."""
    if not name.startswith(NODE) or not name[len(NODE) :].isdecimal():
        return []
    directory, last = container.locate(f"/dev/{name}")
    try:
        found = os.lstat(last, dir_fd=directory)
    finally:
        os.close(directory)
    return [os.minor(found.st_rdev)] if stat.S_ISCHR(found.st_mode) else []
