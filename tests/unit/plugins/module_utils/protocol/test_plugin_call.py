# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running a plugin: what goes in and comes out, whatever the process does with its pipes."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors, plugin_call
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.system import processes
from ansible_collections.fleet.cdi.tests.unit.builders import program


def shell(commands, stdin=b"", limit=20.0, **variables):
    return plugin_call.run(["/bin/sh", "-c", commands], variables, stdin, limit)


def test_in_and_out():
    assert shell("cat; echo $A >&2; exit 3", b"in", A="a") == (3, b"in", b"a\n")


def test_nothing_of_our_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    assert b"SECRET" not in shell("env", CDI_COMMAND="ADD").stdout
    assert shell("pwd").stdout == b"/\n"


def test_more_than_a_pipe_holds_both_ways_at_once():
    content = os.urandom(3 << 19)
    done = shell("cat; cat >&2 < /dev/null", content)
    assert done.stdout == content[: processes.LARGEST]


def test_a_process_that_does_not_read():
    assert shell("exec 0<&-; sleep 0.1; echo x", b"y" * (1 << 20)) == (0, b"x\n", b"")


def test_a_process_that_closes_its_outputs_and_goes_on():
    assert shell("exec 1>&- 2>&-; sleep 0.1; exit 4") == (4, b"", b"")
    with pytest.raises(ProtocolError) as caught:
        shell("exec 0<&- 1>&- 2>&-; exec sleep 60", limit=0.3)
    assert caught.value.code == errors.TIME


def test_a_child_that_keeps_the_pipes_is_not_waited_for():
    start = time.monotonic()
    assert shell("sleep 30 & echo x").stdout == b"x\n"
    assert time.monotonic() - start < 25


def test_ended_by_a_signal():
    assert shell("kill -9 $$").status == -9


def test_time_limit():
    with pytest.raises(ProtocolError, match=r"/bin/sh: took more than 0\.2 s, and was ended") as caught:
        shell("sleep 60", limit=0.2)
    assert caught.value.code == errors.TIME


def test_one_that_can_not_be_ended_is_not_waited_for(monkeypatch):
    """It sleeps uninterruptibly, in a driver that hangs: whoever called has others to serve."""
    started = []

    class Started(subprocess.Popen):
        def __init__(self, *given, **more):
            super().__init__(*given, **more)
            started.append(self)

    monkeypatch.setattr(processes.os, "kill", lambda _pid, _signal: None)
    monkeypatch.setattr(processes.os, "killpg", lambda _group, _signal: None)
    monkeypatch.setattr(subprocess, "Popen", Started)
    start = time.monotonic()
    with pytest.raises(ProtocolError, match=r"/bin/sh: took more than 0.2 s, and can't be ended") as refused:
        shell("exec sleep 60", limit=0.2)
    assert refused.value.code == errors.TIME
    assert time.monotonic() - start < 20
    monkeypatch.undo()
    started[0].kill()
    started[0].wait()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nonexistent", "No such file"),
        ("/etc/passwd", "Permission denied"),
        ("/", "/ is not a regular file"),
        ("/a\0b", "embedded null"),
    ],
)
def test_what_can_not_be_started(path, says):
    with pytest.raises(ProtocolError, match=says) as caught:
        plugin_call.run([path], {}, b"", 1.0)
    assert caught.value.code == errors.DELEGATION


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("", (0, None, None)),
        ("  \n", (0, None, None)),
        ('{"cdiVersion": "0.0.1", "devices": []}', (0, {"cdiVersion": "0.0.1", "devices": []}, None)),
    ],
)
def test_replies(tmp_path, text, reply):
    (path,) = program(tmp_path, "plugin", f"printf '%s' '{text}'")
    assert plugin_call.plugin(path, {}, b"", 20.0) == (*reply, '""')


@pytest.mark.parametrize("text", ["x", "[]", "{}", '{"cdiVersion": 1}', "{} {}", r"\377", "[" * 5000])
def test_what_is_no_reply(tmp_path, text):
    (path,) = program(tmp_path, "plugin", f"printf '{text}'")
    with pytest.raises(ProtocolError, match="which is not a reply") as caught:
        plugin_call.plugin(path, {}, b"", 20.0)
    assert caught.value.code == errors.DELEGATION
    assert len(str(caught.value)) < 400
