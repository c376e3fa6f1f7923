# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the probes of a pod are told, beside the metrics."""

from __future__ import annotations

import asyncio

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import metrics


def asked(path: str, lacking: str) -> tuple[bytes, bytes]:
    """Status line and body."""

    async def scene() -> bytes:
        server = await metrics.serve("127.0.0.1:0", lambda: "the text", lambda: lacking)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        try:
            return await reader.read()
        finally:
            writer.close()
            server.close()

    answer = asyncio.run(scene())
    return answer.split(b"\r\n")[0].partition(b" ")[2], answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("path", "lacking", "status", "body"),
    [
        ("/healthz", "", b"200 OK", b"ok\n"),
        ("/healthz", "vendor.com/gpu: registering", b"200 OK", b"ok\n"),
        ("/readyz", "", b"200 OK", b"ok\n"),
        ("/readyz?verbose", "", b"200 OK", b"ok\n"),
        (
            "/readyz",
            "vendor.com/gpu: registering",
            b"503 Service Unavailable",
            b"vendor.com/gpu: registering\n",
        ),
        ("/metrics", "vendor.com/gpu: registering", b"200 OK", b"the text"),
    ],
)
def test_probes(path: str, lacking: str, status: bytes, body: bytes) -> None:
    assert asked(path, lacking) == (status, body)
