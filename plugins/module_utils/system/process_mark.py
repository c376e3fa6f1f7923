# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell a process from every other one of this host, also from a later one with its number. proc(5).

cdi-hook imports this, so it imports next to nothing.
"""

from __future__ import annotations

import os

CLOSED = ".closed"  # file in a directory of marks: no mark may be added any more


def process_mark(pid: int) -> str:
    """Return the boot, number and start time (in ticks since the boot) of a process, and our pid namespace, as a line.

    Raises ProcessLookupError if it has ended, OSError if /proc can't be read.
    """
    try:
        # The third field is the state, the 22nd the start time; the second, the name, may have blanks and parentheses.
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except FileNotFoundError:
        fields = ["Z"]
    if not fields or fields[0] in ("Z", "X"):
        raise ProcessLookupError(3, "No such process", f"/proc/{pid}")
    return f"{_boot()} {pid} {fields[19]} {os.readlink('/proc/self/ns/pid')}\n"


def runs(mark: str) -> bool:
    """Return True if the process with this mark has not ended.

    Also if this can't be told: in another pid namespace, or if /proc hides processes (hidepid, ProtectProc).
    """
    words = mark.split()
    if len(words) != 4 or not words[1].isdigit() or words[0] != _boot():
        return False
    try:
        return words[3] != os.readlink("/proc/self/ns/pid") or process_mark(int(words[1])) == mark
    except ProcessLookupError:
        return not os.path.exists("/proc/1/stat")
    except (OSError, ValueError):
        return True


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _read(path: str) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 4096).decode("ascii", "replace")
    except ProcessLookupError:  # it ended between the two calls
        return ""
    finally:
        os.close(handle)
