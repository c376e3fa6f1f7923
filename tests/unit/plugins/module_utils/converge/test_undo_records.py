# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo by a manifest that lost records: units that it does not list would stay, and the run would end green."""

from __future__ import annotations

import importlib
import os
import re
from pkgutil import iter_modules

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import lost_records
from ansible_collections.fleet.cdi.plugins.module_utils.converge import services
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import refresh_unit
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest, read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A host with a unit of ours and another file, in what this test takes for the usual state directory."""
    units = tmp_path / "units"
    units.mkdir()
    (units / "fleet-cdi-refresh.service").write_text(refresh_unit.HEAD + "[Service]\n")
    found = Layout(str(tmp_path / "state"), str(tmp_path / "inventory.json"), prefix=str(tmp_path / "opt"))
    monkeypatch.setattr(lost_records, "USUAL", found)
    monkeypatch.setattr(lost_records, "UNIT_DIR", str(units))
    with locked_manifest(found.state_dir) as manifest:
        manifest.write(str(tmp_path / "a.json"), b"ours")
    return found


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("check", [False, True])
def test_a_unit_without_a_record_stops_undo(places, tmp_path, check, force):
    unit = str(tmp_path / "units/fleet-cdi-refresh.service")
    with pytest.raises(CdiError, match=f"manifest.json: has no record of {unit}, so .* Nothing was changed"):
        undo(places, check, force)
    assert (tmp_path / "a.json").exists()


def test_a_unit_with_a_record_does_not(places, tmp_path):
    unit = tmp_path / "units/fleet-cdi-refresh.service"
    with locked_manifest(places.state_dir) as manifest:
        manifest.write(str(unit), unit.read_bytes())
    assert set(undo(places).removed) == {str(unit), str(tmp_path / "a.json")}


def test_a_unit_of_the_administrator_does_not(places, tmp_path):
    unit = tmp_path / "units/fleet-cdi-refresh.service"
    unit.write_text("[Service]\n")
    assert undo(places).removed == (str(tmp_path / "a.json"),) and unit.exists()


@pytest.mark.parametrize(
    "name", ["refresh.service.bak", "refresh.service~", "refresh.timer.old", "openers@a.service", "refresh-gpu.service"]
)
def test_a_copy_of_a_unit_does_not(places, tmp_path, name):
    """Of an editor, an administrator, or `systemctl edit --full` for one instance of a template."""
    unit = tmp_path / "units/fleet-cdi-refresh.service"
    unit.rename(unit.with_name(f"fleet-cdi-{name}"))
    assert undo(places).removed == (str(tmp_path / "a.json"),)


def test_each_unit_that_the_services_name_is_known():
    files = (importlib.import_module(f"{services.__name__}.{one.name}") for one in iter_modules(services.__path__))
    words = {word for file in files for word in vars(file).values() if isinstance(word, str)}
    assert {word for word in words if re.fullmatch(r"fleet-cdi-[^\s/*]+\.[a-z]+", word)} == lost_records.UNITS


def test_a_call_that_saves_nothing_leaves_the_trace_of_a_lost_manifest(places, tmp_path):
    (tmp_path / "units/fleet-cdi-refresh.service").unlink()
    (tmp_path / "state/manifest.json").unlink()
    with pytest.raises(CdiError, match="it failed"), locked_manifest(places.state_dir):
        raise CdiError("it failed")
    with pytest.raises(CdiError, match="manifest.json: is gone, but fleet.cdi wrote .*state/.lock"):
        undo(places)


def test_a_manifest_that_was_made_since_does_not_hide_that_one_was_lost(places, tmp_path):
    """The inventory is always recorded."""
    (tmp_path / "units/fleet-cdi-refresh.service").unlink()
    (tmp_path / "inventory.json").write_bytes(inventory.render(inventory.Inventory(()), "boot-1"))
    with pytest.raises(CdiError, match=f"manifest.json: has no record of {places.inventory}"):
        undo(places)


def test_a_file_of_others_in_the_place_of_the_inventory_does_not(places, tmp_path):
    (tmp_path / "units/fleet-cdi-refresh.service").unlink()
    (tmp_path / "inventory.json").write_text("{}")
    assert undo(places).removed == (str(tmp_path / "a.json"),)


def test_a_run_that_writes_while_another_looks_loses_no_record(places, tmp_path):
    """Doctor and undo read the manifest without its lock. Then another run records a unit, and writes it."""
    unit = tmp_path / "units/fleet-cdi-refresh.service"
    text = unit.read_bytes()
    unit.unlink()
    before = read_manifest(places.state_dir)
    with locked_manifest(places.state_dir) as manifest:
        manifest.write(str(unit), text)
    assert lost_records.lost_records(places, before) == ""
    (tmp_path / "units/fleet-cdi-refresh.timer").write_bytes(text)
    told = lost_records.lost_records(places, before)
    assert told == f"has no record of {tmp_path}/units/fleet-cdi-refresh.timer"


@pytest.mark.parametrize("look", [1, 2])
def test_nor_does_the_first_run_of_a_host(places, tmp_path, monkeypatch, look):
    """It makes the manifest, and notes so in the lock, after the other has seen that the manifest is missing."""
    state, unit = tmp_path / "new", tmp_path / "units/fleet-cdi-refresh.service"
    places = places._replace(state_dir=str(state))
    monkeypatch.setattr(lost_records, "USUAL", places)
    lexists, looks, text = os.path.lexists, [], unit.read_bytes()
    unit.unlink()

    def meanwhile(path):
        found = lexists(path)
        looks.extend([path] if path == str(state / "manifest.json") else [])
        if len(looks) == look and not found:
            with locked_manifest(str(state)) as manifest:
                manifest.write(str(unit), text)
        return found

    before = read_manifest(str(state))
    monkeypatch.setattr(os.path, "lexists", meanwhile)
    assert lost_records.lost_records(places, before) == ""
    assert unit.exists()


def test_a_manifest_that_another_makes_unreadable_meanwhile_is_not_lost(places, tmp_path):
    before = read_manifest(places.state_dir)
    (tmp_path / "state/manifest.json").write_text("{")
    assert lost_records.lost_records(places, before) == ""
