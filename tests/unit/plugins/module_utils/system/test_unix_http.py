# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A document from a daemon behind a Unix socket, and every other answer as an error that callers expect."""

from __future__ import annotations

import socket
import threading

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system.unix_http import AnswerRefused, fetch

ERRORS = {
    "another protocol": (b"220 mail.example.org ESMTP\r\n", ValueError),
    "no answer": (b"", (ValueError, OSError)),
    "an answer that is cut off": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", ValueError),
    "no such document": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", AnswerRefused),
}


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """daemon(answer) -> the path of a socket behind which a process gives this answer to one request."""
    monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket's name
    server = socket.socket(socket.AF_UNIX)
    server.bind("a.sock")
    server.listen()
    threads = []

    def start(answer):
        def serve():
            connection, _address = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return "a.sock"

    yield start
    for thread in threads:
        thread.join()
    server.close()


def test_a_document(daemon):
    assert fetch(daemon(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), "/info") == b"{}"


@pytest.mark.parametrize(("answer", "error"), ERRORS.values(), ids=ERRORS)
def test_other_answers(daemon, answer, error):
    with pytest.raises(error):
        fetch(daemon(answer), "/info")


def test_a_daemon_that_does_not_run(tmp_path):
    with pytest.raises(FileNotFoundError):
        fetch(str(tmp_path / "none.sock"), "/info")
