# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit's directives do to whoever runs in it: the plugin's setup command, told by the role to be this program.

With an argument it is whoever looks at processes, in whose place features.py puts it.

Writes one JSON object, directive to what came of an attempt, to OUT/<command>.json, or prints it; verify.yml knows what
is expected.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import socket
import sys
import time

OUT = "/var/lib/test-probe"
LIBC = ctypes.CDLL(None, use_errno=True)


def tried(attempt, *arguments) -> str:
    """ "ok", or the name of the error."""
    try:
        found = attempt(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return found if isinstance(found, str) else "ok"


def called(function: str, *arguments: int) -> None:
    """A function of the C library. Raises OSError."""
    if getattr(LIBC, function)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), function)


def written(path: str) -> None:
    """Open for writing, and write nothing. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))


def made(path: str) -> None:
    """Make a file and remove it. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    os.unlink(path)


def set_user_id() -> None:
    """Make a file of ours one that runs with its owner's rights. Raises OSError."""
    path = os.path.join(OUT if os.access(OUT, os.W_OK) else "/tmp", "setuid")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    try:
        os.chmod(path, 0o4700)
    finally:
        os.unlink(path)


def status(name: str) -> str:
    """A field of proc_pid_status(5)."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{name}:"))


def hidden_processes() -> str:
    """The option of proc(5) that says which processes of others are seen there."""
    with open("/proc/self/mounts", encoding="ascii") as file:
        options = next(line.split()[3] for line in reversed(file.readlines()) if line.split()[1] == "/proc")
    return next((one.partition("=")[2] for one in options.split(",") if one.startswith("hidepid=")), "")


def new_socket(family: int) -> None:
    """Open a socket. Raises OSError."""
    socket.socket(family, socket.SOCK_DGRAM).close()


def sent(address: str) -> None:
    """Send a datagram. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"", (address, 9))


def mode(path: str) -> str:
    """Who may do what with a file."""
    return oct(os.stat(path).st_mode & 0o777)


def umask() -> str:
    """The mask in force."""
    before = os.umask(0o077)
    os.umask(before)
    return oct(before)


PROBES = {
    "NoNewPrivileges": (status, "NoNewPrivs"),
    "CapabilityBoundingSet": (status, "CapBnd"),
    "ProtectSystem": (made, "/etc/probe"),
    "ReadWritePaths": (made, "/var/lib/kubelet/device-plugins/probe"),
    "ReadWritePaths, the state directory": (made, "/var/lib/cdi/probe"),
    "ReadWritePaths, /var/lib": (made, "/var/lib/probe"),
    "ReadWritePaths, the rest of the kubelet's": (made, "/var/lib/kubelet/probe"),
    "ReadWritePaths, /tmp": (made, "/tmp/probe"),
    "RuntimeDirectory": (made, "/run/cdi-device-plugin/.probe"),
    "ProtectHome": (made, "/root/probe"),
    "ProtectHostname": (socket.sethostname, socket.gethostname()),
    "ProtectControlGroups": (os.mkdir, "/sys/fs/cgroup/probe"),
    "ProtectKernelLogs": (written, "/dev/kmsg"),
    "ProtectKernelModules": (os.listdir, "/usr/lib/modules"),
    "ProtectKernelTunables": (written, "/proc/sys/vm/swappiness"),
    "ProtectClock": (time.clock_settime, time.CLOCK_REALTIME, time.time()),
    "ProtectProc": (hidden_processes,),
    "PrivateMounts": (os.readlink, "/proc/self/ns/mnt"),
    "RestrictAddressFamilies": (new_socket, socket.AF_PACKET),
    "RestrictAddressFamilies, Internet": (new_socket, socket.AF_INET),
    "RestrictNamespaces": (called, "unshare", 0x10000000),  # CLONE_NEWUSER
    "RestrictRealtime": (os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)),
    "RestrictSUIDSGID": (set_user_id,),
    "LockPersonality": (called, "personality", 0x0008),  # PER_LINUX32
    "MemoryDenyWriteExecute": (mmap.mmap, -1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7),
    "IPAddressDeny": (sent, "192.0.2.1"),  # nobody's (RFC 5737)
    "IPAddressAllow": (sent, "127.0.0.1"),
    "SystemCallFilter, @privileged": (os.chroot, "/"),
    "SystemCallFilter, @resources": (os.sched_setaffinity, 0, os.sched_getaffinity(0)),
    "SystemCallArchitectures": (status, "Seccomp"),
    "UMask": (umask,),
    "DevicePolicy": (written, "/dev/test-console"),
    "ProtectSystem, the state directory": (made, "/var/lib/cdi/probe"),
    "ProtectKernelModules, the directory": (mode, "/usr/lib/modules"),
    "PrivateDevices": (os.stat, "/dev/test-console"),
    "PrivateTmp": (os.stat, "/tmp/test-mount"),
    "PrivateNetwork": (os.readlink, "/proc/self/ns/net"),
}


def main() -> int:
    """Try everything."""
    found = {name: tried(*probe) for name, probe in PROBES.items()}
    if sys.argv[1:]:
        json.dump(found, sys.stdout)
        return 0
    os.makedirs(OUT, exist_ok=True)
    found["command"] = os.environ.get("CDI_COMMAND", "")
    with open(os.path.join(OUT, f"{found['command']}.json"), "w", encoding="ascii") as file:
        json.dump(found, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
