# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of a simulated fleet: a directory whose parts are mounted where a real host has them.

    simulated_host.py DIRECTORY COMMAND...     runs a command on the host

Its own are the files that fleet.cdi writes, the storage of podman and docker, the boot, and the processes: /proc shows
none but those that the directory has. Everything else is this machine's. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import uuid
from pathlib import Path

# What each host has for itself, below its directory by the same path.
OWN = ("/run", "/usr/local/bin", "/usr/local/share")
# Of these it has some names for itself; the others are links to those of this machine, which lie below MACHINE.
SHARED = {
    "/etc": ("cdi", "docker", "fleet-cdi", "modules-load.d", "systemd", "udev"),
    "/opt": ("cdi",),
    "/proc": (),
    # podman takes the empty /run of a host for a reboot, and then forgets the running containers of its storage.
    "/var/lib": ("cdi", "containers", "docker"),
}
MACHINE = "machine"  # in the directory of a host
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# A shell script in the directory of a host, which runs in its namespace before each command: a fault that lasts.
ALWAYS = "always.sh"

# A link in the directory of a host: it has the release of another host, as from a file server.
SHARED_RELEASE = "release"

# unshare(2), mount(2)
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def make(directory: Path) -> None:
    """Make the directory of a host on which nothing was provisioned."""
    for path in OWN:
        Path(f"{directory}{path}").mkdir(parents=True)
    for path, own in SHARED.items():
        there = f"{directory}/{MACHINE}{path}"
        os.makedirs(there)
        for name in own:
            os.makedirs(f"{directory}{path}/{name}")
        os.makedirs(f"{directory}{path}", exist_ok=True)
        for name in set(os.listdir(path)) - set(own):
            if path != "/proc" or not name.isdecimal():
                os.symlink(f"{there}/{name}", f"{directory}{path}/{name}")
    boot(directory)


def boot(directory: Path) -> None:
    """Boot the host: the boot has another id, and /run is empty."""
    (directory / "boot_id").write_text(f"{uuid.uuid4()}\n")
    for path in (directory / "run").glob("*.json"):
        path.unlink()


def enter(directory: str) -> None:
    """Make this process, and those that it starts, see the host. Raises OSError."""
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _mount("none", "/", MS_REC | MS_PRIVATE)
    for path in SHARED:
        _mount(path, f"{directory}/{MACHINE}{path}", MS_BIND | MS_REC)
    _mount(f"{directory}/boot_id", f"{directory}/{MACHINE}{BOOT_ID}", MS_BIND)
    for path in (*OWN, *SHARED):
        _mount(f"{directory}{path}", path, MS_BIND)
    shared = f"{directory}/{SHARED_RELEASE}"
    if os.path.exists(shared):
        _mount(os.readlink(shared), "/opt/cdi", MS_BIND)
    script = f"{directory}/{ALWAYS}"
    if os.path.exists(script):
        subprocess.run(["/bin/sh", "-e", script], check=True)


def _mount(source: str, target: str, flags: int) -> None:
    _check(_libc.mount(source.encode(), target.encode(), None, flags, None), f"mount {source} {target}")


def _check(status: int, what: str) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    enter(sys.argv[1])
    os.chdir("/")
    os.execvp(sys.argv[2], sys.argv[2:])
