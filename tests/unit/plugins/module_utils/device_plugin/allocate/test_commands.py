# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's commands in Allocate: when a device changes hands, and what a failure leaves behind."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.commands import turns
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import Want, settle, take, unit_key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import INTERRUPTED
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import commands
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import longest
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.held_elsewhere import read_ledger, taken
from ansible_collections.fleet.cdi.tests.unit.builders import program
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import NAME, Host


class TestCommands:
    """Setup and teardown, when a device changes hands."""

    @pytest.fixture
    def host(self, tmp_path, say):
        return Host(tmp_path, setup=say, teardown=say)

    def configure(self, host, **settings):
        host.resource = host.resource._replace(settings=host.resource.settings._replace(**settings))

    def test_what_they_are_told(self, host, trusted):
        show = program(trusted, "show", f"env | grep ^CDI_ | sort > {host.log}")
        self.configure(host, setup=tuple(show))
        host.allocate("2")
        assert host.ran() == [
            "CDI_COMMAND=ADD",
            "CDI_DEVICES=node:/dev/gpu2",
            "CDI_DEVICE_NODES=/dev/gpu2",
            "CDI_PLUGIN=vendor.com/gpu",
            "CDI_REQUEST_ID=2",
            "CDI_TYPE=kubernetes",
            "CDI_VERSION=0.0.2",
        ]

    def test_the_first_holder_gets_a_setup(self, host):
        host.allocate("0", "1")
        assert host.ran() == ["ADD 0", "ADD 1"]
        assert [host.state_of(unit) for unit in "01"] == ["active", "active"]

    def test_the_next_holder_gets_a_teardown_before(self, host):
        host.allocate("0")
        host.allocate("0", "1")
        assert host.log.read_text().split("\n")[:2] == ["ADD 0", "DEL 0"]
        assert host.ran() == ["ADD 0", "ADD 0", "ADD 1", "DEL 0"]

    def test_pods_keep_a_shared_device_when_one_beside_it_fails(self, tmp_path, trusted, say):
        """What others have is not this request's to undo."""
        host = Host(tmp_path, 2, replicas=3, setup=say, teardown=say)
        host.allocate("0::0")
        fails = program(trusted, "fails", "test $CDI_REQUEST_ID != 1")
        self.configure(host, setup=tuple(fails))
        assert list(host.refused("0::1", "1::0")[1]) == ["1"]
        assert [host.state_of(unit) for unit in "01"] == ["active", "withheld"]
        assert host.ran() == ["ADD 0", "DEL 1"]

    def test_a_unit_that_has_become_another_device_is_torn_down_as_what_it_was(self, host, trusted):
        """An index, say: what the pod before left behind is on the device that it had."""
        host.allocate("0")
        host.write({"0": "/dev/gpu1", "1": "/dev/gpu0"})
        show = program(trusted, "show", f'echo "$CDI_COMMAND $CDI_DEVICES $CDI_DEVICE_NODES" >> {host.log}')
        self.configure(host, setup=tuple(show), teardown=tuple(show))
        host.log.unlink()
        host.allocate("0")
        assert host.ran() == ["ADD node:/dev/gpu1 /dev/gpu1", "DEL node:/dev/gpu0 /dev/gpu0"]
        assert host.part("0").holds[0].locks() == {"node:/dev/gpu1": "whole"}
        host.allocate("1")

    def test_and_so_by_who_finds_it_interrupted(self, host, trusted):
        """The one that it is now may be set up already."""
        host.allocate("0")
        host.write({"0": "/dev/gpu1", "1": "/dev/gpu0"})
        take(host.ledger, NAME, [Want("0", host.resource.units[0].device)], pending=True)
        show = program(trusted, "show", f'echo "$CDI_COMMAND $CDI_DEVICES $CDI_DEVICE_NODES" >> {host.log}')
        self.configure(host, setup=(), teardown=tuple(show))
        host.log.unlink()
        host.allocate("0")
        assert host.ran() == ["DEL node:/dev/gpu0,node:/dev/gpu1 /dev/gpu0,/dev/gpu1"]
        host.allocate("1")

    def test_a_device_that_was_not_torn_down_is_withheld_whatever_its_unit_is_now(self, host, trusted):
        host.allocate("0")
        host.write({"0": "/dev/gpu1", "1": "/dev/gpu0"})
        self.configure(host, teardown=tuple(program(trusted, "fails", "exit 1")))
        assert list(host.refused("0")[1]) == ["0"]
        assert set(host.refused("1")[1]) == {"1"}

    def test_a_shared_device_is_set_up_for_the_first_replica(self, tmp_path, say):
        host = Host(tmp_path, 1, replicas=3, setup=say, teardown=say)
        host.allocate("0::0", "0::1")
        host.allocate("0::2")
        assert host.ran() == ["ADD 0"]

    def test_a_failed_setup_refuses_all_and_withholds_the_one(self, host, trusted):
        fails = program(
            trusted, "fails", f'echo "$CDI_COMMAND $CDI_REQUEST_ID" >> {host.log}; test $CDI_REQUEST_ID != 1'
        )
        self.configure(host, setup=tuple(fails))
        said, troubles = host.refused("0", "1", "2")
        assert list(troubles) == ["1"]
        assert troubles["1"].startswith(f"setup: {fails[0]}: failed (exit status 1)")
        assert "vendor.com/gpu: 1: setup: " in said
        assert [host.state_of(unit) for unit in "012"] == ["free", "withheld", "free"]
        assert [line for line in host.ran() if line.startswith("DEL")] == ["DEL 0", "DEL 1", "DEL 2"]  # undone
        kept = taken(host.resource, read_ledger(host.ledger))
        assert list(kept) == ["1"]
        assert kept["1"].startswith("setup: ")
        assert "fleet-cdi grants release node:/dev/gpu1" in kept["1"]
        assert list(host.refused("0", "1")[1]) == ["1"]
        host.allocate("0", "2")
        host.ledger.release("node:/dev/gpu1")
        assert taken(host.resource, read_ledger(host.ledger)) == {}

    @pytest.mark.parametrize("teardown, after", [("", "free"), ("; test $CDI_COMMAND = ADD", "withheld")])
    def test_a_device_that_the_setup_found_in_use_is_not_withheld(self, host, trusted, teardown, after):
        """Slurm has given it to a job: whoever has it needs no operator, and another pod may ask later."""
        busy = program(trusted, "busy", f'test "$CDI_COMMAND $CDI_REQUEST_ID" != "ADD 1" || exit 75{teardown}')
        self.configure(host, setup=tuple(busy), teardown=tuple(busy))
        said, troubles = host.refused("0", "1")
        assert sorted(troubles) == (["0", "1"] if teardown else ["1"]) and "failed (exit status 75)" in said
        assert [host.state_of(unit) for unit in "01"] == ["withheld" if teardown else "free", after]
        self.configure(host, setup=(), teardown=())
        if not teardown:
            host.allocate("0", "1")

    def test_a_failed_teardown_withholds_and_nobody_is_set_up(self, host, trusted):
        host.allocate("0")
        host.log.unlink()
        self.configure(host, teardown=tuple(program(trusted, "fails", "echo busy; exit 2")))
        _said, troubles = host.refused("0", "1")
        assert troubles["0"].endswith('failed (exit status 2); it said "busy"')
        assert host.ran() == []
        assert [host.state_of(unit) for unit in "01"] == ["withheld", "free"]

    def test_a_command_that_hangs_is_ended(self, host, trusted):
        self.configure(host, setup=tuple(program(trusted, "hangs", "sleep 100")), time_limit=0.3)
        start = time.monotonic()
        _said, troubles = host.refused("0", "1", "2", "3")
        assert time.monotonic() - start < 30  # they run at the same time; 100 s is what one would take
        assert set(troubles) == set("0123")
        assert "took more than 0.3 s, and was ended" in troubles["0"]

    def test_as_many_run_at_the_same_time_as_it_is_reckoned_with(self, host, trusted):
        """Each waits for all of them."""
        mark = host.directory / "marks"
        mark.mkdir()
        wait = f"touch {mark}/$CDI_REQUEST_ID; until test $(ls {mark} | wc -l) = 4; do sleep 0.02; done"
        self.configure(host, setup=tuple(program(trusted, "waits", wait)), time_limit=20.0)
        host.allocate("0", "1", "2", "3")

    @pytest.mark.parametrize("missing", ["program", "trust"])
    def test_a_command_that_can_not_be_run(self, host, trusted, missing):
        path = program(trusted, "some", "exit 0")[0]
        if missing == "trust":
            os.chmod(path, 0o777)
        else:
            os.unlink(path)
        self.configure(host, setup=(path,))
        assert "was not run" in host.refused("0")[1]["0"]

    def test_a_node_that_the_setup_takes_away(self, host, trusted):
        takes = program(trusted, "takes", f"rm {host.root}/dev/gpu$CDI_REQUEST_ID")
        self.configure(host, setup=tuple(takes))
        _said, troubles = host.refused("0")
        assert troubles["0"].startswith("node-missing")
        assert host.ran() == ["DEL 0"]
        assert host.state_of("0") == "free"

    def test_what_was_interrupted_is_torn_down_first(self, host):
        """A daemon that was killed in its setup."""
        host.allocate("0")
        part = host.part("0")
        host.ledger.delete(unit_key(NAME, "0"))
        host.ledger.add(unit_key(NAME, "0"), {NAME: 1}, lambda _held: part.holds, "kubernetes", pending=True)
        host.log.unlink()
        host.allocate("0")
        assert host.ran() == ["ADD 0", "DEL 0"]
        assert host.state_of("0") == "active"

    def test_a_daemon_that_is_killed_in_its_setup(self, host, trusted):
        """The next one knows that it was not finished, and undoes it first."""
        mark = host.directory / "pid"
        hangs = program(trusted, "hangs", f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 100")
        ready = host.resource.settings
        self.configure(host, setup=tuple(hangs))
        daemon = os.fork()
        if daemon == 0:
            host.allocate("0")
            os._exit(0)
        while not mark.exists():
            time.sleep(0.01)
        os.kill(daemon, signal.SIGKILL)
        os.waitpid(daemon, 0)
        os.kill(int(mark.read_text()), signal.SIGKILL)
        assert host.state_of("0") == "pending"
        host.resource = host.resource._replace(settings=ready)
        host.allocate("0")
        assert host.ran() == ["ADD 0", "DEL 0"]
        assert host.state_of("0") == "active"

    def test_it_waits_for_who_is_at_it(self, host):
        """The other daemon's teardown, say."""
        host.allocate("0")
        entered = threading.Event()

        def other():
            with turns.turn(str(host.state), [unit_key(NAME, "0")], 1):
                entered.set()
                time.sleep(0.3)
                settle(host.ledger, NAME, {"0": host.part("0").token}, free=["0"])

        thread = threading.Thread(target=other)
        thread.start()
        entered.wait(10)
        host.allocate("0")
        thread.join()
        assert host.ran() == ["ADD 0", "ADD 0"]  # no teardown: the other one released it
        assert host.state_of("0") == "active"

    def test_and_not_for_ever(self, host):
        self.configure(host, time_limit=0.1)
        with turns.turn(str(host.state), [unit_key(NAME, "1")], 1):
            said, troubles = host.refused("0", "1")
        assert "another call has been working on it for 0.1 s" in said
        assert troubles == {}
        assert not host.ledger.grants()

    def test_a_store_that_fails_in_the_middle(self, host, trusted):
        """What is recorded then is pending, and torn down before anybody gets it."""
        host.allocate("3")
        breaks = program(trusted, "breaks", f"chmod 777 {host.state}; exit 1")
        self.configure(host, setup=tuple(breaks))
        said, troubles = host.refused("0")
        assert list(troubles) == ["0"]
        assert "then it could not be undone" in said
        os.chmod(host.state, 0o755)
        assert host.state_of("0") == "pending"

    def test_one_without_commands_waits_for_those_that_were_begun(self, host):
        """The configuration changed while a teardown runs, or the other daemon has another one."""
        host.allocate("0")
        token = host.part("0").token
        settle(host.ledger, NAME, {"0": token}, withheld={"0": INTERRUPTED})
        self.configure(host, setup=(), teardown=(), time_limit=0.1)
        with turns.turn(str(host.state), [unit_key(NAME, "0")], 1):
            assert "another call has been working on it" in host.refused("0")[0]
        assert host.part("0").token == token
        host.allocate("0")

    @pytest.mark.parametrize(
        ("commands_", "devices", "seconds"),
        [([], 20, 0), (["setup"], 1, 20), (["setup"], 16, 20), (["setup"], 17, 30), (["setup", "teardown"], 2, 40)],
    )
    def test_how_long_it_may_take(self, commands_, devices, seconds):
        settings = ResourceSettings("a.com/b", time_limit=10)._replace(**dict.fromkeys(commands_, ("/x",)))
        assert longest(settings, devices) == seconds


def test_no_command_is_no_failure():
    assert commands.run_command(ResourceSettings("a.com/b"), "setup", {"0": (("x",), ())}) == {}
    assert commands.run_command(ResourceSettings("a.com/b", setup=("/none",)), "setup", {}) == {}
