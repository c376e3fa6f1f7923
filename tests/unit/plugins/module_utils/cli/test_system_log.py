# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines in the log of a host, read by a socket as syslogd has one."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import system_log

HEAD = rf"<29>[A-Z][a-z]{{2}} [ 123]\d \d\d:\d\d:\d\d fleet-cdi\[{os.getpid()}\]: "  # RFC 3164, 4.1


@pytest.fixture
def log(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "log"))
        found.setblocking(False)
        yield found


def lines(log: socket.socket) -> list[str]:
    """Return what was written so far."""
    found = []
    while True:
        try:
            found.append(log.recv(65536).decode())
        except BlockingIOError:
            return found


def test_each_line_is_a_message(log: socket.socket) -> None:
    system_log.write_log(["made: /etc/cdi/a.json", "b\n<0>kernel: forged"], log.getsockname())
    first, second = lines(log)
    assert re.fullmatch(HEAD + "made: /etc/cdi/a.json", first)
    assert re.fullmatch(HEAD + r"b\\n<0>kernel: forged", second)


def test_a_line_has_an_end(log: socket.socket) -> None:
    system_log.write_log(["x" * 5000], log.getsockname())
    (line,) = lines(log)
    assert len(line) < 1100 and line.endswith("xxx...")


def test_a_log_that_takes_nothing_is_not_waited_for(log: socket.socket) -> None:
    """A datagram socket is full after some messages (/proc/sys/net/unix/max_dgram_qlen)."""
    system_log.write_log(map(str, range(10_000)), log.getsockname())
    assert 0 < len(lines(log)) < 10_000


@pytest.mark.parametrize("name", ["absent", "file"])
def test_a_host_without_a_log_goes_on(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    system_log.write_log(["a"], str(tmp_path / name))


def test_the_output_of_a_unit_is_known(tmp_path: Path) -> None:
    with open(tmp_path / "stream", "w", encoding="utf-8") as file:
        found = os.fstat(file.fileno())
        assert system_log.is_journal(file.fileno(), f"{found.st_dev}:{found.st_ino}")
        assert not system_log.is_journal(file.fileno(), f"{found.st_dev}:{found.st_ino + 1}")
        assert not system_log.is_journal(file.fileno(), "")
    assert not system_log.is_journal(10_000, "1:2")
