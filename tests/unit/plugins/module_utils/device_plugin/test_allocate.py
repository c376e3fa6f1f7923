# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Allocate: what is refused and why, what is held when it answers, what a failure leaves behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation import turns
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.grant import Key, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.handover import key_of, settle
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import commands
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import Failed, longest
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.delivery import Delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.taken import read, taken
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import (
    NAME,
    Host,
    program,
    trusted_directory,
)

EXPANDED = Delivery(False, False, True)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture
def trusted():
    with trusted_directory() as directory:
        yield directory


def names(response):
    return [one.name for one in response.cdi_devices]


class TestAnswer:
    """What a container gets."""

    def test_names_in_one_order_and_holds(self, host):
        assert names(host.allocate("2", "0")) == ["vendor.com/gpu=0", "vendor.com/gpu=2"]
        assert [host.state_of(unit) for unit in "0123"] == ["active", "free", "active", "free"]
        assert host.part("0").owner == "kubernetes"
        assert host.part("0").holds[0].device == "node:/dev/gpu0"

    def test_spelled_out_with_what_all_of_the_kind_share(self, host):
        response = host.allocate("1", "0", ways=EXPANDED)
        assert [one.host_path for one in response.devices] == ["/dev/gpu0", "/dev/gpu1"]
        assert dict(response.envs) == {"GPU": "1"}
        assert not response.cdi_devices and not response.annotations

    def test_replicas_of_one_device_have_one_hold_and_one_name(self, tmp_path):
        host = Host(tmp_path, 2, replicas=3)
        assert names(host.allocate("0::2", "0::0")) == ["vendor.com/gpu=0"]
        token = host.part("0").token
        assert names(host.allocate("0::1")) == ["vendor.com/gpu=0"]
        assert host.part("0").token != token  # so that who released the older does not free it

    def test_a_group_gives_all_its_members(self, tmp_path):
        members = {"members": ["vendor.com/gpu=0", "vendor.com/gpu=1"], "optional": ["vendor.com/gpu=9"]}
        host = Host(tmp_path, 3, groups={"pair": members})
        assert names(host.allocate("pair")) == ["vendor.com/gpu=0", "vendor.com/gpu=1"]
        held = set(host.part("pair").holds[0].locks())
        assert {"node:/dev/gpu0", "node:/dev/gpu1"} <= held

    def test_again_without_notice(self, host):
        """F9: the kubelet hands an ID out again as soon as its pod is gone."""
        host.allocate("0")
        first = host.part("0").token
        host.allocate("0", "1")
        assert host.part("0").token != first


class TestAbandoned:
    """A call that the kubelet was refused in the end, or that it ended: the next pod may have the device by now."""

    @pytest.mark.parametrize("command", [[], ["/bin/false"]], ids=["at once", "with commands"])
    def test_what_comes_too_late_takes_nothing_from_the_next(self, tmp_path, command):
        host = Host(tmp_path)
        host.allocate("0")
        token = host.part("0").token
        host.resource = host.resource._replace(settings=host.resource.settings._replace(teardown=tuple(command)))
        late = partial(host.allocator.allocate, host.resource, ["0", "1"], host.registry, EXPANDED)
        with pytest.raises(Failed, match="nobody waits"):
            late(abandoned=lambda: True)
        assert [host.state_of(unit) for unit in "01"] == ["active", "free"]
        assert host.part("0").token == token

    def test_a_start_of_a_container(self, host):
        with pytest.raises(Failed, match="nobody waits"):
            host.allocator.start(host.resource, ["0"], lambda: True)
        assert host.state_of("0") == "free"


class TestRefused:
    """F8: IDs that can't be asked for."""

    @pytest.mark.parametrize(
        ("ids", "text"),
        [
            ((), "vendor.com/gpu: found no device; expected one or more"),
            (("9",), "found the device '9'; expected one that this resource has now (0, 1, 2, 3)"),
            (("0", "other.com/nic=1"), "found the device 'other.com/nic=1'"),
            (("0::0",), "found the device '0::0'"),
            (("",), "found the device ''"),
            (("0\n",), "found the device '0\\n'"),
            (("0", "1", "0"), "found the device '0' twice; expected each once"),
        ],
    )
    def test_unknown_foreign_duplicate(self, host, ids, text):
        said, troubles = host.refused(*ids)
        assert text in said
        assert troubles == {}  # nothing is wrong with any unit
        assert not host.ledger.grants()

    def test_replicas_that_there_are_not(self, tmp_path):
        host = Host(tmp_path, 1, replicas=2)
        assert "'0::2'" in host.refused("0::2")[0]
        assert "'0'; expected one that this resource has now (0::0, 0::1)" in host.refused("0")[0]

    @pytest.mark.parametrize("name", ["0::1", "0"], ids=["by device ID", "by unit"])
    def test_unhealthy(self, tmp_path, name):
        host = Host(tmp_path, 1, replicas=2)
        assert host.refused("0::1", unhealthy={name: "device: too hot"})[1] == {"0": "device: too hot"}
        assert not host.ledger.grants()

    def test_many_devices_are_not_all_listed(self, tmp_path):
        host = Host(tmp_path, 3, replicas=4)
        assert "(0::0, 0::1, 1::0, 1::1, 2::0 and 7 more)" in host.refused("x")[0]


class TestLook:
    """What is checked before the answer."""

    def test_a_node_that_is_gone(self, host):
        host.unplug(1)
        said, troubles = host.refused("0", "1")
        assert list(troubles) == ["1"]
        assert troubles["1"].startswith("node-missing: ")
        assert "/dev/gpu1" in said
        assert not host.ledger.grants()

    def test_what_the_settings_ignore(self, tmp_path):
        """The kubelet is told that the device is Healthy, so it has to be had."""
        host = Host(tmp_path, health={"ignore": ["library-missing"]}, setup=["/bin/true"])
        hurt = {"mounts": [{"hostPath": "/usr/lib/libx.so.1", "containerPath": "/libx.so.1"}]}
        host.write({"0": "/dev/gpu0"}, hurt)
        host.allocate("0")
        host.unplug(0)
        assert host.refused("0")[1]["0"].startswith("node-missing")

    def test_a_name_that_no_spec_has_any_more(self, host):
        """KEP-4009's known failure: nobody has looked since, and the runtime would find out."""
        host.replace({"0": "/dev/gpu0"})
        assert host.refused("0", "1")[1] == {"1": "unresolved: no spec gives vendor.com/gpu=1 any more, or several do"}
        host.allocate("0")

    def test_a_spec_that_is_gone_or_broken(self, host):
        (host.specs / "gpu.json").write_text("{")
        assert list(host.refused("0")[1]) == ["0"]
        (host.specs / "gpu.json").unlink()
        assert list(host.refused("0")[1]) == ["0"]

    def test_a_second_spec_with_the_same_name(self, host):
        host.replace({"0": "/dev/gpu3"}, name="other.json")
        assert list(host.refused("0")[1]) == ["0"]
        host.allocate("1")

    def test_a_name_that_means_another_device_now(self, host):
        """It would not be the one that is held."""
        host.replace({"0": "/dev/gpu1", "1": "/dev/gpu0", "2": "/dev/gpu2"})
        assert host.refused("0")[1] == {"0": "unresolved: vendor.com/gpu=0 gives other device nodes than a moment ago"}
        assert names(host.allocate("2")) == ["vendor.com/gpu=2"]

    def test_edits_of_the_new_spec_are_those_that_count(self, host):
        host.replace({str(index): f"/dev/gpu{index}" for index in range(4)}, {"env": ["GPU=2"]})
        assert dict(host.allocate("0", ways=EXPANDED).envs) == {"GPU": "2"}

    def test_nothing_of_it_can_be_given_without_cdi(self, tmp_path):
        """What comes with all of its kind is not the device."""
        host = Host(tmp_path)
        (host.root / "sys/class/net/eth1").mkdir(parents=True)
        edits = {"a": {"netDevices": [{"hostInterfaceName": "eth1", "name": "eth1"}]}}
        host.write({}, {"env": ["NIC=1"], "deviceNodes": [{"path": "/dev/gpu0"}]}, more=edits)
        said, _troubles = host.refused("a", ways=EXPANDED)
        assert "a: a container gets nothing of it" in said and "netDevices can't be given without" in said
        assert not host.ledger.grants()
        assert names(host.allocate("a")) == ["vendor.com/gpu=a"]


class TestTaken:
    """The ledger is the only arbiter."""

    def external(self, host, index):
        device = host.resource.units[index].device
        host.ledger.set_owners(NAME, ["kubernetes", "claims"])
        host.ledger.add(Key("gpu", "drm", "job-42"), {"gpu": 1}, lambda _held: [hold_of(device)], "claims")

    def test_what_others_hold(self, host):
        self.external(host, 1)
        said, troubles = host.refused("0", "1", "2")
        assert troubles == {"1": "taken: node:/dev/gpu1: request job-42 of gpu/drm (claims) holds node:/dev/gpu1"}
        assert "vendor.com/gpu: 1: taken" in said
        assert [host.state_of(unit) for unit in "012"] == ["free"] * 3

    def test_what_the_kubelet_is_told_of_before(self, host):
        """Each unit that Allocate would refuse is in trouble, and no other."""
        self.external(host, 1)
        host.allocate("0")
        assert taken(host.resource, read(host.ledger)) == {
            "1": "taken: request job-42 of gpu/drm (claims) holds node:/dev/gpu1"
        }

    def test_a_store_that_can_not_be_used(self, host):
        (host.state).mkdir(mode=0o777)
        os.chmod(host.state, 0o777)
        said, troubles = host.refused("0")
        assert "expected root's or this user's that nobody else can write to" in said
        assert troubles == {}


class TestCommands:
    """Setup and teardown, when a device changes hands."""

    @pytest.fixture
    def host(self, tmp_path, trusted):
        log = tmp_path / "log"
        say = program(trusted, "say", f'echo "$CDI_COMMAND $CDI_REQUEST_ID" >> {log}')
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

    def test_a_shared_device_is_set_up_for_the_first_replica(self, tmp_path, trusted):
        say = program(trusted, "say", f'echo "$CDI_COMMAND $CDI_REQUEST_ID" >> {tmp_path / "log"}')
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
        kept = taken(host.resource, read(host.ledger))
        assert list(kept) == ["1"]
        assert kept["1"].startswith("setup: ")
        assert "fleet-cdi grants release node:/dev/gpu1" in kept["1"]
        assert list(host.refused("0", "1")[1]) == ["1"]
        host.allocate("0", "2")
        host.ledger.release("node:/dev/gpu1")
        assert taken(host.resource, read(host.ledger)) == {}

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
        host.ledger.delete(key_of(NAME, "0"))
        host.ledger.add(key_of(NAME, "0"), {NAME: 1}, lambda _held: part.holds, "kubernetes", pending=True)
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
            with turns.turn(str(host.state), [key_of(NAME, "0")], 1):
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
        with turns.turn(str(host.state), [key_of(NAME, "1")], 1):
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

    @pytest.mark.parametrize(
        ("commands_", "devices", "seconds"),
        [([], 20, 0), (["setup"], 1, 20), (["setup"], 16, 20), (["setup"], 17, 30), (["setup", "teardown"], 2, 40)],
    )
    def test_how_long_it_may_take(self, commands_, devices, seconds):
        settings = ResourceSettings("a.com/b", time_limit=10)._replace(**dict.fromkeys(commands_, ("/x",)))
        assert longest(settings, devices) == seconds


class TestStart:
    """PreStartContainer: at each start of a container, restarts too."""

    @pytest.fixture
    def host(self, tmp_path, trusted):
        say = program(trusted, "say", f'echo "$CDI_COMMAND $CDI_REQUEST_ID" >> {tmp_path / "log"}')
        return Host(tmp_path, setup=say, teardown=say)

    def test_a_restart_changes_nothing(self, host):
        host.allocate("0")
        part = host.part("0")
        host.allocator.start(host.resource, ["0"])
        assert host.ran() == ["ADD 0"]
        assert host.part("0") == part

    def test_after_a_reboot_the_same_holder_is_set_up_again(self, host):
        host.allocate("0", "1")
        host.log.unlink()
        host.reboot("boot-2")
        host.allocator.start(host.resource, ["0", "1"])
        host.allocator.start(host.resource, ["0", "1"])
        assert host.ran() == ["ADD 0", "ADD 1"]
        assert (host.part("0").boot_id, host.state_of("0")) == ("boot-2", "active")

    def test_without_a_hold(self, host):
        host.allocator.start(host.resource, ["2"])
        assert host.ran() == ["ADD 2"]
        assert host.state_of("2") == "active"

    def test_an_unhealthy_device_is_no_reason_to_stop_its_container(self, host):
        host.allocate("0")
        host.unplug(0)
        host.allocator.start(host.resource, ["0"])

    def test_what_fails_stops_the_container(self, host, trusted):
        host.allocate("0")
        host.reboot("boot-2")
        fails = program(trusted, "fails", "exit 1")
        host.resource = host.resource._replace(settings=host.resource.settings._replace(setup=tuple(fails)))
        with pytest.raises(Failed) as refused:
            host.allocator.start(host.resource, ["0"])
        assert list(refused.value.troubles) == ["0"]
        assert host.state_of("0") == "withheld"

    def test_unknown(self, host):
        with pytest.raises(Failed, match="found the device '9'"):
            host.allocator.start(host.resource, ["9"])


def test_no_command_is_no_failure():
    assert commands.run(ResourceSettings("a.com/b"), "setup", {"0": ("x", ())}) == {}
    assert commands.run(ResourceSettings("a.com/b", setup=("/none",)), "setup", {}) == {}
