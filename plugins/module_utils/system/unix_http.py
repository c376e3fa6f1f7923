# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GET from a daemon behind a Unix socket, with the standard library alone.

Import this file where a daemon is asked: http.client takes longer to load than all else of most runs.
"""

from __future__ import annotations

import http.client
import os
import socket

SECONDS = 10.0  # limit of each wait: an answer takes milliseconds; docker's waits for its current work


class AnswerRefused(ValueError):
    """The daemon answers that it does not have the document; `status` is that of HTTP."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"GET {what} is answered with status {status}")
        self.status = status


def fetch(path: str, what: str) -> bytes:
    """Return the answer of the daemon behind the socket at `path` to GET `what`.

    Raises OSError, ValueError for an answer that is not HTTP, and AnswerRefused.
    """
    connection = _Connection(path)
    try:
        connection.request("GET", what, headers={"Host": "localhost"})
        answer = connection.getresponse()
        content = answer.read()
    except http.client.HTTPException as error:
        raise ValueError(f"GET {what}: {error!r}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise AnswerRefused(what, answer.status)
    return content


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(os.path.realpath(self.path))
