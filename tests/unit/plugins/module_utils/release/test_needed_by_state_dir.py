# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules host_release and host_drain with another state directory than that of the records of a host, and with another
prefix.

With a new ledger, held devices would be granted again.
"""

from __future__ import annotations

import json
import shutil

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import claim
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import OF_THE_HOST, main
from ansible_collections.fleet.cdi.plugins.module_utils.converge import host_drain
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import cdi_plugin, device_state, spec
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import container_runtime
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import (
    device_plugin_config,
    device_plugin_service,
    refresh_service,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.refresh_unit import RefreshUnit, refresh_texts
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard, host_release, launcher, needed_by

DOCUMENT = {"version": 1, "files": {"/etc/x": {"applied": [None], "kind": "", "by": "spec", "prior": None}}}

MODULES = (
    claim,
    cdi_plugin,
    device_state,
    spec,
    container_runtime,
    device_plugin_config,
    device_plugin_service,
    refresh_service,
)

RECORDS = {
    "none": ({}, False),
    "a manifest": ({"manifest.json": json.dumps(DOCUMENT)}, True),
    "a manifest without an entry": ({"manifest.json": json.dumps({"version": 1, "files": {}})}, False),
    "grants": ({"ledger.db": "x"}, True),
    "a file of others": ({"notes": "x"}, False),
}


@pytest.fixture
def options(target, tmp_path, monkeypatch):
    """Options of module host_release for a host whose commands have their records in the directory `old`."""
    monkeypatch.setattr(needed_by, "UNIT", str(tmp_path / "none"))  # the refresh, and the release, of this machine
    monkeypatch.setattr(needed_by, "USUAL", needed_by.USUAL._replace(prefix=str(tmp_path / "none")))
    release = target.release()
    target.install(release, state_dir=str(tmp_path / "old"))
    (tmp_path / "old").mkdir()
    return target.options(release, tmp_path / "new")


@pytest.mark.parametrize(("records", "refused"), RECORDS.values(), ids=RECORDS)
def test_it_is_refused_where_there_are_records(options, tmp_path, records, refused):
    for name, text in records.items():
        (tmp_path / "old" / name).write_text(text)
    assert not host_release.answer({**options, "state_dir": str(tmp_path / "old")}, True)[0]["changed"]
    if not refused:
        assert host_release.answer(options, True)[0]["changed"]
        return
    drain = {"reason": "new firmware", "only_healthy": False, "allow_missing": False}  # would not see who holds what
    for module, state in (
        (host_release, "present"),
        (host_release, "previous"),
        (host_release, "absent"),  # would not find the rest
        (host_drain, "drained"),
        (host_drain, "in_service"),
    ):
        for check in (True, False):
            with pytest.raises(CdiError, match=f"^state_dir: found {tmp_path}/new; expected {tmp_path}/old, where"):
                module.answer({**options, **drain, "state": state, "on_needed": "drop"}, check)
    assert not (tmp_path / "new").exists() and guard.active(options["prefix"])


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_module_that_changes_a_host_refuses_it(options, tmp_path, module):
    """Of tasks of one's own beside the role: the device plugin with another ledger would grant what requests hold."""
    (tmp_path / "old/ledger.db").write_text("x")
    for check in (True, False):
        with pytest.raises(CdiError, match=f"^state_dir: found {tmp_path}/new; expected {tmp_path}/old, where"):
            module.answer(options, check)
    # An image has its own records.
    assert needed_by.check_host({**options, "root": "/mnt"}, False) == []


VERBS = {
    "claim": ["claim", "add", "job", "tty:1"],
    "converge": ["converge", "--settings", "/none.yml"],
    "device": ["device", "disable", "tty:tty13", "--reason", "fan"],
    "refresh": ["refresh"],
    "undo": ["undo"],
}


@pytest.mark.parametrize("words", [VERBS[verb] for verb in (*OF_THE_HOST, "undo")], ids=(*OF_THE_HOST, "undo"))
def test_each_verb_that_changes_a_host_refuses_it(options, tmp_path, capsys, words):
    """With a directory that is misspelt, the device would stay on offer, and another manifest would own the specs."""
    (tmp_path / "old/ledger.db").write_text("x")
    defaults = {"state_dir": str(tmp_path / "old"), "inventory": "/none", "spec_dirs": [], "prefix": options["prefix"]}
    status = main([*words, "--state-dir", str(tmp_path / "new")], options["release"], defaults)
    assert (status, (tmp_path / "new").exists()) == (2, False)
    said = capsys.readouterr().err
    assert said.startswith(f"fleet-cdi: state_dir: found {tmp_path}/new; expected {tmp_path}/old, where this host")


SHARED = {
    "all": ({}, True),
    "the device list": ({"spec_dirs": ["/srv/cdi"]}, True),
    "the spec directories, as the demo does": ({"device_list": "/srv/list.json"}, False),
}


class TestAnotherPrefix:
    """The unit of the refresh, or without it the usual prefix, leads to the release that the host uses."""

    @pytest.fixture(params=["unit", "usual"])
    def elsewhere(self, request, options, tmp_path, monkeypatch):
        """Options for another prefix on a host with a manifest."""
        (tmp_path / "old/manifest.json").write_text(json.dumps(DOCUMENT))
        unit = tmp_path / "unit"
        monkeypatch.setattr(needed_by, "UNIT", str(unit))
        if request.param == "unit":
            path = needed_by.os.path.join(needed_by.UNIT_DIR, needed_by.REFRESH_SERVICE)
            unit.write_bytes(refresh_texts(RefreshUnit(prefix=options["prefix"]))[path])
        else:
            monkeypatch.setattr(needed_by, "USUAL", needed_by.USUAL._replace(prefix=options["prefix"]))
        return {**options, "prefix": str(tmp_path / "other")}

    @pytest.mark.parametrize(("places", "refused"), SHARED.values(), ids=SHARED)
    def test_with_another_state_directory_it_is_refused_where_both_share_the_list(
        self, elsewhere, tmp_path, places, refused
    ):
        if refused:
            with pytest.raises(CdiError, match=f"^state_dir: found {tmp_path}/new; expected {tmp_path}/old, where"):
                host_release.answer({**elsewhere, **places}, True)
        else:
            assert host_release.answer({**elsewhere, **places}, True)[0]["changed"]

    def test_with_the_same_records_a_host_has_one_release(self, elsewhere, target, tmp_path):
        """Else the first one stays, also after a removal."""
        old = str(tmp_path / "old")
        with pytest.raises(CdiError, match=f"^prefix: found {tmp_path}/other; expected {target.prefix}, where"):
            needed_by.check_prefix(elsewhere["prefix"], old)
        needed_by.check_prefix(target.prefix, old)
        needed_by.check_prefix(elsewhere["prefix"], str(tmp_path / "new"))
        shutil.rmtree(old)
        needed_by.check_prefix(elsewhere["prefix"], old)


@pytest.mark.parametrize("python", ["/usr/bin/python3", "/a b/python3"])
def test_a_launcher_tells_its_defaults(python):
    defaults = {"state_dir": "/a, {'b'})", "spec_dirs": ["/c", "/d"]}
    assert launcher.defaults_of(launcher.text(python, defaults)) == defaults
    for other in ("", "#!/bin/sh\nexit 1\n", "    status = main(1, {)\n"):
        assert launcher.defaults_of(other) == {}
