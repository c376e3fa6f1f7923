# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that looks at all others for the daemon, and what the daemon gives up for it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import scanner
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.plugins.module_utils.system.control_group import Group
from ansible_collections.fleet.cdi.plugins.module_utils.system.openers import Opener, Seen

NUMBER = ("c", 195, 0)

# As the service starts it; what is left of the rights, and what is seen, before and behind.
PROGRAM = """
import os, sys
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import scanner
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers

def rights(name, pid="self"):
    return [line.split()[1].lstrip("0") for line in open(f"/proc/{pid}/status") if line.startswith(name)][0]

look = scanner.start(os.environ)
number = openers.number_of(sys.argv[1])
pids = [one.pid for one in look([number]).openers.get(number, ())]
alone = [one.pid for one in openers.look([number]).openers.get(number, ())]
child = os.popen("grep CapEff /proc/self/status").read().split()[1].lstrip("0")
print([rights("CapEff"), rights("CapPrm"), child], pids, alone, scanner.VARIABLE in os.environ)
"""


def test_without_the_variable_the_daemon_looks_itself():
    assert scanner.start({}) is openers.look


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, and setpriv (util-linux)")
def test_only_the_child_may_look():
    """A process of another user has a file open that is its own: root without capabilities sees nothing of it."""
    path = "/dev/tty61"
    if not os.path.exists(path):
        pytest.skip(f"this machine has no {path}")
    opens = "import os, sys; os.open(sys.argv[1], os.O_NOCTTY); os.setuid(65534); print(1, flush=True); input()"
    one = subprocess.Popen([sys.executable, "-c", opens, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if one.stdout.readline() != b"1\n":
            pytest.skip(f"this machine opens no {path}")
        names = "CAP_DAC_READ_SEARCH CAP_SYS_PTRACE"
        sandbox = ["setpriv", "--no-new-privs", "--bounding-set", "-all,+dac_read_search,+sys_ptrace"]
        environment = {**os.environ, scanner.VARIABLE: names, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [*sandbox, sys.executable, "-c", PROGRAM, path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout == f"['', '', ''] [{one.pid}] [] False\n", done.stdout + done.stderr
    finally:
        one.kill()
        one.communicate()


@pytest.fixture
def channel():
    """The daemon's end of a scanner that a thread is."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=scanner.serve, args=(theirs,), daemon=True)
    thread.start()
    yield scanner.Channel(ours)
    ours.close()


def test_what_is_seen_comes_over_as_it_is(channel, monkeypatch):
    opener = Opener(7, "tr\nain", 1000, Group("/x", container="caf\u00e9\x1b", engine="LXC"), True)
    seen = Seen({NUMBER: (opener,), ("b", 8, 0): ()}, 5, 1, "why")
    asked = []
    monkeypatch.setattr(openers, "look", lambda numbers: asked.append(list(numbers)) or seen)
    assert channel.look({NUMBER, ("b", 8, 0)}) == seen
    assert channel.look([]) == seen
    assert asked == [[("b", 8, 0), NUMBER], []]


def test_one_that_has_ended_is_said_and_is_asked_no_more():
    ours, theirs = socket.socketpair()
    channel = scanner.Channel(ours)
    theirs.close()
    for _time in range(2):
        assert "has ended; restart the service" in channel.look([NUMBER]).gaps


def test_one_that_hangs_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(openers, "SECONDS", 0.1)
    monkeypatch.setattr(scanner, "PATIENCE", 0.0)
    ours, theirs = socket.socketpair()
    channel = scanner.Channel(ours)
    assert channel.look([NUMBER]).gaps
    with suppress(OSError):
        theirs.sendall(b'[[], 1, 0, ""]\n')  # too late: it would pass for the answer to the next question
    assert channel.look([NUMBER]).processes == 0
