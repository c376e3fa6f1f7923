# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kind whose manifest was lost: a provisioning with other devices takes its files over, as doctor says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge import module_diff
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import view
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rule import find_problems
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.state import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import plan_kind, spec
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.device_state import (
    WantedDeviceState,
    converge_state,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest, read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import LINK

KIND = "fleet.cdi/misc"

pytestmark = pytest.mark.skipif(
    not all(map(os.path.exists, ("/dev/fuse", "/dev/net/tun", "/sys/class/misc/fuse", "/sys/class/misc/tun"))),
    reason="this host has no /dev/fuse and /dev/net/tun to offer",
)


class Provisioned:
    """A host that offers two devices."""

    def __init__(self, root):
        self.root = root
        self.places = Layout(
            str(root / "state"), str(root / "run/inventory.json"), str(root / "conf"), spec_dirs=(str(root / "cdi"),)
        )
        self.path = root / "cdi/fleet.cdi-misc.json"

    def provision(self, *nodes, **more):
        entries = {"misc": {"profile": "misc", "nodes": list(nodes)}}
        return spec.converge_spec(WantedKind(KIND, entries, runtimes={"podman": "5.4.0"}), self.places, **more)

    def configure(self):
        args = {"match": {"subsystem": "misc", "node": "/dev/net/tun"}, "kind": KIND}
        content = {"cdiVersion": "0.0.2", "type": "misc", "name": "m", "plugin": "rule", "args": args}
        path = self.root / "conf/misc.d/m.conf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))

    def lose(self):
        (self.root / "state/manifest.json").unlink()

    def offered(self):
        return [device["name"] for device in json.loads(self.path.read_bytes())["devices"]]

    def files(self):
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    def problems(self):
        return {one.rule: one.next for one in find_problems(RULES, view.take(self.places))}


@pytest.fixture
def host(tmp_path):
    made = Provisioned(tmp_path)
    made.provision("fuse", "net/tun")
    return made


def test_the_way_on_after_a_lost_manifest(host):
    """Lose it, lose a device, follow doctor: all files are right, and undo leaves none of them."""
    host.configure()
    assert refresh(host.places).failed == ()
    before = host.files()
    assert [one for one in before if one.startswith("run/inventory.d/")]
    host.lose()
    advice = host.problems()["manifest-gone"]
    assert "run the provisioning again: `ansible-playbook fleet.cdi.provision`" in advice
    preview = host.provision("fuse", check=True)
    [told] = [text for text in preview.warnings if str(host.path) in text]
    assert told.endswith("does not know it any more. It is taken over: undo removes it")
    assert [json.loads(one.before)["devices"] != json.loads(one.after)["devices"] for one in preview.plan.changes] == [
        True,
        True,
    ]
    done = host.provision("fuse")
    assert (done.plan, done.warnings) == (preview.plan, preview.warnings)
    assert host.offered() == ["fuse"] and host.files() == before
    assert converge_state(WantedDeviceState("misc:tun", "broken"), host.places).report.failed == ()
    [pool] = (host.root / "run/inventory.d").iterdir()
    assert '"reserved"' in pool.read_text()
    assert (refresh(host.places).failed, host.problems()) == ((), {})
    again = host.provision("fuse")
    assert again.plan.changes == () and not any("taken over" in text for text in again.warnings)
    assert undo(host.places).kept == ()
    assert host.files() == ["conf/misc.d/m.conf"]


def test_identical_files_are_only_taken_over(host):
    """Their content is the wanted one. The diff says that they are taken over, and nothing else."""
    host.lose()
    done = host.provision("fuse", "net/tun")
    told = [module_diff.brief(part) for part in spec.result_of_kinds(spec.SpecOutcomes(done.plan, {}, {}, ()))["diff"]]
    assert [(one["after_header"], one["prepared"]) for one in told] == [
        (path, module_diff.TAKEN_OVER) for path in (str(host.path), host.places.inventory)
    ]
    assert not any("taken over" in text for text in done.warnings)


def test_the_last_device_may_be_gone_as_well(host):
    host.lose()
    assert any("taken over" in text for text in host.provision("no/such").warnings)
    assert not host.path.exists() and not os.path.exists(host.places.inventory)
    assert undo(host.places).kept == () and host.files() == []


def test_explicit_content_takes_it_over_too(host):
    host.lose()
    content = {"devices": [{"name": "own", "containerEdits": {"env": ["A=1"]}}]}
    wanted = WantedKind(KIND, content=content, runtimes={"podman": "5.4.0"})
    assert any("It is taken over" in text for text in spec.converge_spec(wanted, host.places).warnings)
    assert host.offered() == ["own"]


FOREIGN = {
    "another layout": lambda spec: json.dumps(spec, indent=4),
    "another kind": lambda spec: json.dumps({**spec, "kind": "vendor.com/other"}, indent=2) + "\n",
    "no spec": lambda _spec: "{}\n",
}


@pytest.mark.parametrize("write", FOREIGN.values(), ids=FOREIGN)
def test_what_only_looks_like_it_is_not_taken_over(host, write):
    host.lose()
    theirs = write(json.loads(host.path.read_bytes()))
    host.path.write_text(theirs)
    try:
        host.provision("fuse")
    except CdiError as error:
        assert "is not ours" in str(error)
    assert host.path.read_text() == theirs


def test_an_inventory_of_another_form_is_not_taken_over(host):
    host.lose()
    Path(host.places.inventory).write_text('{"devices": []}')
    with pytest.raises(CdiError, match="inventory.json: is not ours"):
        host.provision("fuse")


def test_a_refresh_leaves_it_to_the_module(host):
    """The manifest is of a backup from before the spec: a refresh can't ask an operator, so it fails."""
    with locked_manifest(host.places.state_dir) as manifest:
        manifest.forget(str(host.path))
        memory = json.loads(json.dumps(manifest.kinds[KIND]))
        memory["wanted"]["entries"]["misc"]["nodes"] = ["fuse"]
        manifest.remember({KIND: memory})
    done = refresh(host.places, grace=0)
    assert done.unmet == (KIND,) and "fleet.cdi wrote this, but" in done.failed[0]
    assert not any("taken over" in text for text in done.warnings) and host.offered() == ["fuse", "tun"]
    assert read_manifest(host.places.state_dir).record(str(host.path)) is None


def test_who_names_the_place_behind_a_link_has_the_runtimes_look_there(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "etc").symlink_to("real")
    usual = (str(tmp_path / "etc"), str(tmp_path / "run"))
    monkeypatch.setattr(plan_kind, "USUAL", plan_kind.USUAL._replace(spec_dirs=usual))
    boot = inventory.boot_id()
    assert [one.path for one in plan_kind.known(usual[0], "", boot).registry.unread if one.why == LINK] == [usual[0]]
    assert [one for one in plan_kind.known(str(tmp_path / "real"), "", boot).registry.unread if one.why == LINK] == []
