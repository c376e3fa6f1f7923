# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that looks at all others, so that the daemon need not have the right to. Private API of fleet.cdi.

Who has nodes open can be told with CAP_SYS_PTRACE alone, and with that a process can do whatever root can. The daemon
reads specs of others and answers on the network, so the service gives these capabilities to a child that only looks:
the daemon makes it before anything else, and gives them up. What it asks are device numbers.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterable, MutableMapping
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.plugins.module_utils.system.control_group import Group
from ansible_collections.fleet.cdi.plugins.module_utils.system.openers import Number, Opener, Seen

VARIABLE = "FLEET_CDI_GIVE_UP"  # the unit names in it what the daemon gives up; without it there is no child
NUMBERS = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19}  # linux/capability.h
PATIENCE = 3.0  # seconds that an answer may take besides the look

_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_SETS = struct.Struct("=6I")  # effective, permitted, inheritable: the lower 32 bits of each, then the higher ones

Look = Callable[[Collection[Number]], Seen]


def start(environment: MutableMapping[str, str]) -> Look:
    """How to look from now on. To be called before there are threads. Raises CdiError, if rights can't be given up."""
    names = environment.pop(VARIABLE, "").split()
    if not names:
        return openers.look
    ours, theirs = socket.socketpair()
    if not os.fork():
        try:
            ours.close()
            serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    give_up(names)
    return Channel(ours).look


def serve(channel: socket.socket) -> None:
    """Answer questions until nobody is left to ask one."""
    with channel.makefile("rwb") as lines:
        for line in lines:
            seen = openers.look([(sort, major, minor) for sort, major, minor in json.loads(line)])
            lines.write(json.dumps([[[*number, found] for number, found in seen.openers.items()], *seen[1:]]).encode())
            lines.write(b"\n")
            lines.flush()


class Channel:
    """The daemon's end."""

    def __init__(self, channel: socket.socket) -> None:
        channel.settimeout(openers.SECONDS + PATIENCE)
        self._channel = channel
        self._lines: Any = channel.makefile("rwb")
        self._lock = threading.Lock()

    def look(self, numbers: Collection[Number]) -> Seen:
        """As openers.look. Once it did not answer, it is asked no more: an answer would be that to another question."""
        with self._lock:
            try:
                if self._lines is None:
                    raise OSError
                self._lines.write(json.dumps(sorted(numbers)).encode() + b"\n")
                self._lines.flush()
                return _seen(json.loads(self._lines.readline()))
            except (OSError, ValueError):
                self._lines = None
                self._channel.close()
                return Seen(trouble="the process that looks at the others has ended; restart the service")


def _seen(document: Any) -> Seen:
    found, processes, unseen, trouble = document
    made = {
        (sort, major, minor): tuple(
            Opener(pid, command, uid, Group(*group), of_root) for pid, command, uid, group, of_root in each
        )
        for sort, major, minor, each in found
    }
    return Seen(made, processes, unseen, trouble)


def give_up(names: Iterable[str]) -> None:
    """Be without these capabilities from now on. Raises CdiError."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION, 0), 8)
    sets = ctypes.create_string_buffer(_SETS.size)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(header, sets) == 0:
        words = list(_SETS.unpack(sets.raw))
        for bit in (NUMBERS[name] for name in names if name in NUMBERS):
            for index in range(3):
                words[3 * (bit // 32) + index] &= ~(1 << bit % 32)
        if libc.capset(header, ctypes.create_string_buffer(_SETS.pack(*words), _SETS.size)) == 0:
            return
    raise CdiError(f"{' '.join(names)}: can't be given up: {os.strerror(ctypes.get_errno())}")
