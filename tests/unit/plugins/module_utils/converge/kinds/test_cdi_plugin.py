# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of the executables: written, previewed, refused, and their pools with them."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimPart, ClaimRecord, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.converge import module_diff
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import refresh_all
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.cdi_plugin import (
    WantedConfiguration,
    converge_configuration,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.configurations import directories
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

DOCUMENT = {"cdiVersion": "0.0.2", "name": "TTYs", "type": "tty", "plugin": "generic-tty", "args": {}}


@pytest.fixture
def host(tmp_path):
    """A host of our own below a directory, whose devices are those of this machine."""

    class Host:
        base = tmp_path
        places = Layout(str(tmp_path / "state"), str(tmp_path / "run/inventory.json"), str(tmp_path / "etc"))

        def converge(self, *document, name="generic", type_="tty", **options):
            wanted = WantedConfiguration(type_, name, *(document or (DOCUMENT,)), "me")
            return converge_configuration(wanted, self.places, str(tmp_path / "bin"), **options)

        def files(self):
            found = [path for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "state" not in path.parents]
            return sorted(str(path.relative_to(tmp_path)) for path in found if path.parent != tmp_path / "bin")

    (tmp_path / "bin").mkdir()
    for name in ("generic-tty", "rule"):
        (tmp_path / "bin" / name).symlink_to("/bin/true")
    return Host()


def test_written_with_its_pool_once(host):
    preview = host.converge(check=True)
    assert host.files() == []
    done = host.converge()
    assert preview.changed == done.changed
    assert done.path == str(host.base / "etc/tty.d/generic.conf")
    assert json.loads((host.base / "etc/tty.d/generic.conf").read_text()) == DOCUMENT
    conf, pool = host.files()
    assert conf == "etc/tty.d/generic.conf"
    assert pool.startswith("run/inventory.d/tty.generic-tty.")
    assert host.converge().changed == ()
    other = host.converge({**DOCUMENT, "args": {"num_system_reserved": 60}})
    assert len(other.changed) == 3, "the configuration, the new pool, and the old one that goes"


def test_without_its_pool_a_configuration_is_no_success(host):
    """Its executable would grant nothing. What is in the place of one pool stops no other."""
    host.converge()
    (pool,) = [path for path in host.files() if "inventory.d" in path]
    (host.base / pool).unlink()
    (host.base / pool).mkdir()
    for check in (True, False):
        with pytest.raises(CdiError, match=f"{pool}: .*its executable can grant nothing"):
            host.converge(check=check)
    host.converge({**DOCUMENT, "args": {"num_system_reserved": 60}}, name="other")
    assert [path for path in host.files() if "inventory.d" in path]


def test_two_configurations_at_the_same_time_have_a_pool_each(host, monkeypatch):
    real, others = refresh_all.discover_pools, [lambda: host.converge({**DOCUMENT, "type": "other"}, type_="other")]

    def after_the_look(*arguments):
        found = real(*arguments)
        while others:
            others.pop()()
        return found

    monkeypatch.setattr(refresh_all, "discover_pools", after_the_look)
    host.converge()
    assert [path.split(".")[1] for path in host.files() if "inventory.d" in path] == ["d/other", "d/tty"]


def test_a_refresh_keeps_the_pool_of_a_configuration_elsewhere(host):
    """The units' refresh knows no config_dir of the module's; the manifest has what the module wrote."""
    done = host.converge()
    before = host.files()
    usual = host.places._replace(config_dir=str(host.base / "usual"))
    assert (refresh(usual).changed, host.files()) == ((), before)
    assert directories(read_manifest(host.places.state_dir).files, "/usual") == ("/usual", str(host.base / "etc"))
    os.unlink(done.path)
    assert len(refresh(usual).changed) == 1
    assert host.files() == []


def test_a_preview_needs_no_executable_of_ours(host):
    (host.base / "bin/generic-tty").unlink()
    assert host.converge(check=True).changed
    with pytest.raises(CdiError, match="which is not a program in"):
        host.converge({**DOCUMENT, "plugin": "theirs"}, check=True)


def test_absent_and_undo(host):
    host.converge()
    preview = host.converge(None, check=True)
    assert len(host.converge(None).changed) == 2 == len(preview.changed)
    assert host.files() == []
    host.converge()
    assert undo(host.places).kept == ()
    assert host.files() == []


def test_one_that_was_deleted_and_is_not_wanted_is_forgotten(host):
    os.unlink(host.converge().path)
    preview = host.converge(None, check=True)
    assert preview.changed and preview.change.after is None
    done = host.converge(None)
    assert done.changed == preview.changed and read_manifest(host.places.state_dir).files == {}
    assert module_diff.document(done.change)["prepared"] == "is gone already; fleet.cdi forgets that it wrote it\n"
    assert host.converge(None).changed == ()


def test_a_foreign_file_stays(host):
    (host.base / "etc/tty.d").mkdir(parents=True)
    (host.base / "etc/tty.d/generic.conf").write_text("{}")
    for document in (DOCUMENT, None):
        with pytest.raises(CdiError, match="is not ours"):
            host.converge(document)
    host.converge(force=True)
    undo(host.places)
    assert (host.base / "etc/tty.d/generic.conf").read_text() == "{}"


def test_a_preview_judges_the_content_to_come(host):
    """The file that force replaces may be broken; and a new one may be, where the file on disk is not."""
    (host.base / "etc/tty.d").mkdir(parents=True)
    foreign = host.base / "etc/tty.d/generic.conf"
    foreign.write_text('{"mine": 1}')
    preview = host.converge(force=True, check=True)
    assert foreign.read_text() == '{"mine": 1}'
    assert (preview.changed, len(preview.changed)) == (host.converge(force=True).changed, 2)
    none = {"profile": "rule", "kind": "v.com/none", "match": {"driver": "no_such_driver"}, "required": True}
    with pytest.raises(CdiError, match="has required: true.* The configuration would be there"):
        host.converge({**DOCUMENT, "plugin": "rule", "args": none}, check=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plugin": "drm"}, "plugin: found 'drm', which is not a program in"),
        ({"plugin": "../bin/true"}, "'plugin' is"),
        ({"type": "cdiVersion"}, "names a field of replies"),
        ({"args": {"num_system_reserved": 99}}, "num_system_reserved"),
        ({"args": {"delegate": {"plugin": "generic-tty"}}}, "no loop"),
        ({"plugin": "rule", "args": {"profile": "gpu"}}, "unknown profile 'gpu'"),
        ({"plugin": "rule", "args": {}}, "match"),
        ({"args": {"owner": "me"}}, "args.owner: found 'me' (a text); expected one of claims, kubernetes, external"),
        ({"args": {"shared": "yes"}}, "args.shared: found 'yes'"),
        ({"args": {"setup": "/bin/true"}}, "args.setup: found '/bin/true'"),
        (
            {"args": {"delegate": {"plugin": "rule", "args": {"time_limit": 0}}}},
            "args.delegate.args.time_limit: found 0",
        ),
        (
            {"args": {"time_limt": 5}},
            "configuration tty/generic: args.time_limt: found the unknown option 'time_limt'; expected one of",
        ),
        ({"args": {"time_limt": 5}}, "; did you mean 'time_limit'?"),
        ({"args": {"picked": {"plugin": "rule", "devices": ["tty1"]}}}, "args.picked: is what a plugin that delegates"),
    ],
)
def test_what_the_executable_would_refuse_is_not_written(host, change, words):
    with pytest.raises(CdiError) as caught:
        host.converge({**DOCUMENT, **change}, type_=change.get("type", "tty"))
    assert words in str(caught.value)
    assert host.files() == []


@pytest.mark.parametrize(("name", "type_"), [("../x", "tty"), ("", "tty"), ("a.b", "tty"), ("x", "t-y"), ("x", "../t")])
def test_names_lead_nowhere_else(host, name, type_):
    with pytest.raises(CdiError, match="found"):
        host.converge(name=name, type_=type_)
    assert not os.path.exists(host.base / "etc")


def test_one_that_can_grant_nothing_is_an_error(host):
    args = {"profile": "rule", "kind": "v.com/none", "match": {"driver": "no_such_driver"}, "required": True}
    with pytest.raises(
        CdiError, match="generic.conf: .*found no device, but has required: true.*can grant nothing until"
    ):
        host.converge({**DOCUMENT, "plugin": "rule", "args": args})
    assert host.files()[0] == "etc/tty.d/generic.conf"


class TestHeld:
    @pytest.fixture
    def held(self, host):
        """A request holds a device by the configuration; the store."""
        host.converge()
        ledger = Ledger(host.places.state_dir, inventory.boot_id())
        ledger.add(
            Key("tty", "generic-tty", "job-1"),
            {"tty": 1},
            lambda _held: [Hold("tty:tty13", "fleet.cdi/tty")],
            "external",
        )
        return ledger

    def test_it_stays_until_the_device_is_given_back(self, host, held):
        before = host.files()
        for check in (True, False):
            kept = host.converge(None, check=check)
            assert kept.changed == () and host.files() == before
            assert "request job-1 (tty/generic-tty) has tty:tty13" in kept.warnings[0]
        with pytest.raises(CdiError, match="request job-1 .*Nothing was changed"):
            host.converge(None, on_held="fail")
        held.delete(Key("tty", "generic-tty", "job-1"))
        assert host.converge(None).changed and host.files() == []

    @pytest.mark.parametrize(
        "document",
        [
            {"plugin": "rule", "args": {"profile": "tty"}},
            {"plugin": "rule", "args": {"profile": "tty", "delegate": {"plugin": "drm"}}},
        ],
    )
    def test_it_keeps_its_plugin_until_then(self, host, held, document):
        """DEL of another plugin would not know the request, and leave its devices held."""
        (host.base / "bin/drm").symlink_to("/bin/true")
        before = host.files()
        kept = host.converge({**DOCUMENT, **document})
        assert kept.changed == () and host.files() == before
        assert "request job-1 (tty/generic-tty) has tty:tty13" in kept.warnings[0]
        with pytest.raises(CdiError, match="request job-1 .*Nothing was changed"):
            host.converge({**DOCUMENT, **document}, on_held="fail")
        with pytest.raises(CdiError, match="plugin: found 'other'"):
            host.converge({**DOCUMENT, "plugin": "other"})
        assert host.converge({**DOCUMENT, "args": {"num_system_reserved": 60}}).changed, "other args change nothing"
        held.delete(Key("tty", "generic-tty", "job-1"))
        assert host.converge({**DOCUMENT, **document}, on_held="fail").changed

    @pytest.mark.usefixtures("held")
    def test_it_keeps_what_it_delegates_to(self, host):
        (host.base / "bin/theirs").symlink_to("/bin/true")
        host.converge({**DOCUMENT, "args": {"delegate": {"plugin": "theirs"}}})
        with pytest.raises(CdiError, match="request job-1 .*Nothing was changed"):
            host.converge(on_held="fail")

    def test_what_a_claim_has_by_a_plugin_of_others_keeps_its_configuration(self, host):
        (host.base / "bin/theirs").symlink_to("/bin/true")
        path = host.converge({**DOCUMENT, "plugin": "theirs"}).path
        (host.base / "state/claims").mkdir()
        store.write_claim(host.places.state_dir, ClaimRecord(WantedClaim("a", {"tty": 1}), parts=(ClaimPart(path),)))
        for document in (DOCUMENT, None):
            with pytest.raises(CdiError, match="claim a has devices by it. Nothing was changed"):
                host.converge(document, on_held="fail")

    def test_drop_takes_it(self, host, held):
        assert host.converge(None, on_held="drop").changed and host.files() == []
        assert len(held.grants()) == 1

    def test_what_another_configuration_granted_keeps_none(self, host, held):
        host.converge({**DOCUMENT, "plugin": "rule", "args": {"profile": "misc"}}, name="other")
        assert host.converge(None, name="other").changed and len(held.grants()) == 1
