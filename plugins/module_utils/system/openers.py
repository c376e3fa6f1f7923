# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the processes that have a device node open now, by their descriptors and mapped memory.

Nodes are compared by type and numbers, never by path: a container has its own nodes, with any name. Sources:
proc_pid_fd(5), proc_pid_maps(5), proc_pid_task(5), kcmp(2), statx(2), ptrace(2) "Ptrace access mode checking".

A thread may have a descriptor table of its own (unshare(2), CLONE_FILES), and the first thread may end before others
do. /proc/PID/fd and /proc/PID/maps are those of the first thread, so threads are looked at, too.

A process may move what it has open while we look, by dup2(2), so that no list has it where it is. So a table is looked
at again until it has as many files as the list (Linux 6.2, where the size of /proc/PID/fd is their number), and none of
them was closed during the look. A process that goes on like that is named: it may be a busy server, or hide a node.

To read /proc/PID/fd of other processes needs CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH for those of other users. With
AT_STATX_DONT_SYNC, statx never waits for a server or for a user's own file system; os.stat would.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple, Optional

from . import control_group
from .control_group import Group
from .proc import ROUNDS, EveryProcess, user_ids

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
ENDED = (errno.ENOENT, errno.ESRCH)  # of a process in /proc
SYS_PTRACE = 19  # linux/capability.h
FIRST = "pid:[4026531836]"  # the pid namespace of the host (linux/proc_ns.h, PROC_PID_INIT_INO)
CHUNK = 1 << 16  # bytes of one read(2)
BATCH = 1 << 20  # bytes of a process' mappings that are looked at together: there may be hundreds of megabytes
QUERIES = 16  # shared mappings of a process that are asked for one by one; the text of all is cheaper for more

_LIBC = ctypes.CDLL(None, use_errno=True)
# kcmp(2): its number on this machine (asm/unistd.h), and the kind that compares descriptor tables
_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}.get(os.uname().machine, -1)
_KCMP_FILES = 2
# linux/stat.h and linux/fcntl.h
_AT_STATX_DONT_SYNC, _AT_NO_AUTOMOUNT = 0x4000, 0x800
_BASIC = 0x7FF  # STATX_BASIC_STATS
_MODE = struct.Struct("=H")  # stx_mode
_HEAD, _NUMBERS = struct.Struct("=I4xH2xQ"), struct.Struct("=4I")  # stx_uid, stx_mode, stx_ino; stx_rdev_*, stx_dev_*
# linux/fs.h, struct procmap_query: size, flags, address; number 4 is the end of the mapping, 8 its inode, 9 and 10 its
# device
_QUERY, _PROCMAP_QUERY = struct.Struct("=9Q4I2Q"), 0xC0686611
_SHARED_FILE = 0x8 | 0x10 | 0x20  # the first mapping at an address or behind it that is shared and of a file


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
    hidden: int = 0  # of those in `unseen`, the ones that may be an ordinary user's; not 0 if no process could be seen
    restless: tuple[int, ...] = ()  # those of ordinary users that opened or closed files during each look at them

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

    Blocks for about `seconds` at most. A process that ends meanwhile has nothing open. One that opens or gets a node
    later is not seen.
    """
    if not numbers and not majors:
        return OpenersSeen()
    wanted = _Wanted(frozenset(numbers), frozenset(majors))
    found: dict[Number, list[Opener]] = {}
    looked_at = unseen = hidden = 0
    restless = []
    every = EveryProcess(seconds, proc)
    nodes = _Nodes()
    try:
        for pid, process in every.opened():
            try:
                opened = _opened(process, wanted, nodes, every.end)
                opened |= _of_threads(process, pid, wanted, nodes, every.end)
            except _RestlessError:
                opened = set()
                restless += [pid] * (_uid(process) > 0)
            except OSError as error:
                if error.errno not in ENDED:
                    unseen += 1
                    hidden += _uid(process) != 0
                continue
            looked_at += 1
            if opened:
                opener = _opener(process, pid, nodes)
                for number in opened:
                    found.setdefault(number, []).append(opener)
    except OSError as error:
        return OpenersSeen(trouble=f"{proc}: {error.strerror or error}", hidden=1)
    unseen, hidden = unseen + every.left, hidden + every.left
    return OpenersSeen(_made(found), looked_at, unseen, every.trouble or _blind(proc), hidden, tuple(restless))


def _made(found: Mapping[Number, Sequence[Opener]]) -> dict[Number, tuple[Opener, ...]]:
    return {number: tuple(openers) for number, openers in found.items()}


def is_expected(opener: Opener, patterns: Collection[str]) -> bool:
    """Tell if one of `patterns` (fnmatch) matches its systemd unit, or a program that only root can change."""
    from fnmatch import fnmatchcase  # here: most looks find nothing

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


def _opened(process: int, wanted: _Wanted, nodes: _Nodes, end: float) -> set[Number]:
    """Return the `wanted` nodes that a thread has open; none if it has ended.

    Raises OSError if they can't be seen, TimeoutError after `end` (time.monotonic), and _RestlessError for a process
    that opened or closed files during each look.
    """
    found: set[Number] = set()
    try:
        for _round in range(ROUNDS):
            if _add_opened(process, wanted, nodes, found, end):
                return found
    except OSError as error:
        if error.errno not in ENDED:
            raise
        return found
    if not found:
        raise _RestlessError
    return found


def _add_opened(process: int, wanted: _Wanted, nodes: _Nodes, found: set[Number], end: float) -> bool:
    """Add the `wanted` nodes that a thread has open to `found`; return False if some file was closed meanwhile.

    Raises OSError if it has ended or can't be looked at, and TimeoutError after `end`.
    """
    folder = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    try:
        names = os.listdir(folder)
        settled = os.fstat(folder).st_size in (0, len(names))  # 0: an older kernel
        for name in names:
            try:
                number = nodes.number(folder, name)
            except PermissionError:
                raise
            except OSError as error:
                settled = settled and error.errno != errno.ENOENT  # another error is one of the file's file system
                continue
            if number and wanted.has(number):
                found.add(number)
    finally:
        os.close(folder)
    for mapping in _mappings(process, nodes, end):
        try:
            number = nodes.mapped(process, *mapping)
        except FileNotFoundError:
            settled = False
            continue
        if number and wanted.has(number):
            found.add(number)
    return settled


def _of_threads(process: int, pid: int, wanted: _Wanted, nodes: _Nodes, end: float) -> set[Number]:
    """Return the `wanted` nodes that threads have open by other descriptor tables than the first thread.

    Raises OSError as `_opened`, and TimeoutError after `end` (time.monotonic).
    """
    found: set[Number] = set()
    with closing(other_tables(process, pid)) as folders:
        for folder in folders:
            if time.monotonic() > end:
                raise TimeoutError
            found |= _opened(folder, wanted, nodes, end)
    return found


def other_tables(process: int, pid: int) -> Generator[int, None, None]:
    """Yield the folder of a thread in /proc, open, for each descriptor table but that of the first thread.

    It is /proc/TID, which no list of /proc has: there a thread has map_files, as it has not in /proc/PID/task/TID.
    `process`: the open folder /proc/PID, which the caller has read. Raises OSError, TimeoutError if new threads do not
    end.
    """
    if os.stat("task", dir_fd=process).st_nlink <= 3:  # the first thread alone
        return
    tables = []  # a thread of each table
    with suppress(FileNotFoundError):
        os.readlink("exe", dir_fd=process)
        tables.append(pid)  # the first thread lives: one that ends has lost its mappings before its descriptors
    known = {pid}
    for _round in range(ROUNDS):  # a thread may make another one with a copy of its table, and end
        settled = True
        for thread in {*_threads(process)} - known:
            known.add(thread)
            if any(_same_table(one, thread) for one in tables):
                continue
            settled = False
            tables.append(thread)
            try:
                folder = os.open(f"../{thread}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
            except FileNotFoundError:
                continue  # it has ended
            try:
                yield folder
            finally:
                os.close(folder)
        if settled:
            return
    raise TimeoutError


def _threads(process: int) -> list[int]:
    folder = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    try:
        return [int(name) for name in os.listdir(folder)]
    finally:
        os.close(folder)


def _same_table(one: int, other: int) -> bool:
    """Tell if two threads have the same descriptor table. False if the kernel does not say it."""
    return _KCMP >= 0 and _LIBC.syscall(_KCMP, one, other, _KCMP_FILES, 0, 0) == 0


def _mappings(process: int, nodes: _Nodes, end: float) -> Iterator[tuple[bytes, bytes, int, bytes]]:
    """Yield the shared mappings of files of a process, as `shared_files` does. Raises OSError, TimeoutError."""
    file = os.open("maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        text = b""
        more = _may_share(file, nodes)
        while more:
            batch = _content(file, BATCH)
            more = bool(batch)
            text += batch
            whole = text.rfind(b"\n") + 1 if more else len(text)
            yield from set(shared_files(text[:whole]))
            text = text[whole:]
            if time.monotonic() > end:
                raise TimeoutError
    finally:
        os.close(file)


def _may_share(maps: int, nodes: _Nodes) -> bool:
    """Tell if the process of this /proc/PID/maps may share a mapping of more than files that `nodes` knows as files.

    Linux 6.11 answers that without the text of all mappings, which costs the kernel more than all else in a look. Most
    processes share the cache of iconv(3) or nothing.
    """
    address = 0
    for _mapping in range(QUERIES):
        query = bytearray(_QUERY.pack(_QUERY.size, _SHARED_FILE, address, *[0] * 12))
        try:
            fcntl.ioctl(maps, _PROCMAP_QUERY, query)
        except OSError as error:
            return error.errno != errno.ENOENT
        found = _QUERY.unpack(query)
        address, inode, major, minor = found[4], *found[8:11]
        if not nodes.is_file(b"%02x:%02x" % (major, minor), inode):
            return True
    return True


def shared_files(maps: bytes) -> Iterator[tuple[bytes, bytes, int, bytes]]:
    """Yield the shared mappings of files: range, device and inode of the file system, path (proc_pid_maps(5)).

    Most processes have few of them among many lines, so this reads only lines that have the end of such permissions.
    """
    for permissions in (b"-s ", b"xs "):
        at = maps.find(permissions)
        while at >= 0:
            end = maps.find(b"\n", at)
            end = end if end >= 0 else len(maps)
            fields = maps[maps.rfind(b"\n", 0, at) + 1 : end].split(None, 5)
            if len(fields) == 6 and fields[1].endswith(b"s") and fields[4] != b"0" and fields[5].startswith(b"/"):
                yield fields[0], fields[3], int(fields[4]), fields[5]
            at = maps.find(permissions, end)


class _RestlessError(Exception):
    """A process that opened or closed files during each look, and was not seen to have a wanted node open."""


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
        self._statx = _LIBC.statx
        self._buffer = ctypes.create_string_buffer(256)
        self._known: dict[tuple[bytes, int], Optional[Number]] = {}

    def number(self, folder: int, name: str) -> Optional[Number]:
        """Return the numbers of the device node to which a link leads, or None for another file. Raises OSError."""
        mode = self._ask(folder, name.encode())
        return self._answer().number if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else None

    def mapped(self, process: int, place: bytes, device: bytes, inode: int, path: bytes) -> Optional[Number]:
        """Return the numbers of the file that is mapped at `place`, or None if it is unknown or not a device node.

        Raises FileNotFoundError if the process has ended the mapping.
        """
        key = (device, inode)
        if key not in self._known:
            try:
                self._known[key] = self.stat(process, b"map_files/" + place).number
            except PermissionError:  # it needs CAP_CHECKPOINT_RESTORE
                return self._by_path(process, device, inode, path)
        return self._known[key]

    def _by_path(self, process: int, device: bytes, inode: int, path: bytes) -> Optional[Number]:
        """Return the numbers of a mapped file, if its path is below /dev and leads to it still: others are unknown.

        Another path may lead to a server, for which we would wait.
        """
        if not path.startswith(b"/dev/"):
            return None
        try:
            there = self.stat(process, b"root" + path)
        except OSError:
            return None  # not remembered: the path may lead to the file for another process
        if there.inode != inode or b"%02x:%02x" % there.device != device:
            return None
        self._known[device, inode] = there.number
        return there.number

    def is_file(self, device: bytes, inode: int) -> bool:
        """Tell if this mapped file was seen before, and is not a device node."""
        return self._known.get((device, inode), ("", 0, 0)) is None

    def stat(self, folder: int, name: bytes) -> _FileStat:
        """Return the statx(2) of a file without a sync. Raises OSError."""
        self._ask(folder, name)
        return self._answer()

    def _ask(self, folder: int, name: bytes) -> int:
        """Call statx(2) and return the file's mode: most files are not device nodes. Raises OSError."""
        if self._statx(folder, name, _AT_STATX_DONT_SYNC | _AT_NO_AUTOMOUNT, _BASIC, self._buffer):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        mode: int = _MODE.unpack_from(self._buffer, 28)[0]
        return mode

    def _answer(self) -> _FileStat:
        """Return all of what `_ask` found."""
        uid, mode, inode = _HEAD.unpack_from(self._buffer, 20)
        major, minor, *own = _NUMBERS.unpack_from(self._buffer, 128)
        return _FileStat(mode, uid, inode, (major, minor), (own[0], own[1]))


def _opener(process: int, pid: int, nodes: _Nodes) -> Opener:
    """Describe a process that has a node open; leaves out facts that can't be read."""
    program, of_root, uid, group, began = "", False, _uid(process), Group(), 0.0
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


def _uid(process: int) -> int:
    """Return the real user id of a process; -1 if it has ended."""
    with suppress(OSError, IndexError):
        return user_ids(process)[0]
    return -1


def _text(process: int, name: str, most: int) -> str:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        return _content(file, most).decode(errors="surrogateescape")
    finally:
        os.close(file)


def _content(file: int, most: int) -> bytes:
    """Return the next `most` bytes of an open file, without the cost of a file object. Raises OSError."""
    pieces, left = [], most
    while left > 0 and (piece := os.read(file, min(CHUNK, left))):
        left -= len(piece)
        pieces.append(piece)
    return b"".join(pieces)


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
