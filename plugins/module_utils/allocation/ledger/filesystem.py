# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the type of the store's file system in /proc/self/mountinfo (proc(5))."""

from __future__ import annotations

import os
import re

# Locks and fsync depend on the server, other hosts may see the file, and a grant belongs to this host alone.
# fmt: off
NETWORK = frozenset((
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs",
    "fuse.ceph", "fuse.ceph-fuse", "fuse.cephfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.juicefs", "fuse.mfs", "fuse.rclone", "fuse.s3fs", "fuse.seaweedfs", "fuse.sshfs",
))
# fmt: on

# Empty after a reboot; the containers that held the devices are gone then, too.
VOLATILE = frozenset(("tmpfs", "ramfs"))


def type_of(path: str, mountinfo: str = "/proc/self/mountinfo") -> str:
    """Return the type of the file system of the directory `path`: "ext4", "nfs4"; "unknown" without /proc.

    The longest mount point that is a prefix of the real path counts; of several mounts on it, the last.
    """
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            lines = file.read().split("\n")[:-1]  # a mount point may have any other character
    except OSError:
        return "unknown"
    real = os.path.realpath(path).rstrip("/") + "/"
    longest, found = -1, "unknown"
    for line in lines:
        before, _dash, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), before.split(" ")[4])
        if real.startswith(point.rstrip("/") + "/") and len(point) >= longest:
            longest, found = len(point), after.split(" ")[0]
    return found


def durability(kind: str) -> str:
    """Return how long this type of file system keeps data.

    "disk": over a power cut. "boot": until a reboot. "": the store must not be on it.
    """
    return "" if kind in NETWORK else "boot" if kind in VOLATILE else "disk"
