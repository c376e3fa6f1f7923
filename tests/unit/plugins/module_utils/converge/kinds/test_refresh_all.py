# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A refresh on a host whose devices come and go: what is written, waited for and left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import plan_kind, refresh_all
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import (
    Disabled,
    render_disabled,
)
from ansible_collections.fleet.cdi.plugins.module_utils.layout import device_state_path
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest, read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.tests.unit.failing_read import failing_read
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.conftest import (
    CARD1,
    CARD2,
    ENTRIES,
    KIND,
    id_of,
)

NO_HOOK = "no container with such a device would start. Install it first"


def test_the_second_time_nothing_is_written(host):
    host.insert(1, 2)
    assert set(host.refresh().changed) == {str(host.spec_path), host.places.inventory}
    assert host.spec() == {**CARD1, **CARD2}
    before = host.everything()
    assert host.refresh() == refresh_all.Report((), (), (), host.refresh().warnings)
    assert host.everything() == before


def test_check_says_the_same_and_does_nothing(host):
    host.insert(1)
    before = host.everything()
    preview = host.refresh(check=True)
    assert host.everything() == before
    assert preview == host.refresh()


def test_no_devices_means_no_file_and_what_comes_later_is_offered(host):
    assert host.refresh().changed == () and not host.spec_path.exists()
    host.insert(1)
    assert str(host.spec_path) in host.refresh().changed
    assert host.spec() == CARD1


def test_a_reboot_takes_the_inventory_and_a_refresh_brings_it_back_without_touching_the_spec(host):
    host.insert(1, 2)
    host.refresh()
    host.boot("second")
    assert host.refresh().changed == (host.places.inventory,)
    assert set(host.listed()) == {id_of(1), id_of(2)}


def test_a_spec_in_a_directory_that_a_reboot_empties_comes_back(host):
    host.insert(1)
    host.refresh()
    host.spec_path.unlink()
    assert host.refresh().changed == (str(host.spec_path),)
    assert host.spec() == CARD1


class TestWaiting:
    def test_a_driver_that_comes_late_costs_no_spec(self, host):
        host.insert(1, 2)
        host.refresh()
        host.remove(1, 2)
        host.boot("second")
        before = host.everything()[str(host.spec_path)], host.memory()
        host.clock.events = [(3, lambda: host.insert(1)), (9, lambda: host.insert(2))]
        done = host.refresh(timeout=60)
        assert done.missing == () and done.changed == (host.places.inventory,)
        assert (host.everything()[str(host.spec_path)], host.memory()) == before
        assert set(host.listed()) == {id_of(1), id_of(2)}
        assert 9 <= sum(host.clock.slept) <= 20

    def test_check_mode_waits_for_nothing(self, host):
        host.insert(1)
        host.refresh()
        host.remove(1)
        assert host.refresh(timeout=60, check=True).missing and host.clock.slept == []

    def test_the_wait_is_bounded_and_says_what_is_missing(self, host):
        host.insert(1)
        host.refresh()
        host.remove(1)
        done = host.refresh(timeout=60)
        assert [one.id for one in done.missing] == [id_of(1)]
        assert sum(host.clock.slept) == 60 and len(host.clock.slept) < 20

    def test_meanwhile_the_inventory_says_what_is_gone_and_other_kinds_are_written(self, host):
        other = "vendor.com/other"
        host.want(other, {"cards": {**ENTRIES["cards"], "kind": other, "match": {"subsystem": "other"}}})
        host.insert(1)
        host.refresh()
        host.remove(1)
        seen = []
        host.clock.events = [(0.1, lambda: seen.append((host.listed()[id_of(1)][1].state, host.memory().gone)))]
        host.refresh(timeout=1)
        assert seen == [("unhealthy", {})]
        assert host.memory().gone.keys() == {id_of(1)}

    def test_without_anything_missing_there_is_no_wait(self, host):
        host.insert(1)
        host.refresh(timeout=60)
        assert host.clock.slept == []


class TestRuntimes:
    def test_they_are_asked_only_where_the_spec_changes(self, host, monkeypatch):
        asked = []
        named = plan_kind.detect.named
        monkeypatch.setattr(plan_kind.detect, "named", lambda runtimes: asked.append(1) or named(runtimes))
        host.insert(1)
        host.refresh()
        assert asked
        asked.clear()
        host.boot("second")
        host.refresh()
        assert asked == []


class TestTrouble:
    def test_a_required_entry_that_finds_nothing_fails_and_its_devices_are_kept(self, host):
        host.want(KIND, {"cards": {**ENTRIES["cards"], "required": True}})
        host.insert(1)
        host.refresh()
        host.remove(1)
        done = host.refresh()
        assert done.failed[0].startswith(f"{KIND}: devices entry 'cards': found no device, but has required: true")
        assert host.spec() == CARD1 and [one.kept for one in done.missing] == [True]

    def test_a_spec_whose_own_hook_is_missing_is_not_written(self, host, monkeypatch):
        monkeypatch.setattr(refresh_all.own_hook, "missing_hook", lambda spec, _prefix: NO_HOOK if spec else "")
        host.insert(1)
        assert host.refresh().failed == (f"{KIND}: {NO_HOOK}",)
        assert not host.spec_path.exists()

    def test_a_kind_that_can_not_be_done_hides_no_other(self, host):
        host.want("vendor.com/broken", {"broken": {"profile": "nonsense"}})
        host.insert(1)
        done = host.refresh()
        assert len(done.failed) == 1 and done.failed[0].startswith("vendor.com/broken: ")
        assert host.spec() == CARD1

    def test_a_spec_that_somebody_changed_stays_and_is_named(self, host):
        host.insert(1)
        host.refresh()
        host.spec_path.write_text("{}")
        host.insert(2)
        done = host.refresh()
        assert host.spec_path.read_text() == "{}"
        [told] = done.failed
        assert told.startswith(f"{KIND}: {host.spec_path}: was changed since fleet.cdi wrote it; a refresh does not")
        assert "It differs from the wanted spec. To have it as wanted, run the provisioning again" in told
        assert done.unmet == (KIND,) and not any("was changed since" in text for text in done.warnings)
        assert set(host.listed()) == {id_of(1), id_of(2)}
        host.spec_path.rename(f"{host.spec_path}.old")  # as the message says
        assert host.refresh().failed == () and host.spec() == {**CARD1, **CARD2}

    def test_a_change_by_somebody_alone_is_a_warning(self, host):
        host.insert(1)
        host.refresh()
        host.edit("0000:00:01.0", "mine")
        for _time in range(2):
            done = host.refresh()
            assert done.failed == done.changed == ()
            assert [text for text in done.warnings if "was changed since fleet.cdi wrote it" in text]
        assert set(host.spec()) == {"0", "mine"}

    def test_a_change_to_what_is_wanted_is_taken_over(self, host):
        """Somebody did by hand what the message asks for."""
        host.insert(1)
        host.refresh()
        one = host.spec_path.read_bytes()
        host.insert(2)
        host.refresh()
        host.remove(2)
        host.spec_path.write_bytes(one.replace(b'"0"', b'"00"'))
        assert host.refresh(grace=0).failed
        host.spec_path.write_bytes(one)
        done = host.refresh(grace=0)
        assert (done.failed, done.unmet, host.spec()) == ((), (), CARD1)

    def test_a_device_out_of_service_that_a_changed_spec_offers_is_not_said_to_be_left_out(self, host):
        host.insert(1, 2)
        host.refresh()
        host.edit("0", "mine")
        out = {id_of(2): Disabled("broken", "now")}
        done = host.refresh(disabled=out)
        names = f"{KIND}=0000:00:02.0, {KIND}=1"
        assert len(done.failed) == 1 and f"It still offers {names}. To have" in done.failed[0]
        assert not any("is left out of the spec" in text for text in done.warnings)
        assert host.listed()[id_of(2)][1].state == "reserved"

    def test_a_device_that_somebody_put_back_fails_although_nothing_else_is_wanted(self, host):
        host.insert(1, 2)
        host.refresh()
        both = host.spec_path.read_bytes()
        out = {id_of(2): Disabled("broken", "now")}
        assert host.refresh(disabled=out).failed == ()
        assert host.spec() == CARD1
        host.spec_path.write_bytes(both.replace(b'"0"', b'"mine"'))
        assert "It still offers" in host.refresh(disabled=out).failed[0]

    def test_a_read_of_the_spec_that_fails_once_costs_no_entry(self, host):
        """World 500175: the entry of a granted card that was pulled out was not kept, and never came back."""
        host.insert(1, 2)
        host.refresh()
        host.remove(1)
        host.held.add(id_of(1))
        number, reads = 0, 1
        while number < reads:
            number += 1
            with failing_read(host.spec_path.name, number) as done:
                told = host.refresh().failed
            assert host.spec() == {**CARD1, **CARD2}, f"read {number}: {told}"
            reads = len(done)
            assert reads, "nothing was read"

    def test_a_damaged_manifest_is_an_error(self, host):
        files.replace(f"{host.places.state_dir}/manifest.json", b"{")
        with pytest.raises(CdiError, match="is damaged"):
            host.refresh()

    def test_undo_forgets_what_was_wanted(self, host):
        host.insert(1)
        host.refresh()
        undo(host.places)
        assert not host.spec_path.exists() and not os.path.exists(host.places.state_dir)
        assert host.refresh() == refresh_all.Report((), (), (), host.refresh().warnings)
        assert not host.spec_path.exists()

    def test_undo_forgets_a_kind_without_a_file_as_well(self, host):
        undo(host.places)
        assert not os.path.exists(host.places.state_dir)


class TestMeanwhile:
    """Another process writes between the look of a refresh and its lock."""

    @pytest.mark.parametrize("forgotten", [True, False])
    def test_what_module_spec_changed_is_not_overwritten(self, host, after_the_look, forgotten):
        """The module forgot the kind, or was asked for something else."""
        host.insert(1)

        def changed():
            with locked_manifest(host.places.state_dir) as manifest:
                memory = manifest.kinds[KIND]
                other = {**memory, "wanted": {**memory["wanted"], "by": "another"}}
                manifest.remember({KIND: None if forgotten else other})

        after_the_look(changed)
        host.refresh()
        assert host.spec_path.exists() != forgotten
        if not forgotten:
            assert read_manifest(host.places.state_dir).by(str(host.spec_path)) == "another"

    def test_a_device_that_an_operator_took_out_of_service_is_not_offered(self, host, after_the_look):
        host.insert(1, 2)
        host.refresh()
        host.remove(2)  # so that the refresh has something to write

        def disable():  # as module device_state does
            content = render_disabled({id_of(1): Disabled("broken fan", "2026-11-21T15:20:00Z")})
            with locked_manifest(host.places.state_dir) as manifest:
                manifest.write(device_state_path(host.places.state_dir), content)
            host.refresh()

        after_the_look(disable)
        host.refresh(grace=0)
        assert host.spec() == {}
        assert host.listed()[id_of(1)][1].reason.endswith("broken fan")

    def test_the_settings_of_a_new_kind_are_followed(self, host, after_the_look):
        other = "vendor.com/other"
        host.insert(1)
        after_the_look(lambda: host.want(other, {"cards": {**ENTRIES["cards"], "kind": other}}))
        host.refresh()
        assert (host.root / "etc/vendor.com-other.json").exists()

    def test_after_an_undo_nothing_is_written(self, host, after_the_look):
        """Not even the pool of a configuration that is not ours, although a refresh of a bare host writes it."""
        host.insert(1)
        conf = host.root / "etc/card.d/rule.conf"
        conf.parent.mkdir(parents=True)
        args = {"match": {"subsystem": "card"}}
        conf.write_text(
            json.dumps({"cdiVersion": "0.0.2", "name": "c", "type": "card", "plugin": "rule", "args": args})
        )
        pools = host.root / "run/inventory.d"
        assert any(path.startswith(str(pools)) for path in host.refresh().changed)
        host.insert(2)
        after_the_look(lambda: undo(host.places))
        done = host.refresh()
        assert done.changed == ()
        assert not host.spec_path.exists() and not pools.exists() and not os.path.exists(host.places.state_dir)

    def test_after_an_undo_a_refresh_that_waits_writes_nothing(self, host):
        host.insert(1)
        host.refresh()
        host.remove(1)
        host.clock.events = [(3, lambda: undo(host.places))]
        assert host.refresh(timeout=60).changed == (host.places.inventory,)  # before the undo
        assert not os.path.exists(host.places.state_dir) and not os.path.exists(host.places.inventory)


REFRESH = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
refresh(Layout(sys.argv[2] + "/state", sys.argv[2] + "/inventory.json", sys.argv[2] + "/etc"))
print(*sorted(name.rpartition(".")[2] for name in sys.modules if ".module_utils.claims." in name))
"""


def test_without_claims_a_refresh_imports_only_their_store(tmp_path):
    """A refresh runs after each event of udev; the rest of claims is a tenth of its time (tests/bench/refresh.py)."""
    imports = str(Path(files.__file__).parents[5])
    done = subprocess.run(
        [sys.executable, "-I", "-c", REFRESH, imports, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["device_name", "record", "store"]
