# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The system calls that the host's ldconfig may make, as a filter for the kernel (seccomp(2), classic BPF).

The list has what ldconfig of glibc 2.31 to 2.42 uses. Anything else returns ENOSYS, so that a newer C library takes
another way. The list has no processes, sockets, signals, mounts or file handles.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2  # linux/prctl.h, linux/seccomp.h
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.ENOSYS
# linux/audit.h: the architecture of a system call.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32 = 0x40000000  # numbers of x86_64's other calling convention have this bit
MMAP = {"x86_64": 9, "aarch64": 222}
SHARED_MEMORY = 0x21  # MAP_SHARED and MAP_ANONYMOUS: memory that no limit of a process counts

# Name -> its number on x86_64 and on aarch64 (asm/unistd_64.h, asm-generic/unistd.h), or None. mmap is
# allowed as well, but not for shared memory.
CALLS: dict[str, tuple[Optional[int], Optional[int]]] = {
    "read": (0, 63),
    "write": (1, 64),
    "open": (2, None),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "lseek": (8, 62),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "fcntl": (72, 25),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "ftruncate": (77, 46),
    "getdents": (78, None),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "rename": (82, None),
    "mkdir": (83, None),
    "unlink": (87, None),
    "symlink": (88, None),
    "readlink": (89, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "umask": (95, 166),
    "gettimeofday": (96, 169),
    "sysinfo": (99, 179),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "futex": (202, 98),
    "getdents64": (217, 61),
    "set_tid_address": (218, 96),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "openat": (257, 56),
    "mkdirat": (258, 34),
    "newfstatat": (262, 79),
    "unlinkat": (263, 35),
    "renameat": (264, 38),
    "symlinkat": (266, 36),
    "readlinkat": (267, 78),
    "fchmodat": (268, 53),
    "faccessat": (269, 48),
    "set_robust_list": (273, 99),
    "prlimit64": (302, 261),
    "renameat2": (316, 276),
    "getrandom": (318, 278),
    "execveat": (322, 281),  # this starts it
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
    "fchmodat2": (452, 452),
}

# linux/bpf_common.h
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
# struct seccomp_data: the number, the architecture, the instruction pointer, the arguments.
NUMBER, ARCHITECTURE, FLAGS = 0, 4, 16 + 3 * 8  # low half of mmap's flags, on machines that begin with it


class _Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def supported() -> bool:
    """Return True if a filter for this machine exists."""
    return os.uname().machine in ARCHITECTURES and sys.maxsize > 1 << 32 and sys.byteorder == "little"


def program(machine: str) -> bytes:
    """Return the filter for a machine of ARCHITECTURES: instructions of struct sock_filter."""
    column = list(ARCHITECTURES).index(machine)
    instructions = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, ARCHITECTURES[machine]), (RETURN, 0, 0, REFUSE)]
    instructions += [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, X32), (RETURN, 0, 0, REFUSE)]
    for row in CALLS.values():
        number = row[column]
        if number is not None:
            instructions += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    instructions += [(EQUAL, 1, 0, MMAP[machine]), (RETURN, 0, 0, REFUSE)]
    instructions += [(LOAD, 0, 0, FLAGS), (AND, 0, 0, SHARED_MEMORY), (EQUAL, 0, 1, SHARED_MEMORY)]
    instructions += [(RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    return b"".join(
        code.to_bytes(2, "little") + bytes((true, false)) + value.to_bytes(4, "little")
        for code, true, false, value in instructions
    )


def install(libc: ctypes.CDLL) -> None:
    """Limit this process, and what it executes, to CALLS. It must have no_new_privs. Raises OSError."""
    content = program(os.uname().machine)
    filter_ = _Filter(len(content) // 8, content)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl(PR_SET_SECCOMP): {os.strerror(ctypes.get_errno())}")
