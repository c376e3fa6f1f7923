# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look at who has devices open costs, beside the barest walk over the same descriptors: list and readlink.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}, of processor time. Each of the
processes has 50 descriptors, of files, sockets and pipes as daemons have them, and 200 mappings. Needs root.

    openers.py [PROCESSES]     1000 by default
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "build/pythonpath")]

from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils.system import openers

NUMBERS = [("c", 195, minor) for minor in range(16)]
FILES, SOCKETS, PIPES, MAPPINGS = 12, 18, 10, 200
ROUNDS = 5


def process() -> int:
    """A process that waits."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.closerange(3, 1000)
        files = [os.open(sys.executable, os.O_RDONLY) for _one in range(FILES - 3)]
        sockets = [socket.socket(socket.AF_UNIX) for _one in range(SOCKETS)]
        pipes = [os.pipe() for _one in range(PIPES)]
        size = os.sysconf("SC_PAGE_SIZE")
        protections = (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_EXEC)  # alternating, or the kernel would merge them
        maps = [mmap.mmap(files[0], size, mmap.MAP_PRIVATE, protections[one % 2]) for one in range(MAPPINGS)]
        while maps and pipes and sockets:
            signal.pause()
    finally:
        os._exit(1)


def walk() -> None:
    """The floor: every descriptor of every process, and where its link leads."""
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with suppress(OSError):
                for name in os.listdir(f"/proc/{pid}/fd"):
                    with suppress(OSError):
                        os.readlink(f"/proc/{pid}/fd/{name}")


def fastest(call: Callable[[], object]) -> float:
    """Milliseconds of processor time of the fastest of some calls."""
    best = float("inf")
    for _round in range(ROUNDS):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best * 1000


def main() -> None:
    """Measure."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    pids: list[int] = []
    try:
        before = fastest(walk)
        line("look at the processes of this machine", "ms", fastest(lambda: openers.look(NUMBERS, seconds=60)), before)
        pids += [process() for _one in range(number)]
        time.sleep(1)
        floor = fastest(walk)
        seen = openers.look(NUMBERS, seconds=60)
        line("processes", "processes", seen.processes)
        line(f"look at {number} more", "ms", fastest(lambda: openers.look(NUMBERS, seconds=60)), floor)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
