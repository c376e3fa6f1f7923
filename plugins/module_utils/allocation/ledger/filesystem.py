# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On what kind of file system the store lies, from /proc/self/mountinfo (proc(5)). Private API of fleet.cdi."""

from __future__ import annotations

import os
import re

# Locks and fsync are promises of the server's, other hosts may see the file, and a grant is of this host alone.
# fmt: off
NETWORK = frozenset((
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs",
    "fuse.ceph", "fuse.ceph-fuse", "fuse.cephfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.juicefs", "fuse.mfs", "fuse.rclone", "fuse.s3fs", "fuse.seaweedfs", "fuse.sshfs",
))
# fmt: on

# Gone after a reboot, as are the containers that held the devices.
VOLATILE = frozenset(("tmpfs", "ramfs"))


def type_of(path: str, mountinfo: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that `path` (a directory) is on: "ext4", "nfs4"; "unknown" without /proc.

    The mount point that is the longest beginning of the real path counts, of several on it the last.
    """
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
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
    """What is kept on a file system of this type: "disk" over a power cut, "boot" until the next boot, "" refused."""
    return "" if kind in NETWORK else "boot" if kind in VOLATILE else "disk"
