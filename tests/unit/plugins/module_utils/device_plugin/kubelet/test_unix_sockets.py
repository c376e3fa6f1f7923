# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sockets: their names, which are stale, whether a process listens at one, and calls to it. All sockets are real."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import unix_sockets
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A relative path, which is short however long that of the directory is."""
    monkeypatch.chdir(tmp_path)
    return "kubelet.sock"


def test_nobody_listens_where_nothing_is(place):
    assert not unix_sockets.listening(place)


def test_nobody_listens_at_what_an_ended_process_left(place):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
    assert os.path.exists(place) and not unix_sockets.listening(place)


def test_somebody_listens(place):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        assert unix_sockets.listening(place)


def test_nobody_listens_at_a_path_that_no_socket_can_have(tmp_path):
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    assert not unix_sockets.listening(str(directory / "kubelet.sock"))


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, GOAWAY = 1, 4, 7  # RFC 9113, section 6


class Ending:
    """An HTTP/2 peer that ends at every call, and says that it did nothing. `asked`: how many it saw."""

    def __init__(self, path):
        self.asked = 0
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client = self._server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client):
        with client, client.makefile("rwb", buffering=0) as peer:
            peer.read(len(PREFACE))
            peer.write(struct.pack(">BHBBI", 0, 0, SETTINGS, 0, 0))
            while head := peer.read(9):
                high, low, kind, _flags, _stream = struct.unpack(">BHBBI", head)
                peer.read(high << 16 | low)
                if kind == HEADERS:
                    self.asked += 1
                    peer.write(struct.pack(">BHBBIII", 0, 8, GOAWAY, 0, 0, 0, 0))
                    return

    def close(self):
        self._server.close()


def test_a_call_is_one_try(place):
    """gRPC's own tries again have no end where the peer is never reached: who calls decides."""
    peer = Ending(place)
    with pytest.raises(grpc.RpcError):
        asyncio.run(unix_sockets.options(place, 5))
    peer.close()
    assert peer.asked == 1


# Prints how many connections calls that fail leave, as long as Python collects no cycles: it may not for a day.
FAILING = """
import asyncio, gc, os
import grpc.aio
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api, podresources, unix_sockets

def connections():
    return sum(os.path.realpath(f"/proc/self/fd/{fd}").startswith("/proc/") for fd in os.listdir("/proc/self/fd"))

async def call(kind):
    try:
        if kind == "options":
            await unix_sockets.options("kubelet.sock", 5)
        elif kind == "register":
            await unix_sockets.register("kubelet.sock", api.v1beta1.RegisterRequest(), 5)
        else:
            await podresources.in_use("kubelet.sock", 5)
    except (grpc.RpcError, podresources.Unavailable):
        return
    raise SystemExit("it answers")

async def scene():
    server = grpc.aio.server()  # it knows no method
    server.add_insecure_port("unix:kubelet.sock")
    await server.start()
    for kind in ("options", "register", "pods"):
        await call(kind)
        gc.collect()
        before = connections()
        gc.disable()
        for _time in range(20):
            await call(kind)
        for _turn in range(100):
            if connections() <= before:
                break
            await asyncio.sleep(0.05)
        print(kind, max(connections() - before, 0))
        gc.enable()
    await server.stop(0)

asyncio.run(scene())
"""


@pytest.mark.parametrize(
    "python", [sys.executable, pytest.param("/usr/bin/python3", marks=pytest.mark.counterpart("python3-grpcio"))]
)
@pytest.mark.usefixtures("place")
def test_a_call_that_fails_leaves_no_connection(python):
    """Errors that hold themselves held it, until Python looked for such: one for each call to an old kubelet."""
    paths = os.pathsep.join(path for path in sys.path if path.endswith(("build/pythonpath", "/site")))
    environment = {**os.environ, "PYTHONPATH": paths, "GRPC_VERBOSITY": "NONE"}
    found = subprocess.run(
        [python, "-c", FAILING], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert found.stdout.split() == ["options", "0", "register", "0", "pods", "0"]


@given(
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,60}[A-Za-z0-9])?", fullmatch=True),
    st.integers(1, 60),
)
def test_a_socket_is_a_path_that_the_kernel_takes_and_no_hidden_file(resource: str, length: int) -> None:
    directory = "/" + "d" * length
    name = unix_sockets.name(resource, "0123abcd", directory)
    assert len(os.path.join(directory, f".{name}").encode()) <= unix_sockets.LONGEST_PATH
    assert name.startswith(unix_sockets.OWN)
    assert "/" not in name
    assert name != unix_sockets.name(resource, "0123abce", directory)
    assert name != unix_sockets.name(resource + "x", "0123abcd", directory)


def test_a_directory_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(CdiError, match="choose a shorter directory"):
        unix_sockets.name("acme.com/widget", "0123abcd", "/" + "d" * 90)


def listener(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(path))
    found.listen()
    return found


def test_only_our_own_dead_sockets_are_removed(tmp_path: Path) -> None:
    dead = ["fleet-cdi-a.sock", ".fleet-cdi-that-never-served.sock"]
    for name in (*dead, "nvidia-gpu.sock", ".other.sock", "kubelet.sock"):
        listener(tmp_path / name).close()
    alive = listener(tmp_path / "fleet-cdi-b.sock")
    (tmp_path / "fleet-cdi-file").write_text("x")
    (tmp_path / "fleet-cdi-directory").mkdir()
    assert unix_sockets.remove_stale(str(tmp_path)) == sorted(str(tmp_path / name) for name in dead)
    left = {".other.sock", "fleet-cdi-b.sock", "fleet-cdi-directory", "fleet-cdi-file", "kubelet.sock"}
    assert set(os.listdir(tmp_path)) == {*left, "nvidia-gpu.sock"}
    alive.close()
