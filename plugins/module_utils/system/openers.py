# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the processes that have a device node open now, by their descriptors and mapped memory.

Nodes are compared by type and numbers, never by path: a container has its own nodes, with any name. Sources:
proc_pid_fd(5), proc_pid_maps(5), statx(2), ptrace(2) "Ptrace access mode checking".

To read /proc/PID/fd of other processes needs CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH for those of other users. With
AT_STATX_DONT_SYNC, statx never waits for a server or for a user's own file system; os.stat would.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import NamedTuple, Optional

from . import control_group
from .control_group import Group

Number = tuple[str, int, int]  # "c" or "b", major, minor

# Programs that keep device nodes open without using the device: they watch it, or keep its driver from unloading it.
# X servers, getty and the like use it, so they are not among them (docs/occupied.md has the sources).
EXPECTED = (
    "nvidia-persistenced",
    "nvidia-smi",
    "nv-hostengine",
    "nv-fabricmanager",
    "dcgm-exporter",
    "nvidia-device-plugin",
    "gpu-feature-discovery",
    "systemd-logind",
    "systemd-udevd",
    "udevadm",
)

NAMED = 3  # openers that a text names before it counts the others
SECONDS = 2.0  # for one look
DENIED = (errno.EACCES, errno.EPERM)
SYS_PTRACE = 19  # linux/capability.h
FIRST = "pid:[4026531836]"  # the pid namespace of the host (linux/proc_ns.h, PROC_PID_INIT_INO)
MAPS = 16 << 20  # bytes of one process' mappings that are looked at

# linux/stat.h and linux/fcntl.h
_AT_STATX_DONT_SYNC, _AT_NO_AUTOMOUNT = 0x4000, 0x800
_BASIC = 0x7FF  # STATX_BASIC_STATS
_HEAD, _NUMBERS = struct.Struct("=I4xH2xQ"), struct.Struct("=4I")  # stx_uid, stx_mode, stx_ino; stx_rdev_*, stx_dev_*
# A mapping that is shared, of a file: range, device and inode of the file system, path (proc_pid_maps(5)).
_SHARED = re.compile(rb"^([0-9a-f]+-[0-9a-f]+) ..[-x]s [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+) ([1-9][0-9]*) +(/[^\n]*)$", re.M)


class Opener(NamedTuple):
    """A process that has a node open."""

    pid: int
    command: str  # the name of its program's file
    uid: int
    group: Group = Group()
    of_root: bool = False  # only root can change its program's file, so the name can be trusted
    began: float = 0.0  # seconds of CLOCK_BOOTTIME; 0.0: unknown

    def __str__(self) -> str:
        """Describe it. Program and group may have any name: print it with safe_text.one_line."""
        where = str(self.group)
        return f"pid {self.pid} ({self.command or 'unknown program'}, uid {self.uid})" + (
            f" in {where}" if where else ""
        )


class OpenersSeen(NamedTuple):
    """The result of a look."""

    openers: Mapping[Number, tuple[Opener, ...]] = {}
    processes: int = 0  # that it could look at
    unseen: int = 0  # that it could not look at
    trouble: str = ""  # another reason why it may have missed some

    @property
    def gaps(self) -> str:
        """Tell what the look may have missed, or return ""."""
        unseen = f"could not look at {self.unseen} of {self.processes + self.unseen} processes" if self.unseen else ""
        return "; ".join(filter(None, (unseen, self.trouble)))


def look(
    numbers: Collection[Number],
    majors: Collection[tuple[str, int]] = (),
    proc: str = "/proc",
    seconds: float = SECONDS,
) -> OpenersSeen:
    """Find the processes that have nodes with these numbers open, or nodes of these types and major numbers.

    Blocks for about `seconds` at most. A process that ends meanwhile has nothing open. A process that starts later, or
    opens a node later, is not seen.
    """
    if not numbers and not majors:
        return OpenersSeen()
    wanted = _Wanted(frozenset(numbers), frozenset(majors))
    found: dict[Number, list[Opener]] = {}
    processes = unseen = 0
    try:
        end = time.monotonic() + seconds
        nodes = _Nodes()
        pids = sorted(int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())
    except OSError as error:
        return OpenersSeen(trouble=f"{proc}: {error.strerror or error}")
    for index, pid in enumerate(pids):
        if time.monotonic() > end:
            return OpenersSeen(
                _made(found), processes, unseen + len(pids) - index, f"it would take more than {seconds:g} s"
            )
        try:
            # This descriptor stays with the process; its number may go to another process.
            process = os.open(f"{proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # it has ended
        try:
            opened = _opened(process, wanted, nodes)
            processes += 1
            if opened:
                opener = _opener(process, pid, nodes)
                for number in opened:
                    found.setdefault(number, []).append(opener)
        except OSError as error:
            unseen += error.errno in DENIED
        finally:
            os.close(process)
    return OpenersSeen(_made(found), processes, unseen, _blind(proc))


def _made(found: Mapping[Number, Sequence[Opener]]) -> dict[Number, tuple[Opener, ...]]:
    return {number: tuple(openers) for number, openers in found.items()}


def is_expected(opener: Opener, patterns: Collection[str]) -> bool:
    """Tell if one of `patterns` (fnmatch) matches its systemd unit, or a program that only root can change."""
    names = [opener.group.unit, *([opener.command] if opener.of_root else ())]
    return any(name and fnmatchcase(name, pattern) for name in names for pattern in patterns)


def named_openers(openers: Sequence[Opener]) -> str:
    """Name the first of them, and count the others."""
    more = len(openers) - NAMED
    return "; ".join(map(str, openers[:NAMED])) + (f"; and {more} more" if more > 0 else "")


def number_of(path: str) -> Optional[Number]:
    """Return the numbers of the device node at `path`, or None if it is not one or can't be read."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return _number(found.st_mode, os.major(found.st_rdev), os.minor(found.st_rdev))


def _number(mode: int, major: int, minor: int) -> Optional[Number]:
    sort = "c" if stat.S_ISCHR(mode) else "b" if stat.S_ISBLK(mode) else ""
    return (sort, major, minor) if sort else None


def _opened(process: int, wanted: _Wanted, nodes: _Nodes) -> set[Number]:
    """Return the `wanted` nodes that a process has open. Raises OSError if it has ended or access is denied."""
    found = set()
    folder = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    try:
        for name in os.listdir(folder):
            try:
                number = nodes.number(folder, name)
            except OSError as error:
                if error.errno in DENIED:
                    raise
                continue  # closed meanwhile
            if number and wanted.has(number):
                found.add(number)
    finally:
        os.close(folder)
    found.update(number for number in _mapped(process, nodes) if number and wanted.has(number))
    return found


def _mapped(process: int, nodes: _Nodes) -> Iterator[Optional[Number]]:
    """Yield the numbers of the nodes that a process has mapped, and None for other files. Raises OSError."""
    with open(os.open("maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), "rb") as file:
        text = file.read(MAPS)
    for place, device, inode, path in set(_SHARED.findall(text)):
        yield nodes.mapped(process, place, device, int(inode), path)


class _Wanted(NamedTuple):
    """The nodes to look for."""

    numbers: frozenset[Number]
    majors: frozenset[tuple[str, int]]

    def has(self, number: Number) -> bool:
        """Tell if a node is wanted."""
        return number in self.numbers or number[:2] in self.majors


class _FileStat(NamedTuple):
    """A file, as statx(2) describes it."""

    mode: int
    uid: int
    inode: int
    numbers: tuple[int, int]  # of the device, if the file is a device node
    device: tuple[int, int]  # of the file system

    @property
    def number(self) -> Optional[Number]:
        """Return its type and numbers, or None if it is not a device node."""
        return _number(self.mode, *self.numbers)


class _Nodes:
    """Identify files. Remembers mapped files, because many processes map the same ones."""

    def __init__(self) -> None:
        self._statx = ctypes.CDLL(None, use_errno=True).statx
        self._buffer = ctypes.create_string_buffer(256)
        self._known: dict[tuple[bytes, int], Optional[Number]] = {}

    def number(self, folder: int, name: str) -> Optional[Number]:
        """Return the numbers of the device node to which a link leads, or None for another file. Raises OSError."""
        return self.stat(folder, name.encode()).number

    def mapped(self, process: int, place: bytes, device: bytes, inode: int, path: bytes) -> Optional[Number]:
        """Return the numbers of the file that is mapped at `place`, or None if it is unknown or not a device node."""
        key = (device, inode)
        if key not in self._known:
            number = None
            with suppress(OSError):
                try:
                    number = self.stat(process, b"map_files/" + place).number
                except OSError as error:
                    # map_files needs CAP_CHECKPOINT_RESTORE. The path leads to the same file, if it is unchanged. Only
                    # below /dev: another path may lead to a server.
                    if error.errno not in DENIED or not path.startswith(b"/dev/"):
                        raise
                    there = self.stat(process, b"root" + path)
                    major, minor = (int(part, 16) for part in device.split(b":"))
                    if (there.inode, there.device) == (inode, (major, minor)):
                        number = there.number
            self._known[key] = number
        return self._known[key]

    def stat(self, folder: int, name: bytes) -> _FileStat:
        """Return the statx(2) of a file without a sync. Raises OSError."""
        if self._statx(folder, name, _AT_STATX_DONT_SYNC | _AT_NO_AUTOMOUNT, _BASIC, self._buffer):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        content = self._buffer.raw
        uid, mode, inode = _HEAD.unpack_from(content, 20)
        major, minor, *own = _NUMBERS.unpack_from(content, 128)
        return _FileStat(mode, uid, inode, (major, minor), (own[0], own[1]))


def _opener(process: int, pid: int, nodes: _Nodes) -> Opener:
    """Describe a process that has a node open; leaves out facts that can't be read."""
    program, of_root, uid, group, began = "", False, -1, Group(), 0.0
    with suppress(OSError, ValueError, StopIteration):
        status = _text(process, "status", control_group.LONGEST)
        uid = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:")))
    with suppress(OSError):
        program = os.path.basename(os.readlink("exe", dir_fd=process).removesuffix(" (deleted)"))
        file = nodes.stat(process, b"exe")
        of_root = file.uid == 0 and not file.mode & 0o022
    with suppress(OSError):
        group = control_group.parse(_text(process, "cgroup", control_group.LONGEST))
    with suppress(OSError, ValueError, IndexError):  # field 22 of proc_pid_stat(5); field 2 may have any characters
        fields = _text(process, "stat", control_group.LONGEST).rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return Opener(pid, program, uid, group, of_root, began)


def _text(process: int, name: str, most: int) -> str:
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), "rb") as file:
        return file.read(most).decode(errors="surrogateescape")


def _blind(proc: str) -> str:
    """Tell why some processes may be invisible to us, or return ""."""
    with suppress(OSError, ValueError, IndexError):
        if os.readlink(f"{proc}/self/ns/pid") != FIRST:
            return "only processes of this pid namespace can be seen"
        with open(f"{proc}/self/status", "rb") as file:
            rights = next(line.split()[1] for line in file if line.startswith(b"CapEff:"))
        if not int(rights, 16) >> SYS_PTRACE & 1:
            return "without CAP_SYS_PTRACE processes may be hidden"
    return ""
