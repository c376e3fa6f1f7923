# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet of tests/contract as a service of a host: `node.py serve ARGUMENT...`, asked by `node.py ask JSON...`.

Each question is one that tests/contract/program.py answers, or {"do": "gaps"}: for each resource the seconds in which
nothing of it was allocatable since there first was, the longest first.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time

SOCKET = "/run/test-kubelet.sock"
KUBELET = "/srv/test/tests/contract/kubelet.py"
PERIOD = 0.02  # seconds between two looks at what is allocatable


class Node:
    """A kubelet process, and what was seen of it."""

    def __init__(self, arguments: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, KUBELET, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lock = threading.Lock()
        self.since: dict[str, float] = {}  # resource -> when it ran out, 0 while there are some
        self.gaps: dict[str, list[float]] = {}
        self.process.stdout.readline()  # "started"

    def ask(self, question: dict) -> dict:
        """One question to the kubelet."""
        with self.lock:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def look(self) -> None:
        """Note how many are allocatable, for ever."""
        while True:
            found = self.ask({"do": "capacity"})["allocatable"]
            for resource in {*found, *self.since}:
                there, since = found.get(resource, 0) > 0, self.since.get(resource)
                if there and since:
                    self.gaps.setdefault(resource, []).append(time.monotonic() - since)
                if there or since is not None:
                    self.since[resource] = 0.0 if there else since or time.monotonic()
            time.sleep(PERIOD)


def serve(arguments: list[str]) -> None:
    """Answer whoever connects, one after the other."""
    node = Node(arguments)
    threading.Thread(target=node.look, daemon=True).start()
    if os.path.exists(SOCKET):
        os.unlink(SOCKET)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(SOCKET)
        listener.listen()
        while True:
            connection, _address = listener.accept()
            with connection, connection.makefile("rw") as stream:
                question = json.loads(stream.readline())
                if question["do"] == "gaps":
                    answer = {one: sorted(gaps, reverse=True) for one, gaps in node.gaps.items()}
                else:
                    answer = node.ask(question)
                stream.write(json.dumps(answer) + "\n")


def ask(question: dict) -> dict:
    """One question to the service."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(SOCKET)
        with connection.makefile("rw") as stream:
            stream.write(json.dumps(question) + "\n")
            stream.flush()
            return json.loads(stream.readline())


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2:])
    for text in sys.argv[2:]:
        sys.stdout.write(json.dumps(ask(json.loads(text))) + "\n")
