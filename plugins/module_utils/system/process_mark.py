# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell a process from every other one of this host, also from a later one with its number. proc(5).

cdi-hook imports this, so it imports next to nothing.
"""

from __future__ import annotations

import os
import zlib

CLOSED = ".closed"  # file in a directory of marks: no mark may be added any more


def process_mark(pid: int) -> str:
    """Return the mark of a process that runs, as a process of our pid namespace sees it.

    Raises ProcessLookupError if it has ended, OSError if /proc can't be read.
    """
    try:
        # The third field is the state, the 22nd the start time; the second, the name, may have blanks and parentheses.
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except FileNotFoundError:
        fields = ["Z"]
    if not fields or fields[0] in ("Z", "X"):
        raise ProcessLookupError(3, "No such process", f"/proc/{pid}")
    return mark(boot_id(), pid, int(fields[19]), os.readlink("/proc/self/ns/pid"))


def mark(boot: str, pid: int, start: int, namespace: str) -> str:
    """Return a line with these words and their checksum. `start`: ticks since the boot. `namespace`: of the pid."""
    words = f"{boot} {pid} {start} {namespace}"
    return f"{words} {zlib.crc32(words.encode()):08x}\n"


def is_mark(line: str) -> bool:
    """Return True if `mark` has made the line, by its checksum."""
    words = line.split(" ")
    return len(words) == 5 and words[4] == f"{zlib.crc32(' '.join(words[:4]).encode()):08x}\n"


def runs(line: str) -> bool:
    """Return True if the process with this mark has not ended.

    Also if this can't be told: in another pid namespace, if /proc hides processes (hidepid, ProtectProc), or if the
    line has no mark.
    """
    if not is_mark(line):
        return True
    boot, pid, _start, namespace, _checksum = line.split(" ")
    if boot != boot_id():
        return False
    try:
        return namespace != os.readlink("/proc/self/ns/pid") or process_mark(int(pid)) == line
    except ProcessLookupError:
        return not os.path.exists("/proc/1/stat")
    except (OSError, ValueError):
        return True


def boot_id() -> str:
    """Return the kernel's id of this boot. Raises OSError."""
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _read(path: str) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 4096).decode("ascii", "replace")
    except ProcessLookupError:  # it ended between the two calls
        return ""
    finally:
        os.close(handle)
