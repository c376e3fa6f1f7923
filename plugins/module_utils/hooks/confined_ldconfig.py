# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program of the host on files of a container that may try to exploit it.

ldconfig reads every library of an image. Its process has the container's root directory as its own, without the
kernel's files in /proc and /sys; its own mount, process, network and IPC namespaces; no capabilities but those that
override file permissions; the system calls of seccomp.py; limited memory, time and file size; and a sealed copy of the
program, so that a process that an image has taken over can't change the host's.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # CPython's own (main.py: what signal costs)
import ctypes
import errno
import fcntl
import os

from . import seccomp
from .error import HookError

# linux/sched.h, linux/mount.h, linux/memfd.h, linux/fcntl.h, linux/prctl.h, linux/capability.h
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 0x1, 0x2, 0x4, 0x20, 0x1000, 0x4000, 0x80000
MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_EXEC = 0x1, 0x2, 0x10
F_ADD_SEALS, ALL_SEALS = 1033, 0xF  # seal, shrink, grow, write
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAPABILITIES = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
# CAP_DAC_OVERRIDE and CAP_FOWNER. Not CAP_DAC_READ_SEARCH: it opens any file of the host's by open_by_handle_at(2).
KEPT = (1 << 1) | (1 << 3)
# RLIMIT_CPU, _FSIZE, _DATA and _CORE, whose numbers all machines share. ldconfig of glibc 2.36 takes less than 2 MiB
# for 5,000 libraries, and 8 for 20,000. It maps their files, which may be gigabytes and are not its own memory: so
# RLIMIT_AS is not set.
RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_CORE = 0, 1, 2, 4
MOST_DATA, LARGEST_FILE = 32 << 20, 64 << 20  # bytes
MOST_SAID = 8 << 10  # bytes of output; the rest is read and dropped
HIDDEN = (b"proc", b"sys")
WRAPPED = ".real"  # Ubuntu's ldconfig is a script around ldconfig.real


def copy(path: str) -> int:
    """Copy the program at `path`; return a descriptor that can be executed and not changed. Raises HookError."""
    try:
        path = path + WRAPPED if os.path.exists(path + WRAPPED) else path
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        try:
            target = os.memfd_create("cdi-hook", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC)
        except OSError:  # before Linux 6.3, MFD_EXEC does not exist and is not needed
            target = os.memfd_create("cdi-hook", MFD_CLOEXEC | MFD_ALLOW_SEALING)
        while os.sendfile(target, source, None, 1 << 24):
            pass
        fcntl.fcntl(target, F_ADD_SEALS, ALL_SEALS)
    except OSError as error:
        raise HookError(
            f"{path}: {error.strerror}; expected the host's ldconfig, or its path as --ldconfig-path"
        ) from None
    os.close(source)
    return target


def make_writable(root: bytes) -> None:
    """Let only this process see a writable root directory if the container's is mounted read-only.

    crun has done that when it runs hooks; runc does it afterwards. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _own_mounts(libc)
    _call(libc.mount, None, root, None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, None)


def run(program: int, arguments: list[str], root: bytes, known: os.stat_result, seconds: int) -> tuple[int, str]:
    """Run the program with `root` as "/": (exit status or negative number of a signal, start of the output).

    `known`: the directory that `root` is. It may be another one now, as a user's link; then nothing is run.
    It has no environment and no input, at most `seconds` of processor time, and ends with the caller. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    alive, ours = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    output, said = os.pipe2(os.O_CLOEXEC)
    child = _fork(libc)
    if not child:
        try:
            os.close(ours)
            _call(libc.prctl, PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)  # end with the hook, whose time is limited
            if _ended(alive):
                os._exit(127)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(said, 1)
            os.dup2(said, 2)
            for handle in os.listdir("/proc/self/fd"):
                if int(handle) > 2 and int(handle) != program:
                    _close(int(handle))
            _enter(libc, root, known)
            _limit(libc, seconds)
            _give_up_capabilities(libc)
            if seccomp.supported():
                seccomp.install(libc)
            os.execve(program, arguments, {})
        except OSError as error:
            os.write(2, f"{arguments[0]} can't be run in the container: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    os.close(said)
    text = _read(output)
    _pid, status = os.waitpid(child, 0)
    for done in (program, alive, ours, output):
        os.close(done)
    return os.waitstatus_to_exitcode(status), text.decode("utf-8", "surrogateescape")


def _fork(libc: ctypes.CDLL) -> int:
    """Like os.fork(), with a process namespace for the child. A running process can't get one."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    _call(libc.unshare, CLONE_NEWPID)
    child = os.fork()
    if child:
        # Later children are in our namespace again. In a user namespace this may be refused, without harm.
        libc.setns(own, CLONE_NEWPID)
    os.close(own)
    return child


def _ended(alive: int) -> bool:
    """Return True if the process with the other end of this pipe is gone: another namespace does not see its number."""
    try:
        os.read(alive, 1)
    except BlockingIOError:
        return False
    return True


def _read(output: int) -> bytes:
    """Read until the end; return the first MOST_SAID bytes."""
    text = b""
    while chunk := os.read(output, MOST_SAID):
        text += chunk[: MOST_SAID - len(text)]
    return text


def _limit(libc: ctypes.CDLL, seconds: int) -> None:
    """Limit what this process takes of the host. Only a hard limit ends the first process of a namespace."""
    limits = ((RLIMIT_CPU, seconds), (RLIMIT_FSIZE, LARGEST_FILE), (RLIMIT_DATA, MOST_DATA), (RLIMIT_CORE, 0))
    for number, most in limits:
        _call(libc.setrlimit, number, (ctypes.c_ulong * 2)(most, most))


def _enter(libc: ctypes.CDLL, root: bytes, known: os.stat_result) -> None:
    """Make `root` this process's root directory, without files of the kernel. Raises OSError if it is not `known`.

    By its path: with a descriptor of another mount namespace nothing can be mounted there.
    """
    _own_mounts(libc)
    _call(libc.unshare, CLONE_NEWNET | CLONE_NEWIPC)
    os.chdir(root)
    if not os.path.samestat(os.stat("."), known):
        raise OSError(errno.ESTALE, "its root directory was replaced meanwhile")
    for name in HIDDEN:
        try:
            handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # missing, or a symlink, which leads only to files of the container
            continue
        _call(libc.mount, b"none", b"/proc/self/fd/%d" % handle, b"tmpfs", MS_RDONLY, b"size=4k")
        os.close(handle)
    os.chroot(b".")


def _own_mounts(libc: ctypes.CDLL) -> None:
    """Keep the later mounts of this process invisible to others."""
    _call(libc.unshare, CLONE_NEWNS)
    _call(libc.mount, None, b"/", None, MS_REC | MS_SLAVE, None)


def _give_up_capabilities(libc: ctypes.CDLL) -> None:
    """Keep only KEPT, also through execve(2) as user 0 (capabilities(7))."""
    number = 0
    while True:
        if not KEPT >> number & 1 and libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0):
            if ctypes.get_errno() == errno.EINVAL:  # the kernel has no further capabilities
                break
            raise OSError(ctypes.get_errno(), f"prctl: {os.strerror(ctypes.get_errno())}")
        number += 1
    header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
    # Effective, permitted, inheritable: for numbers up to 31, then for those from 32 on.
    sets = (ctypes.c_uint32 * 6)(KEPT, KEPT, 0, 0, 0, 0)
    _call(libc.capset, header, sets)
    _call(libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _close(handle: int) -> None:
    try:  # noqa: SIM105  contextlib adds a third of a start (main.py)
        os.close(handle)
    except OSError:  # that of the list itself
        pass


def _call(function: ctypes._NamedFuncPointer, *arguments: object) -> None:
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")
