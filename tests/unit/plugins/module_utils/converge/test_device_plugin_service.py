# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module device_plugin_service: instances a and b on a host whose systemd, processes and clock are the test's."""

from __future__ import annotations

import os
import socket

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.allocation import handover
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge import device_plugin_leftovers as leftovers
from ansible_collections.fleet.cdi.plugins.module_utils.converge import device_plugin_service as service
from ansible_collections.fleet.cdi.plugins.module_utils.converge import device_plugin_unit as unit_file
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device

UNIT = unit_file.Unit()
OLD, NEW = "0.1.0-000000000000", "0.1.0-111111111111"


class Node:
    """systemd, the instances that it runs, and time, which passes while somebody waits."""

    def __init__(self, state_dir):
        self.state_dir, self.release, self.booted = state_dir, OLD, True
        self.enabled, self.processes, self.told, self.now = set(), {}, [], 0.0
        self.kubelet_takes = 1.0  # seconds until the kubelet watches what a new instance offers; None: it never does
        self.offers = {"vendor.com/gpu": {}, "vendor.com/nic": {}}
        self.error = None

    def install(self, unit=UNIT, check=False, wait=60):
        host = service.Host(
            self.run, lambda: self.booted, self.statuses, self.environment, lambda: self.now, self.sleep
        )
        return service.install(unit, self.release, self.state_dir, wait, check, host)

    def uninstall(self, kubelet_dir, check=False):
        host = service.Host(self.run, lambda: self.booted, self.statuses, self.environment)
        return service.uninstall(self.state_dir, kubelet_dir, check, host)

    def run(self, command):
        program, *words = command
        names = [word.partition("@")[2].partition(".")[0] for word in words[1:] if not word.startswith("-")]
        if words[0] == "is-enabled":
            return 0, "".join("enabled\n" if one in self.enabled else "disabled\n" for one in names)
        if words[0] == "is-active":
            return 0, "".join("active\n" if one in self.processes else "inactive\n" for one in names)
        if words[0] == "show":
            return 0, f"{1000 + ord(names[0])}\n" if names[0] in self.processes else "0\n"
        if program == "journalctl":
            return 0, "level=error msg=broken\n"
        self.told.append(" ".join(words).replace("fleet-cdi-device-plugin@", "").replace(".service", ""))
        if words[0] in ("start", "restart"):
            self.now += 10
            with open(unit_file.path(), "rb") as file:
                mark = unit_file.mark(file.read())
            self.processes[names[0]] = (mark, self.release, self.now, dict(self.offers))
        self.enabled |= set(names) if words[0] == "enable" else set()
        if words[0] == "disable":
            self.enabled -= set(names)
            for name in names if "--now" in words else ():
                self.processes.pop(name, None)
        return 0, ""

    def statuses(self):
        watched = min((start for _mark, _release, start, _offers in self.processes.values()), default=0)

        def streams(start):
            return start == watched or (self.kubelet_takes is not None and self.now - start >= self.kubelet_takes)

        def ready(start):
            return self.now - start >= 0.4 or start == watched

        return {
            name: {
                "instance": name,
                "release": release,
                "ready": ready(start),
                "config": {"error": self.error if start != watched else None},
                "resources": {one: {"stream": streams(start)} for one in offers if ready(start)},
            }
            for name, (_mark, release, start, offers) in self.processes.items()
        }

    def environment(self, process):
        mark = self.processes[chr(process - 1000)][0]
        return f"PATH=/bin\0{unit_file.MARK}={mark}\0".encode()

    def sleep(self, seconds):
        self.now += seconds

    @property
    def runs(self):
        return {name: release for name, (_mark, release, _start, _offers) in self.processes.items()}


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A host with nothing of ours; the unit goes below tmp_path."""
    monkeypatch.setattr(unit_file, "UNIT_DIR", str(tmp_path / "units"))
    monkeypatch.setattr(unit_file, "RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(service.shutil, "which", lambda name: f"/usr/bin/{name}")
    return Node(str(tmp_path / "state"))


def test_the_first_instance_is_a_and_the_second_time_nothing_changes(node):
    done = node.install()
    assert done["changed"] and done["instance"] == "a"
    assert node.told == ["daemon-reload", "enable a", "restart a"]
    assert node.runs == {"a": OLD} and node.enabled == {"a"}
    node.told.clear()
    assert node.install() == {"changed": False, "diff": [], "instance": "a"}
    assert node.told == []


def test_check_mode_shows_what_the_run_does(node, tmp_path):
    preview = node.install(check=True)
    assert node.told == [] and not list(tmp_path.iterdir())
    assert preview == node.install()
    assert [one["after_header"] for one in preview["diff"]] == [unit_file.path(), "systemd"]


def test_a_new_release_starts_beside_the_old_one_which_stops_when_the_kubelet_has_moved(node):
    node.install()
    node.told.clear()
    node.release, start = NEW, node.now + 10
    assert node.install()["instance"] == "b"
    assert node.told == ["daemon-reload", "enable b", "restart b", "disable --now a"]
    assert node.runs == {"b": NEW} and node.enabled == {"b"}
    assert node.now >= start + node.kubelet_takes, "it was not waited for"
    assert not node.install()["changed"]
    node.release = OLD
    assert node.install()["instance"] == "a", "and the other way round"


def test_so_does_a_new_unit(node):
    node.install()
    changed = UNIT._replace(metrics="127.0.0.1:9400")
    assert node.install(changed)["instance"] == "b"
    assert not node.install(changed)["changed"]


def test_where_the_kubelet_does_not_move_the_old_one_goes_on(node):
    node.install()
    node.release, node.kubelet_takes = NEW, None
    with pytest.raises(CdiError, match="fleet-cdi-device-plugin@b.service: did not take over within 5 s") as error:
        node.install(wait=5)
    assert "the kubelet does not watch vendor.com/gpu, vendor.com/nic there yet" in str(error.value)
    assert "goes on serving" in str(error.value) and "level=error msg=broken" in str(error.value)
    assert node.runs == {"a": OLD} and node.enabled == {"a"}
    node.kubelet_takes = 1
    assert node.install()["instance"] == "b", "the next run tries again"


def test_a_configuration_that_the_new_one_does_not_take_is_told_at_once(node):
    node.install()
    node.release, node.error = NEW, "/etc/x.json: resources is unknown"
    with pytest.raises(CdiError, match="/etc/x.json: resources is unknown"):
        node.install()
    assert node.now < 21 and node.runs == {"a": OLD}


def test_a_resource_that_is_not_offered_any_more_is_not_waited_for(node):
    node.install()
    node.release = NEW
    del node.offers["vendor.com/nic"]
    node.install()
    assert node.runs == {"b": NEW}


@pytest.mark.parametrize("after", ["enable b", "restart b"])
def test_a_run_that_was_killed_is_ended_by_the_next_one(node, after):
    node.install()
    node.release = NEW
    run = node.run

    class Killed(BaseException):
        pass

    def killed(command):
        done = run(command)
        if node.told and node.told[-1] == after:
            raise Killed
        return done

    node.told.clear()
    node.run = killed
    with pytest.raises(Killed):
        node.install()
    node.run, node.kubelet_takes = run, 0
    node.install()
    assert node.runs == {"b": NEW} and node.enabled == {"b"}


def test_two_that_are_both_old(node):
    node.install()
    node.processes["b"] = ("other", OLD, 3, {})
    node.release = NEW
    node.install()
    assert len(node.runs) == 1 and set(node.runs.values()) == {NEW} and node.enabled == set(node.runs)


def test_one_that_was_stopped_or_disabled_is_put_right(node):
    node.install()
    node.processes.clear()
    assert node.install()["changed"] and node.runs == {"a": OLD}
    node.enabled.clear()
    assert node.install()["changed"] and node.enabled == {"a"}


def test_in_an_image_it_is_enabled_and_not_started(node):
    node.booted = False
    assert node.install()["changed"]
    assert node.told == ["enable a"] and not node.install()["changed"]


def test_a_foreign_unit_stays(node):
    os.makedirs(unit_file.UNIT_DIR)
    with open(unit_file.path(), "w") as file:
        file.write("theirs")
    with pytest.raises(CdiError, match="is not ours"):
        node.install()
    assert node.told == []


class TestAbsent:
    @pytest.fixture
    def kubelet(self, tmp_path, monkeypatch):
        """A kubelet's directory, with a socket of ours that a killed process left, and two that stay."""
        directory = tmp_path / "kubelet"
        (directory / "device-plugins").mkdir(parents=True)
        monkeypatch.chdir(directory / "device-plugins")  # the whole path is too long for a socket's name
        sockets = {
            name: socket.socket(socket.AF_UNIX) for name in ("fleet-cdi-1.sock", "theirs.sock", "fleet-cdi-2.sock")
        }
        for name, one in sockets.items():
            one.bind(name)
        sockets["fleet-cdi-2.sock"].listen()
        sockets["fleet-cdi-1.sock"].close()
        sockets["theirs.sock"].close()
        yield directory
        sockets["fleet-cdi-2.sock"].close()

    def test_it_takes_every_trace_and_nothing_of_others(self, node, tmp_path, kubelet):
        node.install()
        (tmp_path / "run").mkdir()
        (tmp_path / "run/a.json").write_text("{}")
        node.told.clear()
        preview, _warnings = node.uninstall(str(kubelet), check=True)
        assert preview["changed"] and node.told == []
        done, warnings = node.uninstall(str(kubelet))
        assert done == preview and warnings == []
        assert node.told == ["disable --now a b", "daemon-reload", "reset-failed a b"] and node.runs == {}
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kubelet"]
        assert sorted(os.listdir(kubelet / "device-plugins")) == ["fleet-cdi-2.sock", "theirs.sock"]
        assert node.uninstall(str(kubelet)) == ({"changed": False, "diff": [], "instance": None}, [])

    def test_undo_does_so_as_well(self, node, tmp_path, monkeypatch):
        node.install()
        monkeypatch.setattr(service, "stop", lambda: node.run(["systemctl", "disable", "--now", "@a.", "@b."]))
        monkeypatch.setattr(service, "forget", lambda: node.run(["systemctl", "daemon-reload"]))
        assert undo(node.state_dir, check=True).removed == (unit_file.path(),) and node.runs
        undo(node.state_dir)
        assert not list(tmp_path.iterdir()) and not node.runs and not node.enabled

    @pytest.mark.parametrize(("used", "left"), [("", 0), ("the kubelet has 1 devices in use by pods", 1)])
    def test_holds_go_unless_pods_may_use_them(self, node, tmp_path, monkeypatch, used, left):
        node.install()
        ledger = Ledger(node.state_dir, inventory.boot_id())
        gpu = Device("pci:0000:3b:00.0", "gpu", "vendor.com/gpu", ("gpu0",), ())
        handover.take(ledger, "vendor.com/gpu", [handover.Want("gpu0", gpu)])
        monkeypatch.setattr(leftovers, "_used", lambda _path: used)
        _done, warnings = node.uninstall(str(tmp_path / "none"))
        assert len(list(handover.holds(ledger.grants()))) == left
        assert [one for one in warnings if "pci:0000:3b:00.0" in one and "grants release" in one] == warnings[:left]


def test_a_host_without_systemd_is_told_so(node, monkeypatch):
    monkeypatch.setattr(service.shutil, "which", lambda _name: None)
    with pytest.raises(CdiError, match="systemctl: there is none"):
        node.install()
    assert node.uninstall("/nowhere")[0]["changed"] is False
    assert files.manifest(node.state_dir).files == {}
