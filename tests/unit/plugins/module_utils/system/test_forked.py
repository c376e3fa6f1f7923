# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fork that runs a plugin of our own release: for the plugin, all is as in a new interpreter.

Each test asks an interpreter of its own, as `fleet-cdi claim` is one: pytest has threads, and SQLite.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import plugin_call
from ansible_collections.fleet.cdi.tests.unit.limits import gone

# Calls the plugin once as a fork and once as a new interpreter, and prints both replies, or the errors.
CALLER = """
import json, os, signal, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {package!r})
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import plugin_call
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError

plugin_call.RELEASE = {release!r}
{before}
signal.signal(signal.SIGTERM, lambda number, frame: None)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
os.environ["SECRET"] = "1"
lock = os.open({release!r} + "/lock", os.O_RDWR | os.O_CREAT)
os.lseek(os.open("/etc/passwd", os.O_RDONLY), 5, 0)
os.set_inheritable(3, True)
sys.stdout.write("[")
replies = []
for fork in (True, False):
    try:
        variables, config = dict(CDI_COMMAND="ADD"), b"in" * 99999
        reply = plugin_call.plugin({release!r} + "/bin/own", variables, config, 20.0, (lock,), fork)
        replies.append([reply.status, reply.document, reply.said])
    except ProtocolError as error:
        replies.append(str(error))
    replies.append(plugin_call._script({release!r} + "/bin/own") is not None)
print(json.dumps(replies)[1:])
"""

REPORT = r"""
import json, os, resource, signal, sys, threading
names = ("SigIgn", "SigCgt", "SigBlk", "Umask", "Threads")
status = dict(line.split(":\t") for line in open("/proc/self/status") if line.startswith(names))
handles = {}
for number in range(200):
    try:
        handles[number] = os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
    except OSError:
        pass
report = {
    "cdiVersion": "0.0.1",
    "env": dict(os.environ),
    "argv": sys.argv,
    "file": __file__,
    "name": __name__,
    "cwd": os.getcwd(),
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "handles": handles,
    "read": len(sys.stdin.read()),
    "signals": status,
    "limits": [resource.getrlimit(number) for number in range(10)],
    "encodings": [sys.getfilesystemencoding(), sys.stdout.encoding, sys.stdin.encoding],
    "flags": [sys.flags.isolated, sys.flags.no_site, sys.dont_write_bytecode],
    "child": os.popen("echo $CDI_COMMAND $SECRET").read(),
}
os.write(1, json.dumps(report).encode())
"""


@pytest.fixture
def replies(tmp_path):
    """Replies to a call of a script: (as a fork, as a new interpreter)."""
    (tmp_path / "bin").mkdir()
    package = records.__file__.partition("/ansible_collections/")[0]

    def call(script, before=""):
        path = tmp_path / "bin/own"
        path.write_text(f"#!{sys.executable} -ISB\n{script}")
        path.chmod(0o755)
        code = CALLER.format(package=package, release=str(tmp_path), before=before)
        command = [sys.executable, "-ISB", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={"LC_ALL": "C.UTF-8"})
        forked, would_fork, started, _would = json.loads(done.stdout)
        assert would_fork
        return forked, started

    return call


def test_it_finds_what_a_new_interpreter_finds(replies):
    forked, started = replies(REPORT)
    assert forked[0] == 0, forked[2]
    assert {name: forked[1][name] for name in forked[1] if forked[1][name] != started[1][name]} == {}
    assert forked == started
    assert forked[1]["cwd"] == "/" and forked[1]["read"] == 2 * 99999
    assert forked[1]["env"] == {"CDI_COMMAND": "ADD", "LC_ALL": "C.UTF-8", "PATH": forked[1]["env"]["PATH"]}


@pytest.mark.parametrize(
    "script",
    [
        "import os; os._exit(3)",
        "import sys; sys.exit(4)",
        "import sys; sys.exit()",
        'import sys; print(\'{"cdiVersion": "0.0.1"}\', flush=True); sys.exit(5)',
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; os.write(1, b'nonsense')",
        "import os\nwhile True: os.write(1, b'y' * 65536)",
        "import os; os.write(2, b'z' * 3000000); os.write(1, b'{\"cdiVersion\": \"0.0.1\"}')",
        'import os, time\nif os.fork() == 0: time.sleep(77)\nos.write(1, b\'{"cdiVersion": "0.0.1"}\'); os._exit(0)',
    ],
)
def test_it_fails_as_a_new_interpreter_does(replies, script):
    forked, started = replies(script)
    assert forked == started


def test_one_that_raises_says_so(replies):
    forked, started = replies("raise ValueError('odd')")
    assert forked[:2] == started[:2] == [1, None]
    assert "importlib" in forked[2] and "Traceback" in started[2]  # of its end, the first characters


# The time is up once the plugin and its child ignore the signal, for the fork and again for the new interpreter.
LEAPS = """
from ansible_collections.fleet.cdi.plugins.module_utils.system import processes
from ansible_collections.fleet.cdi.tests.unit.limits import LeapingClock
processes.time = LeapingClock(lambda: sum(name.endswith(".pid") for name in os.listdir({directory!r})) // 2)
"""


def test_one_that_hangs_is_killed_with_its_children(replies, tmp_path):
    script = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
open({str(tmp_path)!r} + f"/{{os.getpid()}}.pid", "w").close()
time.sleep(600)
"""
    forked, started = replies(script, LEAPS.format(directory=str(tmp_path)))
    assert forked == started and "took more than 20 s, and was ended" in forked
    pids = [path.stem for path in tmp_path.glob("*.pid")]
    assert len(pids) == 4
    assert all(gone(int(pid)) for pid in pids)


def test_a_program_that_is_not_of_the_release_is_started(tmp_path, monkeypatch):
    (tmp_path / "own").write_text("")
    assert not plugin_call.is_own(str(tmp_path / "own"))
    assert not plugin_call.is_own(os.path.join(plugin_call.RELEASE, "bin/../own"))
    monkeypatch.setattr(plugin_call, "RELEASE", str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/own").write_text("")
    (tmp_path / "other").symlink_to("bin/own")
    assert not plugin_call.is_own(str(tmp_path / "own"))
    assert not plugin_call.is_own(str(tmp_path / "other"))
    assert plugin_call.is_own(str(tmp_path / "bin/own"))
