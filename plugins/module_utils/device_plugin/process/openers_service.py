# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the openers of device nodes in a separate process, so that the daemon does not need the privilege.

To see openers, a process needs CAP_SYS_PTRACE, and with that it can do everything that root can. The daemon reads specs
of others and answers on the network. So systemd starts another process, in its own sandbox, for each connection to a
socket (converge/services/openers_unit.py). A question is one line of JSON with device numbers; the answer is one line.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, BinaryIO, Optional

from ...records import CdiError
from ...system import openers
from ...system.control_group import Group
from ...system.openers import Number, Opener, OpenersSeen

PATH = "/run/fleet-cdi-openers.socket"
PATIENCE = 5.0  # seconds for an answer in addition to the look: the process has to start
LONGEST = 8 << 20  # bytes of a question: the numbers of 300,000 nodes

Look = Callable[[Collection[Number]], OpenersSeen]


def answer_questions(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer questions until the connection closes. Raises CdiError for an invalid question."""
    while line := questions.readline(LONGEST):
        seen = openers.look(_numbers(line))
        found = [[*number, each] for number, each in seen.openers.items()]
        try:
            answers.write(json.dumps([found, *seen[1:4]]).encode() + b"\n")
            answers.flush()
        except BrokenPipeError:
            return


def _numbers(line: bytes) -> list[Number]:
    numbers: list[Number] = []
    try:
        for sort, major, minor in json.loads(line):
            if sort not in ("c", "b") or not type(major) is type(minor) is int:
                raise ValueError
            numbers.append((sort, major, minor))
    except (ValueError, TypeError, RecursionError):
        start = line[:40].decode(errors="replace")
        raise CdiError(
            f"plugin openers: found {start!r}; expected one line of JSON as [['c', 195, 0]], of {LONGEST} bytes at "
            "most. The device plugin asks; `fleet-cdi grants list --open` is for people"
        ) from None
    return numbers


class Channel:
    """Ask that process through the socket at `path`; without the socket, look directly. Threads may share a Channel."""

    def __init__(self, path: str = PATH) -> None:
        self._path = path
        self._channel: Optional[socket.socket] = None
        self._lines: Any = None
        self._lock = threading.Lock()

    def look(self, numbers: Collection[Number]) -> OpenersSeen:
        """Do the same as openers.look. Blocks for some seconds at most. A failure is in `trouble` of the result."""
        with self._lock:
            if self._channel is not None:
                try:
                    return self._ask(self._channel, numbers)
                except socket.timeout as error:
                    return self._failed(error)
                except (OSError, ValueError):
                    self.close()  # that process has ended; connect to a new one
            if not os.path.lexists(self._path):
                return openers.look(numbers)
            try:
                return self._ask(self.connect(), numbers)
            except (OSError, ValueError) as error:
                return self._failed(error)

    def connect(self) -> socket.socket:
        """Connect to the socket. Raises OSError."""
        self._channel = channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(openers.SECONDS + PATIENCE)
        channel.connect(self._path)
        self._lines = channel.makefile("rb")
        return channel

    def _ask(self, channel: socket.socket, numbers: Collection[Number]) -> OpenersSeen:
        """Ask one question. Raises OSError, ValueError."""
        channel.sendall(json.dumps(sorted(numbers)).encode() + b"\n")
        return _seen(json.loads(self._lines.readline()))

    def _failed(self, error: Exception) -> OpenersSeen:
        """Close the connection, so that a late answer is not taken for the next one. Return the trouble as a result."""
        self.close()
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
        return OpenersSeen(trouble=f"{self._path}: {why}; `journalctl -u 'fleet-cdi-openers@*'` may say why")

    def close(self) -> None:
        """Close the connection; the other process then ends."""
        for one in filter(None, (self._lines, self._channel)):
            with suppress(OSError):
                one.close()
        self._lines = self._channel = None


def _seen(document: Any) -> OpenersSeen:
    """Decode an answer. Raises ValueError."""
    found, processes, unseen, trouble = document
    made = {
        (sort, major, minor): tuple(
            Opener(pid, command, uid, Group(*group), *rest) for pid, command, uid, group, *rest in each
        )
        for sort, major, minor, each in found
    }
    return OpenersSeen(made, processes, unseen, trouble)
