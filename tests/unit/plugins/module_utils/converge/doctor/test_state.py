# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor in the state directory."""

from __future__ import annotations

import errno
import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rule import find_problems
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.converge.writable_places import WritablePlace
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.tests.unit.failing_read import failing_read
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import (
    KIND,
    device,
    told,
)


class TestState:
    @pytest.mark.parametrize(
        ("path", "rule_name"), [("manifest.json", "manifest-damaged"), ("device-state.json", "device-state-damaged")]
    )
    def test_what_is_damaged_hides_nothing_else(self, host, path, rule_name):
        host.put("etc/a.json", "x", ours=True)
        host.put("etc/b.json", "x")
        (host.root / "state" / path).write_text("{")
        found = told(host.diagnose())
        assert found == [(rule_name, f"{host.root}/state/{path}"), ("conflict", f"{host.root}/etc/b.json")]

    @pytest.mark.parametrize(
        ("name", "rule_name"), [("manifest.json", "manifest-unread"), ("device-state.json", "device-state-unread")]
    )
    @pytest.mark.parametrize("why", [errno.EACCES, errno.EPERM])
    def test_a_file_that_this_user_may_not_read_is_not_damaged(self, host, name, rule_name, why):
        host.put("etc/a.json", "x", ours=True)
        path = host.root / "state" / name
        path.touch()
        with failing_read(name, why=why):
            (found,) = host.diagnose()
        assert (found.rule, found.subject) == (rule_name, str(path))
        assert found.next == "run `sudo fleet-cdi doctor`"

    @pytest.mark.parametrize(
        ("name", "rule_name"), [("manifest.json", "manifest-damaged"), ("device-state.json", "device-state-damaged")]
    )
    def test_a_file_that_the_disk_does_not_give_is_damaged(self, host, name, rule_name):
        host.put("etc/a.json", "x", ours=True)
        path = host.root / "state" / name
        path.touch()
        with failing_read(name):
            assert told(host.diagnose()) == [(rule_name, str(path))]

    def test_settings_whose_names_do_not_resolve(self, host):
        """Two kinds, and "0 names resolve": one offers devices, one only has to find some."""
        wanted = {"entries": {"one": {"profile": "rule"}}}
        memory = {"wanted": wanted, "directory": host.directories[0], "inventory": "", "offered": {}, "gone": {}}
        with locked_manifest(str(host.root / "state")) as manifest:
            optional = {"entries": {"one": {"profile": "rule", "required": False}}}
            manifest.remember(
                {
                    KIND: {**memory, "wanted": optional, "offered": {"id:x": ["x"]}},
                    "vendor.com/nic": memory,
                    "vendor.com/none": {**memory, "wanted": optional},
                }
            )
        assert told(host.diagnose()) == [("kind-unresolved", KIND), ("kind-unresolved", "vendor.com/nic")]

    @pytest.mark.parametrize(("out", "rules"), [(["x", "y"], []), (["x"], ["kind-unresolved"])])
    def test_a_kind_of_which_operators_took_all_devices_out_of_service(self, host, out, rules):
        memory = {
            "wanted": {"entries": {"one": {"profile": "rule"}}},
            "directory": host.directories[0],
            "inventory": "",
            "offered": {},
            "gone": {},
        }
        with locked_manifest(str(host.root / "state")) as manifest:
            manifest.remember({KIND: memory})
        host.list_devices(device("x"), device("y"))
        since = {"reason": "cabling", "since": "2026-11-25T19:00:00Z", "until": "", "unique": ""}
        document = {"version": 1, "devices": {device(name).id: since for name in out}}
        (host.root / "state/device-state.json").write_text(json.dumps(document))
        assert [rule for rule, _subject in told(host.diagnose()) if rule == "kind-unresolved"] == rules


class TestDirectories:
    def remember(self, host, kind=KIND):
        memory = {"wanted": {"entries": {"one": {"profile": "rule"}}}, "inventory": "", "offered": {}, "gone": {}}
        with locked_manifest(str(host.root / "state")) as manifest:
            manifest.remember({kind: {**memory, "directory": host.directories[0]}})

    def diagnosed(self, host, *places):
        view = host.view()
        return find_problems(RULES, view._replace(written=view.written._replace(places=places)))

    @pytest.mark.parametrize(
        ("place", "rule"),
        [
            ({"full": "0 bytes free"}, "disk-full"),
            ({"full": "no inodes free"}, "disk-full"),
            ({"read_only": True}, "read-only"),
        ],
    )
    def test_why_nothing_can_be_written_and_not_what_follows_from_it(self, host, place, rule):
        self.remember(host)
        (found,) = self.diagnosed(host, WritablePlace(host.directories[0], **place))
        assert told([found]) == [(rule, host.directories[0])] and "nothing here can be written" in found.problem

    def test_a_read_only_directory_of_others_is_no_problem(self, host):
        assert self.diagnosed(host, WritablePlace("/etc/cdi", read_only=True)) == ()

    def test_where_files_are_written(self, host):
        assert [one.path for one in host.view().written.places] == [
            host.directories[0],
            str(host.root / "state"),
            str(host.root),
            str(host.root / "cdi"),
        ]
