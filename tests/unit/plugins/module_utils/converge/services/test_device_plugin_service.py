# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module device_plugin_service: instances a and b, and how one takes over from the other."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import device_links
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_config, units
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_service as service
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit as unit_file
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.services.plugin_node import NEW, OLD, UNIT


def test_the_first_instance_is_a_and_the_second_time_nothing_changes(node):
    done = node.install()
    assert done["changed"] and done["instance"] == "a"
    assert node.told == ["enable a", "restart a"]
    assert node.runs == {"a": OLD} and node.enabled == {"a"}
    node.told.clear()
    assert node.install() == {"changed": False, "diff": [], "instance": "a"}
    assert node.told == []


def test_systemd_reads_its_units_anew_only_where_it_has_an_old_one(node, monkeypatch):
    """And after the links by number are there: a reload takes devices away from containers that have none."""
    links = []

    def keep(_spec_dirs, _state_dir, check):
        links.append(check)
        node.told.append("links")
        return (device_links.LinkChange("/dev/char/195:0", "", "../nvidia0"),)

    monkeypatch.setattr(device_links, "keep_links", keep)
    assert node.install()["diff"][-1]["after"] == "symlink to ../nvidia0\n" and "daemon-reload" not in node.told
    node.told.clear()
    node.outdated = True
    node.install(unit=UNIT._replace(metrics="127.0.0.1:9"))
    assert node.told[:2] == ["links", "daemon-reload"] and links == [False, False]
    node.install(unit=UNIT._replace(device_access=True), check=True)
    assert links[2:] == [True]


def test_check_mode_shows_what_the_run_does(node, tmp_path):
    preview = node.install(check=True)
    assert node.told == [] and not list(tmp_path.iterdir())
    assert preview == node.install()
    assert [one["after_header"] for one in preview["diff"]] == [*unit_file.paths(), "systemd"]


def test_a_configuration_that_no_unit_names_any_more_goes_after_the_new_instance_took_over(node, tmp_path):
    """Else entry point `remove` would leave it. One that this unit never named is another's."""
    paths = [str(tmp_path / f"etc/{name}.json") for name in ("old", "new", "other")]
    for path in paths:
        device_plugin_config.write_config(path, b"{}", node.state_dir, False, False)
    node.install(unit=UNIT._replace(config_file=paths[0]))
    new = UNIT._replace(config_file=paths[1])
    node.kubelet_takes = None
    with pytest.raises(CdiError, match="did not take over"):
        node.install(unit=new, wait=1)
    node.kubelet_takes = 1.0
    assert all(map(os.path.exists, paths))
    preview = node.install(unit=new, check=True)
    assert preview["diff"] == node.install(unit=new)["diff"]
    assert paths[0] in [one["before_header"] for one in preview["diff"]]
    assert [*map(os.path.exists, paths)] == [False, True, True]
    assert not node.install(unit=new)["changed"]


def test_a_new_release_starts_beside_the_old_one_which_stops_when_the_kubelet_has_moved(node):
    node.install()
    node.told.clear()
    node.release, start = NEW, node.now + 10
    assert node.install()["instance"] == "b"
    assert node.told == ["enable b", "restart b", "disable a", "stop a"]
    assert node.runs == {"b": NEW} and node.enabled == {"b"}
    assert node.now >= start + node.kubelet_takes, "it was not waited for"
    assert not node.install()["changed"]
    node.release = OLD
    assert node.install()["instance"] == "a", "and the other way round"


@pytest.mark.usefixtures("bare_host")
def test_check_mode_says_so_before_the_new_release_is_there(node, monkeypatch):
    unit = UNIT._replace(state_dir=node.state_dir)
    node.install(unit)
    install, host = service.install, service.ServiceHost(node.run, lambda: True, node.statuses, node.environment)
    monkeypatch.setattr(service, "install", lambda *arguments: install(*arguments, host))
    monkeypatch.setattr(guard, "active", lambda _prefix: OLD)
    for release, changed in ((OLD, False), (NEW, True)):
        options = {**unit._asdict(), "state": "present", "timeout": 60, "release": release}
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
    assert node.told == ["enable b", "disable b", "stop b"]
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
    assert node.told == ["enable a", "restart a", "disable b", "stop b"], "b serves until a is there"
    assert node.runs == {"a": OLD}


def test_nothing_is_stopped_on_the_word_of_one_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(unit_file, "RUN_DIR", str(tmp_path))
    one = instance_status.InstanceEntry(str(tmp_path), "b")
    one.enter()
    one.write({"instance": "b", "since_boot": 1.0, "resources": {}})
    assert [*service.THIS.statuses()] == ["b"]
    monkeypatch.setattr(instance_status, "STALE", 0.0)
    assert [*service.THIS.statuses()] == []
    one.leave()


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
    assert node.told_of_socket == ["enable"] and node.socket == {"enabled"}


def test_who_looks_at_processes_comes_and_goes_by_the_option(node):
    """The daemon's own unit stays as it is, so nothing takes over from anything."""
    node.install()
    assert node.socket == {"enabled", "active"} and node.told_of_socket == ["enable", "restart"]
    node.told.clear()
    without = UNIT._replace(process_access=False)
    preview = node.install(without, check=True)
    assert node.socket == {"enabled", "active"} and all(map(os.path.exists, unit_file.paths()))
    assert node.install(without) == preview
    assert preview["diff"][-1]["after"]["looking"] == () and len(preview["diff"]) == 3
    assert node.socket == set() and [*map(os.path.exists, unit_file.paths())] == [True, False, False]
    assert not node.install(without)["changed"] and node.runs == {"a": OLD}
    assert node.install()["changed"] and node.socket == {"enabled", "active"}
    assert not node.install()["changed"] and node.told == ["enable a", "enable a"]


def test_a_host_that_never_had_it_has_none(node):
    node.install(UNIT._replace(process_access=False))
    node.socket = {"enabled"}  # somebody else's
    assert not node.install(UNIT._replace(process_access=False))["changed"]
    assert node.told_of_socket == [] and [*read_manifest(node.state_dir).files] == [unit_file.path()]


@pytest.mark.parametrize("what", ["enabled", "active"])
def test_a_socket_that_was_stopped_or_disabled_is_put_right(node, what):
    node.install()
    node.socket.discard(what)
    assert node.install(check=True)["changed"] and node.socket != {"enabled", "active"}
    assert node.install()["changed"] and node.socket == {"enabled", "active"} and node.runs == {"a": OLD}


def test_one_of_its_files_that_somebody_changed_is_refused_before_it_is_stopped(node):
    node.install()
    with open(unit_file.paths()[-1], "a") as file:
        file.write("# mine\n")
    for check in (True, False):
        with pytest.raises(CdiError, match="was changed since fleet.cdi wrote it"):
            node.install(UNIT._replace(process_access=False), check=check)
    assert node.socket == {"enabled", "active"}


def test_a_foreign_unit_stays(node):
    os.makedirs(unit_file.UNIT_DIR)
    with open(unit_file.path(), "w") as file:
        file.write("theirs")
    with pytest.raises(CdiError, match="is not ours"):
        node.install()
    assert node.told == []


def test_a_host_without_systemd_is_told_so(node, monkeypatch):
    monkeypatch.setattr(units.shutil, "which", lambda _name: None)
    with pytest.raises(CdiError, match="systemctl: this host has no such program"):
        node.install()
    assert node.uninstall("/nowhere")[0]["changed"] is False
    assert read_manifest(node.state_dir).files == {}
