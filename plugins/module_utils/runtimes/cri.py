# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One question of the Container Runtime Interface, runtime.v1.RuntimeService/Status, with nothing but the standard
library: gRPC is HTTP/2 with a fixed head before each message, and one call needs little of either.

Hosts that only run containers have no python3-grpcio. Source: RFC 9113 (frames), RFC 7541 (literal header fields
without indexing), grpc/doc/PROTOCOL-HTTP2.md, k8s.io/cri-api pkg/apis/runtime/v1/api.proto.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK, PADDED = 1, 4, 1, 8
WINDOW = 1 << 24  # bytes that the answer may have
STREAM = 1

# StatusRequest.verbose (1) = true; StatusResponse.info (2) is a map: entries with key (1) and value (2).
VERBOSE = b"\x08\x01"
INFO, KEY, VALUE = 2, 1, 2


def status(path: str, seconds: float) -> dict[str, str]:
    """What the runtime that listens at `path` tells of itself: name -> text, JSON for most.

    Raises OSError without an answer in time, ValueError for an unusable answer, as of a containerd whose CRI plugin
    is off.
    """
    deadline = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(seconds)
        channel.connect(os.path.realpath(path))
        channel.sendall(_request("/runtime.v1.RuntimeService/Status", VERBOSE))
        answer = _answer(channel, deadline)
    if len(answer) < 5 or answer[0] != 0 or int.from_bytes(answer[1:5], "big") != len(answer) - 5:
        raise ValueError("it answers no status of its CRI")
    found = {}
    for number, entry in _fields(answer[5:]):
        if number == INFO:
            pair = dict(_fields(entry))
            found[pair.get(KEY, b"").decode()] = pair.get(VALUE, b"").decode()
    return found


def _request(method: str, message: bytes) -> bytes:
    pairs = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    )
    block = b"".join(b"\x00" + _literal(name) + _literal(text) for name, text in pairs)
    window = b"\x00\x04" + WINDOW.to_bytes(4, "big")  # SETTINGS_INITIAL_WINDOW_SIZE
    return (
        PREFACE
        + _frame(SETTINGS, 0, 0, window)
        + _frame(WINDOW_UPDATE, 0, 0, (WINDOW - 65535).to_bytes(4, "big"))
        + _frame(HEADERS, END_HEADERS, STREAM, block)
        + _frame(DATA, END_STREAM, STREAM, b"\x00" + len(message).to_bytes(4, "big") + message)
    )


def _answer(channel: socket.socket, deadline: float) -> bytes:
    """The data of our stream, until it ends."""
    data = b""
    while True:
        head = _exactly(channel, 9, deadline)
        kind, flags = head[3], head[4]
        stream = int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
        payload = _exactly(channel, int.from_bytes(head[:3], "big"), deadline)
        if kind == SETTINGS and not flags & ACK:
            channel.sendall(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            channel.sendall(_frame(PING, ACK, 0, payload))
        elif kind in (RST_STREAM, GOAWAY):
            raise ValueError("it ends the connection")
        elif kind == DATA and stream == STREAM:
            data += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
        if stream == STREAM and kind in (DATA, HEADERS) and flags & END_STREAM:
            return data
        if len(data) > WINDOW:
            raise ValueError(f"its answer has more than {WINDOW >> 20} MiB")


def _exactly(channel: socket.socket, size: int, deadline: float) -> bytes:
    received = b""
    while len(received) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        channel.settimeout(left)
        chunk = channel.recv(size - len(received))
        if not chunk:
            raise ValueError("it ends the connection")
        received += chunk
    return received


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _literal(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()  # under 127 bytes, not Huffman coded


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that have bytes; numbers are passed over. Raises ValueError."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            _number, at = _varint(message, at)
        elif tag & 7 == 2:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("its status is cut off")
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError("its status has a field of another type")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("its status is cut off")
        number |= (message[at] & 0x7F) << shift
        shift += 7
        at += 1
        if message[at - 1] < 0x80:
            return number, at
