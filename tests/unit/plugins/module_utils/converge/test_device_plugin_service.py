# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module device_plugin_service: instances a and b on a host whose systemd, processes and clock are the test's."""

from __future__ import annotations

import json
import os
import socket

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation import handover, schema
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge import device_plugin_config
from ansible_collections.fleet.cdi.plugins.module_utils.converge import device_plugin_service as service
from ansible_collections.fleet.cdi.plugins.module_utils.converge import device_plugin_unit as unit_file
from ansible_collections.fleet.cdi.plugins.module_utils.converge import undo as undo_room
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import pods
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
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
        self.stubborn = False  # its processes don't stop

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
        if words[0] == "stop" and self.stubborn:
            return 1, "Job timed out.\n"
        self.told.append(" ".join(words).replace("fleet-cdi-device-plugin@", "").replace(".service", ""))
        if words[0] in ("start", "restart"):
            self.now += 10
            with open(unit_file.path(), "rb") as file:
                mark = unit_file.mark(file.read())
            self.processes[names[0]] = (mark, self.release, self.now, dict(self.offers))
        self.enabled |= set(names) if words[0] == "enable" else set()
        self.enabled -= set(names) if words[0] == "disable" else set()
        for name in names if words[0] == "stop" or "--now" in words else ():
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
            for name, (_mark, release, start, offers) in sorted(self.processes.items(), key=lambda item: item[1][2])
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


def test_check_mode_says_so_before_the_new_release_is_there(node, monkeypatch):
    unit = UNIT._replace(state_dir=node.state_dir)
    node.install(unit)
    install, host = service.install, service.Host(node.run, lambda: True, node.statuses, node.environment)
    monkeypatch.setattr(service, "install", lambda *arguments: install(*arguments, host))
    monkeypatch.setattr(service.guard, "active", lambda _prefix: OLD)
    for release, changed in ((OLD, False), (NEW, True)):
        options = {**unit._asdict(), "state": "present", "wait": 60, "release": release}
        preview, _warnings = service.answer(options, True)
        assert preview["changed"] == changed
    assert node.runs == {"a": OLD}


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


def test_the_next_run_after_one_that_was_killed_stops_none_before_the_kubelet_has_moved(node):
    node.install()
    node.release, node.kubelet_takes = NEW, None
    killed = node.run

    def run(command):
        done = killed(command)
        if node.told[-1] == "restart b":
            raise KeyboardInterrupt
        return done

    node.run = run
    with pytest.raises(KeyboardInterrupt):
        node.install()
    node.run = killed
    assert node.runs == {"a": OLD, "b": NEW}
    node.told.clear()
    with pytest.raises(CdiError, match="did not take over within 5 s"):
        node.install(wait=5)
    assert node.runs == {"a": OLD} and node.enabled == {"a"}
    assert "restart b" not in node.told, "one that runs already is waited for, and not made to start anew"


def test_one_that_systemd_can_not_start_is_not_tried_for_ever_beside_the_old_one(node):
    node.install()
    node.release = NEW
    run = node.run

    def fails(command):
        if command[1] == "restart":
            return 1, "Job for fleet-cdi-device-plugin@b.service failed.\n"
        return run(command)

    node.run = fails
    node.told.clear()
    with pytest.raises(CdiError, match=r"b.service: .* Job for .* failed\. The one that ran before goes on"):
        node.install()
    assert node.told == ["daemon-reload", "enable b", "disable --now b"]
    assert node.runs == {"a": OLD} and node.enabled == {"a"}


@pytest.mark.parametrize(("release", "stays"), [(OLD, "a"), (NEW, "b")])
def test_of_an_upgrade_that_was_killed_either_release_can_be_kept(node, release, stays):
    node.install()
    node.processes["b"] = (node.processes["a"][0], NEW, node.now + 1, dict(node.offers))
    node.enabled.add("b")
    node.now += 60
    node.told.clear()
    node.release = release
    node.install()
    assert node.runs == {stays: release} and node.enabled == {stays}
    assert not any(one.startswith("restart") for one in node.told)


def test_a_right_one_that_a_younger_one_has_replaced_takes_over_from_that(node):
    node.install()
    node.processes["b"] = (node.processes["a"][0], NEW, node.now + 1, dict(node.offers))
    node.enabled.add("b")
    node.now += 60
    statuses = node.statuses

    def only_the_youngest_serves():
        found = statuses()
        for one in [*found.values()][:-1] if [*found.values()][-1]["resources"] else ():
            one["resources"] = {name: {"stream": False} for name in one["resources"]}
        return found

    node.statuses = only_the_youngest_serves
    node.told.clear()
    node.install()
    assert node.told == ["daemon-reload", "enable a", "restart a", "disable --now b"], "b serves until a is there"
    assert node.runs == {"a": OLD}


def test_of_two_that_are_both_right_the_one_that_serves_goes_on(node):
    node.install()
    node.processes["b"] = (*node.processes["a"][:2], node.now + 1, dict(node.offers))
    node.now += 60
    assert node.install()["instance"] == "b" and node.runs == {"b": OLD}


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
    node.enabled.add("b")
    assert node.install()["changed"] and node.enabled == {"a"}, "the other one would start at boot, too"


def test_of_two_that_do_not_run_the_one_that_would_at_boot_does(node):
    node.install()
    node.release = NEW
    node.install()
    node.processes.clear()
    assert node.install()["instance"] == "b" and node.runs == {"b": NEW}


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
        assert node.told == ["stop a b", "disable a b", "daemon-reload", "reset-failed a b"] and node.runs == {}
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kubelet"]
        assert sorted(os.listdir(kubelet / "device-plugins")) == ["fleet-cdi-2.sock", "theirs.sock"]
        assert node.uninstall(str(kubelet)) == ({"changed": False, "diff": [], "instance": None}, [])

    @pytest.fixture
    def undone(self, node, monkeypatch):
        """`fleet-cdi undo` on this node."""
        stop, forget, this = service.stop, service.forget, service.Host(node.run, lambda: True)
        monkeypatch.setattr(service, "stop", lambda host=this: stop(host))
        monkeypatch.setattr(service, "forget", lambda host=this: forget(host))
        return lambda **options: undo(node.state_dir, **options)

    def test_undo_does_so_as_well(self, node, tmp_path, undone):
        node.install()
        assert undone(check=True).removed == (unit_file.path(),) and node.runs
        undone()
        assert not list(tmp_path.iterdir()) and not node.runs and not node.enabled

    @pytest.mark.parametrize("after", ["stop a b", "disable a b", "daemon-reload"])
    def test_a_removal_that_was_killed_is_ended_by_the_next_one(self, node, tmp_path, kubelet, after):
        node.install()
        run = node.run

        def killed(command):
            done = run(command)
            if node.told[-1:] == [after]:
                raise KeyboardInterrupt
            return done

        node.told.clear()
        node.run = killed
        with pytest.raises(KeyboardInterrupt):
            node.uninstall(str(kubelet))
        node.run = run
        node.uninstall(str(kubelet))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kubelet"]
        assert not node.runs and not node.enabled

    def test_one_that_does_not_stop_keeps_its_unit_and_its_status(self, node, tmp_path, kubelet):
        node.install()
        (tmp_path / "run").mkdir()
        node.stubborn = True
        with pytest.raises(CdiError, match=r"fleet-cdi-device-plugin@a.service: can't be stopped: Job timed out"):
            node.uninstall(str(kubelet))
        assert os.path.exists(unit_file.path()) and (tmp_path / "run").exists()

    def test_a_unit_that_somebody_changed_is_refused_before_anything_stops(self, node, kubelet):
        node.install()
        with open(unit_file.path(), "a") as file:
            file.write("# mine\n")
        for check in (True, False):
            with pytest.raises(CdiError, match="was changed by somebody else"):
                node.uninstall(str(kubelet), check)
        assert node.runs == {"a": OLD}

    GPU = Device("pci:0000:3b:00.0", "gpu", "vendor.com/gpu", ("gpu0",), ())

    @pytest.mark.parametrize(
        ("socket_at", "used", "why"),
        [
            (None, None, ""),
            ("kubelet", [("vendor.com/gpu", "gpu0")], "the kubelet has 1 devices in use by pods"),
            ("kubelet", [("other.com/gpu", "gpu0")], ""),
            ("kubelet", None, "can't be asked which pods use them"),  # it is stopped, and its pods go on
            ("configured", [("vendor.com/gpu", "gpu0")], "the kubelet has 1 devices in use by pods"),
        ],
    )
    @pytest.mark.parametrize("by", ["module", "undo"])
    def test_holds_go_unless_pods_may_use_them(self, node, tmp_path, monkeypatch, undone, socket_at, used, why, by):
        async def in_use(path):
            assert path == str(tmp_path / f"{socket_at}/pod-resources/kubelet.sock")
            if used is None:
                raise pods.Unavailable("nobody answers", "absent")
            return pods.InUse(1, frozenset(used))

        usual = str(tmp_path / "kubelet")
        monkeypatch.setattr(pods, "in_use", in_use)
        monkeypatch.setattr(undo_room, "KUBELET", usual)
        if socket_at:
            (tmp_path / socket_at / "pod-resources/kubelet.sock").mkdir(parents=True)  # anything of that name
        node.install()
        document = {"version": 1, "plugin_dir": str(tmp_path / "configured/device-plugins")}
        config = str(tmp_path / "etc/device-plugin.json")
        device_plugin_config.write(config, json.dumps(document).encode(), node.state_dir, False, False)
        ledger = Ledger(node.state_dir, inventory.boot_id())
        handover.take(ledger, "vendor.com/gpu", [handover.Want("gpu0", self.GPU)])

        if by == "undo":
            previewed = undone(check=True)
            assert list(handover.holds(ledger.grants())) and node.runs, "check mode frees nothing and stops nothing"
            done = undone()
            assert previewed == done
            kept = done.kept
            assert [path for path, _why in kept] == ([ledger.path] if why else [])
            assert all(why in reason and "fleet-cdi plugin forget" in reason for _path, reason in kept)
        else:
            _done, previewed = node.uninstall(usual, check=True)
            assert list(handover.holds(ledger.grants())), "check mode frees nothing"
            _done, warnings = node.uninstall(usual)
            assert warnings == previewed and len(warnings) == (1 if why else 0)
            assert all(why in one and self.GPU.id in one and "fleet-cdi plugin forget" in one for one in warnings)
        assert os.path.exists(ledger.path) or not why
        assert not why or len(list(handover.holds(ledger.grants()))) == 1

    def test_a_store_of_a_later_release_is_in_nobodys_way(self, node, kubelet, monkeypatch):
        node.install()
        ledger = Ledger(node.state_dir, inventory.boot_id())
        handover.take(ledger, "vendor.com/gpu", [handover.Want("gpu0", self.GPU)])
        for name in ("VERSION", "USER_VERSION"):
            monkeypatch.setattr(schema, name, 0)
        _done, warnings = node.uninstall(str(kubelet))
        assert len(warnings) == 1 and "what is held for Kubernetes stays so" in warnings[0]
        assert "Use the release that wrote it" in warnings[0]
        assert not node.runs and not os.path.exists(unit_file.path())


def test_a_host_without_systemd_is_told_so(node, monkeypatch):
    monkeypatch.setattr(service.shutil, "which", lambda _name: None)
    with pytest.raises(CdiError, match="systemctl: there is none"):
        node.install()
    assert node.uninstall("/nowhere")[0]["changed"] is False
    assert read_manifest(node.state_dir).files == {}
