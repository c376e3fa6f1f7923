# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set this process and what it starts apart from the host: they see empty directories where fleet.cdi writes.

podman before 5.5 reads /etc/cdi and /var/run/cdi only, so a test with a real podman has to write there. In a mount
namespace of its own it neither finds nor touches what the host has there. Nor does it find the daemons of the host:
Debian 12's docker, for one, is from before CDI, and no host that has it is well.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import shutil
import sys
from contextlib import suppress

# Where fleet.cdi and its demo write unless the settings say otherwise; /run/cdi is /var/run/cdi.
DIRECTORIES = ("/etc/cdi", "/run/cdi", "/opt/cdi", "/var/lib/cdi", "/etc/fleet-cdi", "/var/lib/fleet-cdi")

# The programs of daemons that start containers, and where they answer. podman stays: tests start containers with it.
DAEMONS = ("dockerd", "containerd", "crio")
PLACES = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
SOCKETS = ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock")

# Where tests have the list of devices: its usual place, /run/cdi-inventory.json, is in a directory of the host.
DEVICE_LIST = "/var/lib/cdi/run/inventory.json"

# Held shared by all who are apart, so that none removes a directory under another one's mount. It lists what was made.
LOCK = "/run/fleet-cdi-tests.lock"

# unshare(2), mount(2), umount2(2)
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x1000, 0x4000, 0x40000, 2, 4
MNT_DETACH = 2
# Version 2 on a host with hybrid cgroups. It gets each controller that nobody has mounted as version 1 just now, and
# then crun starts nothing. In the namespace there is version 1 alone.
UNIFIED = "/sys/fs/cgroup/unified"

_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> bool:
    """Enter a mount namespace in which DIRECTORIES are empty, no daemon is installed or answers, and crun works.

    False for an ordinary user, who can't write there anyway.

    A directory that the host lacks is made as the place of the mount; who is the last to leave removes it. Raises
    OSError.
    """
    if os.geteuid() != 0:
        return False
    lock = _locked()
    for path in DIRECTORIES:
        with suppress(FileExistsError):
            os.mkdir(path)
            os.write(lock, f"{path}\n".encode())
    _call(_libc.unshare(CLONE_NEWNS), "unshare")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    for path in DIRECTORIES:
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV)
    for path in (*(f"{place}/{name}" for place in PLACES for name in DAEMONS), *SOCKETS):
        if os.path.exists(path):
            _mount(os.devnull, path, None, MS_BIND)
    _libc.umount2(UNIFIED.encode(), MNT_DETACH)  # fails where it is not mounted
    atexit.register(_leave, os.getpid(), lock)
    return True


def empty() -> None:
    """Remove what is in those of DIRECTORIES that are mounts of this namespace, never what the machine has there."""
    for path in filter(os.path.ismount, DIRECTORIES):
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _locked() -> int:
    """The lock file, open and shared; made anew where the last one to leave has just removed it."""
    while True:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(LOCK)):
                return lock
        os.close(lock)


def _leave(pid: int, lock: int) -> None:
    """Remove the directories that were made, unless others are still in them; what has content is somebody's by now."""
    if os.getpid() != pid:  # a child that was forked
        return
    for path in DIRECTORIES:
        _libc.umount2(path.encode(), MNT_DETACH)
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in os.pread(lock, 4096, 0).decode().split():
            with suppress(OSError):
                os.rmdir(path)
        os.unlink(LOCK)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    data = b"mode=0755" if kind else None
    status = _libc.mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, data)
    _call(status, f"mount {target}")


def _call(status: int, what: str) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    import subprocess

    enter()
    sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
