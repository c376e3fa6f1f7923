# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ADD of a device that nobody holds and that a process has open: real processes, and consoles of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import devices
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import pool_path
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, ttys

OPENS = (
    "import os, sys; f = os.open(sys.argv[1], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK); print(1, flush=True); input()"
)
FIRST, LAST = 60, 61  # the consoles: machines use those with lower numbers

pytestmark = pytest.mark.usefixtures("only_own_processes")


@pytest.fixture
def consoles(hosts):
    """A host with two consoles, and configurations for them: consoles(**args) -> (host, configuration)."""

    def make(**args):
        machine = hosts(ttys(LAST))
        args = {"num_system_reserved": FIRST - 1, **args}
        return machine, machine.configure(config("generic-tty", "tty", **args))

    return make


@pytest.fixture
def opened():
    """Start a process that has a console of a host open: opened(host, number) -> its pid."""
    started = []

    def start(machine, number, program=sys.executable):
        path = f"{machine.root}/dev/tty{number}"
        words = [program, "-c", OPENS, path]
        one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started.append(one)
        if one.stdout.readline() != b"1\n":
            pytest.skip(f"this machine opens no console tty{number}")
        return one.pid

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_by_default_it_is_granted_and_the_reply_and_the_log_say_who_has_it(consoles, opened, capfd):
    machine, conf = consoles()
    pid = opened(machine, FIRST)
    status, reply = machine.ask("ADD", conf, "tty:1", "a")
    assert (status, reply["devices"]) == (0, [f"/dev/tty{FIRST}"])
    (found,) = reply["occupied"]
    assert (found["device"], found["path"], found["pid"]) == (f"tty:tty{FIRST}", f"/dev/tty{FIRST}", pid)
    assert found["command"].startswith("python") and found["uid"] == 0
    assert f"got tty:tty{FIRST}: /dev/tty{FIRST} is open in pid {pid} (python" in capfd.readouterr().err


def test_what_nobody_has_open_is_granted_without_a_word(consoles, opened, capfd):
    machine, conf = consoles()
    opened(machine, LAST)
    status, reply = machine.ask("ADD", conf, "tty:1", "a")
    assert (status, reply["devices"], "occupied" in reply) == (0, [f"/dev/tty{FIRST}"], False)
    assert capfd.readouterr().err == ""


def test_the_same_add_again_says_nothing_of_who_has_its_devices_open(consoles, opened):
    machine, conf = consoles()
    machine.add(conf, "tty:1", "a")
    opened(machine, FIRST)
    assert "occupied" not in machine.ask("ADD", conf, "tty:1", "a")[1]


def test_refused_is_another_device_where_there_is_one(consoles, opened):
    machine, conf = consoles(occupied="refuse")
    opened(machine, FIRST)
    assert machine.add(conf, "tty:1", "a") == [f"/dev/tty{LAST}"]


def test_refused_is_the_call_where_there_is_no_other_and_it_says_who_has_it(consoles, opened):
    machine, conf = consoles(occupied="refuse")
    pid = opened(machine, FIRST)
    code, details = machine.refused(conf, "tty:2", "a")
    assert code == 100
    assert f"tty:tty{FIRST}: /dev/tty{FIRST} is open in pid {pid} (python" in details and "nobody holds it" in details
    assert machine.ask("DEL", conf, "", "a")[1]["code"] == 5  # nothing was granted


def test_what_is_held_is_not_among_what_is_refused(consoles, opened):
    machine, conf = consoles(occupied="refuse")
    machine.add(conf, "tty:1", "a")
    opened(machine, FIRST)
    code, details = machine.refused(conf, "tty:2", "b")
    assert code == 100 and "is open in" not in details


def test_who_shares_a_device_may_have_it_open(hosts, monkeypatch):
    """A share of a GPU whose other shares are held: its holders have it open, which is what they hold it for."""
    from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus

    machine = hosts(gpus((4096,)))
    conf = machine.configure(config(shared=True, occupied="refuse"))
    busy = openers.Opener(1, "train", 1000)
    machine.add(conf, "gpu-memory:1000", "a")
    monkeypatch.setattr(openers, "look", lambda numbers: openers.OpenersSeen(dict.fromkeys(numbers, (busy,)), 1))
    assert machine.add(conf, "gpu-memory:1000", "b") == ["/dev/dri/card0", "/dev/dri/renderD128"]
    machine.ask("DEL", conf, "", "a")
    machine.ask("DEL", conf, "", "b")
    assert machine.refused(conf, "gpu-memory:1000", "c")[0] == 100


def test_ignored_is_no_look(consoles, opened, monkeypatch):
    machine, conf = consoles(occupied="ignore")
    opened(machine, FIRST)
    monkeypatch.setattr(openers, "look", None)
    assert "occupied" not in machine.ask("ADD", conf, "tty:1", "a")[1]


@pytest.mark.parametrize("patterns, first", [(["pyth*"], FIRST), (["train"], LAST), ([], LAST)])
def test_programs_that_may_have_devices_open(consoles, opened, patterns, first):
    machine, conf = consoles(occupied="refuse", occupied_ignore=patterns)
    program = "/usr/bin/python3"
    if not os.path.exists(program):
        pytest.skip("needs a program that only root can change")
    opened(machine, FIRST, program)
    assert machine.add(conf, "tty:1", "a") == [f"/dev/tty{first}"]


def test_who_may_not_look_says_so_before_it_relies_on_it(consoles, monkeypatch, capfd):
    machine, conf = consoles(occupied="refuse")
    monkeypatch.setattr(openers, "look", lambda *_given: openers.OpenersSeen({}, 7, 3))
    machine.add(conf, "tty:1", "a")
    assert "can't be told for sure: could not look at 3 of 10 processes" in capfd.readouterr().err


@pytest.mark.parametrize(
    "args, details",
    [
        ({"occupied": "yes"}, "args.occupied: found 'yes' (a text); expected one of warn, refuse, ignore"),
        ({"occupied": True}, "args.occupied: found True (a boolean); expected one of warn, refuse, ignore"),
        ({"occupied_ignore": "Xorg"}, "args.occupied_ignore: found 'Xorg' (a text); expected a list of patterns"),
        ({"occupied_ignore": [""]}, "args.occupied_ignore[0]: found '' (a text); expected a pattern"),
        ({"occupied_ignore": None}, "args.occupied_ignore: found nothing; expected a list of patterns"),
    ],
)
def test_a_wrong_setting_is_named(two, args, details):
    machine, conf = two
    found = machine.refused({**conf, "args": args}, "gpu:1", "a")
    assert found[0] == 107 and details in found[1]


def test_of_thousands_that_are_alike_those_that_are_open_are_passed_over(consoles, opened, monkeypatch):
    """Such a pool is read where it is needed alone, so no look can name the nodes of all."""
    monkeypatch.setattr(inventory, "FEWEST", 2)
    machine, conf = consoles(occupied="refuse")
    path = pool_path(machine.inventory, "tty", "generic-tty", conf["args"])
    boot = Path(machine.root + BOOT).read_text().strip()
    Path(path).write_bytes(inventory.render(inventory.read(path, boot), boot, sketched=True))
    assert isinstance(devices.read(path, boot).devices, devices.Many)
    pid = opened(machine, FIRST)
    assert machine.add(conf, "tty:1", "a") == [f"/dev/tty{LAST}"]
    assert f"is open in pid {pid} " in machine.refused(conf, "tty:1", "b")[1]
