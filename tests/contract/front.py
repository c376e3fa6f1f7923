# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A socket file in front of a gRPC server, which behaves as that of a Go program.

gRPC's own server removes its socket file when it ends. A killed kubelet leaves it, refusing connections, and tests need
one that accepts and says nothing: so the file is a plain listener that hands the bytes on to the server's abstract
socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

WORKERS = 16  # a Go server has a goroutine for each call


class Front:
    """One gRPC server behind one socket file."""

    def __init__(self, path: str, handlers: list[Any]) -> None:
        self.path = path
        self.stalled = False  # connections are accepted, and get no answer
        self.ignored = 0  # how many did not
        self._name = f"fleet-cdi-test-{uuid.uuid4()}"
        self._server = grpc.server(ThreadPoolExecutor(WORKERS))
        self._server.add_generic_rpc_handlers(handlers)
        self._server.add_insecure_port(f"unix-abstract:{self._name}")
        self._server.start()
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self, unlink: bool) -> None:
        """End at once, as a process does; a graceful one unlinks its socket file."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._server.stop(None)
        if unlink:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)

    def _accept(self) -> None:
        while True:
            try:
                caller, _address = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._ends.add(caller)
            if self.stalled:
                self.ignored += 1
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(f"\0{self._name}")
            except OSError:
                caller.close()
                continue
            with self._lock:
                self._ends.add(server)
            for source, target in ((caller, server), (server, caller)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._ends.discard(source)
        source.close()
