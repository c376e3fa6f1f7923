# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the daemon tells the service manager, and that it gives way where its sandbox is of yesterday.

On a host with a real systemd: extensions/molecule/device_plugin, files/features.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import daemon
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import watchdog
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"NOTIFY_SOCKET": "/run/systemd/notify"}, None),
        ({"WATCHDOG_USEC": "30000000"}, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),  # another process
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000"}, ("/n", 10.0)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, ("\0n", 10.0)),
    ],
)
def test_who_waits_for_a_word(environment, expected):
    variables = {"PATH": "/bin", **environment}
    assert watchdog.asked_for(variables) == expected
    assert variables == {"PATH": "/bin"}  # children have nothing to say


@pytest.mark.parametrize("address", ["path", "abstract"])
def test_the_word(tmp_path, address):
    where = str(tmp_path / "notify") if address == "path" else f"\0fleet-cdi-test-{os.getpid()}"

    async def heard() -> list[bytes]:
        task = asyncio.ensure_future(watchdog.Watchdog(where, 0.01).feed())
        words = [await asyncio.get_running_loop().sock_recv(manager, 100) for _time in range(3)]
        task.cancel()
        return words

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(where)
        manager.setblocking(False)
        assert asyncio.run(heard()) == [b"WATCHDOG=1"] * 3


def test_a_host_that_loads_the_libraries_slowly_is_not_frozen(tmp_path, monkeypatch):
    where = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setattr(daemon, "LIBRARIES", ("json", "csv", "no.such.library"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(where)
        manager.setblocking(False)
        with pytest.raises(CdiError, match="Install python3-grpcio"):
            daemon.run(str(tmp_path / "none.json"))
        words = []
        with suppress(BlockingIOError):
            while True:
                words.append(manager.recv(100))
    assert words == [b"WATCHDOG=1"] * len(daemon.LIBRARIES), "a word before each library"


def test_a_manager_that_is_gone_ends_nothing(tmp_path):
    async def fed() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(watchdog.Watchdog(str(tmp_path / "none"), 0.01).feed(), 0.1)

    asyncio.run(fed())


def test_a_directory_that_came_to_be_read_only_ends_the_daemon(tmp_path, monkeypatch):
    async def ended() -> tuple[bool, str]:
        found = daemon.Daemon(str(tmp_path / "none.json"), "a")
        found._writable = frozenset({"/here", "/there"})
        found._look_at_directories()
        before = found.end.is_set()
        monkeypatch.setattr(daemon, "_is_read_only", lambda path: path == "/there")
        found._look_at_directories()
        assert found.end.is_set()
        return before, str(found._defect)

    before, why = asyncio.run(ended())
    assert not before and why == "/there: was made anew, and is read-only for this process; it starts again"


def test_which_directories_are_read_only(tmp_path):
    assert not daemon._is_read_only(str(tmp_path)) and not daemon._is_read_only(str(tmp_path / "missing"))
    assert daemon._is_read_only("/proc/self/ns") == bool(os.statvfs("/proc").f_flag & os.ST_RDONLY)
