# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that looks at all others for the daemon, by a socket."""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import openers_service
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.plugins.module_utils.system.control_group import Group
from ansible_collections.fleet.cdi.plugins.module_utils.system.openers import Opener, OpenersSeen

NUMBER = ("c", 195, 0)
RIGHTS = "+dac_read_search,+sys_ptrace"

# What systemd does of fleet-cdi-openers.socket, for as long as it gets lines: a process for each connection.
LISTEN = """
import socket, subprocess, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print(flush=True)
while True:
    one = listening.accept()[0]
    process = subprocess.Popen(sys.argv[2:], stdin=one, stdout=one)
    print(process.pid, flush=True)
    one.close()
"""

SERVES = """
import sys
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
look = openers.look
openers.look = lambda numbers: look(numbers, seconds=60.0)  # a busy machine takes long to look at all
sys.exit(main(["plugin", "openers"], "test", dict(state_dir="/x", inventory="/x", spec_dirs=["/x"], prefix="/x")))
"""

# The daemon: what it sees by the socket, and what by itself.
ASKS = """
import json, sys
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import openers_service
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
number = openers.number_of(sys.argv[1])
openers_service.PATIENCE = 60.0
seen, alone = openers_service.Channel(sys.argv[2]).look([number]), openers.look([number])
print(json.dumps([[one.pid for one in each.openers.get(number, ())] for each in (seen, alone)]), seen.gaps)
"""


class Service:
    """The socket, and the processes behind it."""

    def __init__(self, path, *command):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.path = str(path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", LISTEN, self.path, *command], stdout=subprocess.PIPE, env=environment
        )
        self.process.stdout.readline()

    def started(self):
        """The number of the next process that it started."""
        return int(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def serve(tmp_path, monkeypatch):
    monkeypatch.setattr(openers_service, "PATIENCE", 60.0)  # a busy machine takes long to start a process
    made = []

    def start(*command):
        made.append(Service(tmp_path / "socket", *(command or (sys.executable, "-c", SERVES))))
        return made[-1]

    yield start
    for one in made:
        one.stop()


def without(*rights):
    return ["setpriv", "--no-new-privs", "--bounding-set", ",".join(("-all", *rights))]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, and setpriv (util-linux)")
def test_who_is_asked_sees_what_the_daemon_may_not(serve):
    """A process of another user has a file open that is its own: root without capabilities sees nothing of it."""
    path = "/dev/tty61"
    if not os.path.exists(path):
        pytest.skip(f"this machine has no {path}")
    opens = "import os, sys; os.open(sys.argv[1], os.O_NOCTTY); os.setuid(65534); print(1, flush=True); input()"
    one = subprocess.Popen([sys.executable, "-c", opens, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if one.stdout.readline() != b"1\n":
            pytest.skip(f"this machine opens no {path}")
        service = serve(*without(RIGHTS), sys.executable, "-c", SERVES)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [*without(), sys.executable, "-c", ASKS, path, service.path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        seen, alone = json.loads(done.stdout.partition("]] ")[0] + "]]")
        assert one.pid in seen, done.stdout + done.stderr  # beside those of other tests of this machine
        assert not alone
    finally:
        one.kill()
        one.communicate()


def test_where_there_is_no_socket_the_daemon_looks_itself(tmp_path, monkeypatch):
    seen = OpenersSeen(trouble="why")
    monkeypatch.setattr(openers, "look", lambda _numbers: seen)
    assert openers_service.Channel(str(tmp_path / "none")).look([NUMBER]) is seen


def test_an_answer_that_is_no_answer_is_told(serve):
    service = serve("sh", "-c", "read question; echo hello")
    seen = openers_service.Channel(service.path).look([NUMBER])
    assert seen == OpenersSeen(trouble=f"{service.path}: no answer; `journalctl -u 'fleet-cdi-openers@*'` may say why")


def test_one_process_answers_one_question_after_the_other(serve):
    """Until nobody is there any more to ask one."""
    service = serve()
    channel = openers_service.Channel(service.path)
    null = openers.number_of("/dev/null")
    with open("/dev/null") as _file:
        for _time in range(2):
            assert os.getpid() in [one.pid for one in channel.look([null]).openers[null]]
    assert channel.look([NUMBER]).openers == {}
    pid = service.started()
    channel.close()
    assert ended(pid)


def ended(pid):
    """Wait until it has."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            return bool(select.select([handle], [], [], 30)[0])
        finally:
            os.close(handle)
    return True


def test_where_it_was_ended_the_same_look_asks_another_one(serve):
    service = serve()
    channel = openers_service.Channel(service.path)
    assert channel.look([NUMBER]).processes
    first = service.started()
    os.kill(first, signal.SIGKILL)
    assert ended(first)
    assert channel.look([NUMBER]).processes and service.started() != first


def test_one_that_does_not_start_is_said_and_tried_again(serve, tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    service = serve(str(program))
    channel = openers_service.Channel(service.path)
    assert f"{service.path}: " in channel.look([NUMBER]).gaps
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{SERVES}'\n")
    assert channel.look([NUMBER]).processes


def test_nobody_listens(serve):
    service = serve()
    service.stop()
    assert f"{service.path}: Connection refused" in openers_service.Channel(service.path).look([NUMBER]).gaps


def test_one_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(openers, "SECONDS", 0.1)
    monkeypatch.setattr(openers_service, "PATIENCE", 0.0)
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        channel = openers_service.Channel(path)
        assert path in channel.look([NUMBER]).gaps
        late = listening.accept()[0]
        with suppress(OSError):
            late.sendall(b'[[], 1, 0, ""]\n')  # it would pass for the answer to the next question
        assert channel.look([NUMBER]).processes == 0
        late.close()


def test_what_is_seen_comes_over_as_it_is(tmp_path, monkeypatch):
    opener = Opener(7, "tr\nain", 1000, Group("/x", container="caf\u00e9\x1b", engine="LXC"), True, 12.5)
    seen = OpenersSeen({NUMBER: (opener,), ("b", 8, 0): ()}, 5, 1, "why")
    asked = []
    monkeypatch.setattr(openers, "look", lambda numbers: asked.append(list(numbers)) or seen)
    answers = io.BytesIO()
    openers_service.answer_questions(io.BytesIO(b'[["b", 8, 0], ["c", 195, 0]]\n[]\n'), answers)
    assert asked == [[("b", 8, 0), NUMBER], []]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        channel = openers_service.Channel(str(tmp_path / "socket"))
        channel.connect()
        theirs = listening.accept()[0]
        theirs.sendall(answers.getvalue())
        assert channel.look({NUMBER, ("b", 8, 0)}) == seen and channel.look([]) == seen
        assert theirs.recv(1 << 16) == b'[["b", 8, 0], ["c", 195, 0]]\n[]\n'
        theirs.close()


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"x\n",
        b"[1]\n",
        b'[["c", 1]]\n',
        b'[["x", 1, 2]]\n',
        b'[["c", "1", 2]]\n',
        b'[["c", true, 2]]\n',
        b"[" * 99999,
    ],
    ids=["empty", "no JSON", "no number", "short", "no sort", "text", "truth", "deep"],
)
def test_what_is_no_question_ends_it(line, monkeypatch):
    monkeypatch.setattr(openers, "look", None)
    with pytest.raises(CdiError, match="expected one line of JSON"):
        openers_service.answer_questions(io.BytesIO(line), io.BytesIO())


def test_a_question_is_read_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(openers_service, "LONGEST", 20)
    with pytest.raises(CdiError, match="of 20 bytes at most"):
        openers_service.answer_questions(io.BytesIO(json.dumps([NUMBER] * 9).encode() + b"\n"), io.BytesIO())
