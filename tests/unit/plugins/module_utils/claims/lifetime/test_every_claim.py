# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo on a host with claims: refused without force, and with it the claims end first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.collect import gc
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_record import (
    PodRecord,
    alone_with_pods,
    write_pod,
)
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import claimed_requests
from ansible_collections.fleet.cdi.plugins.module_utils.converge import undo as undo_room
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.layout import ledger_path
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.claims.conftest import BOOT


class Leaving:
    """A host with claims that fleet.cdi leaves."""

    def __init__(self, claims):
        self.claims, self.state = claims, claims.places.state_dir

    def undo(self, **options):
        return undo(self.claims.places, **options)

    def path(self, id_):
        return os.path.join(self.state, "claims", f"{id_}.json")

    def left(self):
        """What stays of claims and of the store."""
        ours = ("claims", "pods", "ledger", "commands.lock")
        found = [
            name for name in (os.listdir(self.state) if os.path.isdir(self.state) else ()) if name.startswith(ours)
        ]
        specs = os.listdir(self.claims.places.spec_dirs[-1]) if os.path.isdir(self.claims.places.spec_dirs[-1]) else ()
        notes = [self.claims.places.ended_claims] * os.path.lexists(self.claims.places.ended_claims)
        return sorted([*found, *notes, *(name for name in specs if "claim" in name)])


@pytest.fixture
def leaving(claims):
    return Leaving(claims)


def test_notes_of_ended_claims_go_also_if_the_inventory_moved(leaving, tmp_path):
    leaving.claims.add("job-1", "gpu:1")
    leaving.claims.delete("job-1")
    leaving.claims.places = leaving.claims.places._replace(inventory=str(tmp_path / "new/inventory.json"))
    leaving.undo()
    assert leaving.left() == [] and not list(tmp_path.rglob("*claims.ended*"))


def test_without_force_a_claim_is_named_and_stays(leaving):
    leaving.claims.add("job-1", "gpu:1")
    done = leaving.undo()
    assert not done.removed and any("fleet-cdi claim del job-1" in why for _path, why in done.kept)
    assert leaving.claims.stored("job-1") and leaving.claims.spec("job-1")


def test_a_preview_names_the_claims_and_touches_nothing(leaving):
    leaving.claims.add("job-1", "gpu:1")
    before = leaving.left()
    done = leaving.undo(check=True, force=True)
    assert leaving.path("job-1") in done.removed and done.forced[0] == "claim job-1 has devices"
    assert dict(done.lines())[leaving.path("job-1")] == "ended: claim job-1"
    assert leaving.left() == before


def test_with_force_a_spec_without_a_claim_goes_too(leaving):
    """A container would still get the devices by it."""
    leaving.claims.add("job-1", "gpu:1")
    os.unlink(leaving.path("job-1"))
    (spec,) = [name for name in leaving.left() if name.endswith("job-1.json")]
    assert spec in " ".join(leaving.undo(check=True, force=True).removed) and spec in leaving.left()
    leaving.undo(force=True)
    assert leaving.left() == []


def test_with_force_the_claims_of_a_damaged_pod_end_and_its_record_is_named(leaving):
    leaving.claims.add("job-1", "gpu:1")
    with alone_with_pods(leaving.state):
        write_pod(leaving.state, PodRecord("default/a", {"c": ("job-1",)}))
    path = Path(leaving.state, "pods/default_a.json")
    path.write_text("{")
    done = leaving.undo(force=True)
    assert done.removed == (leaving.path("job-1"),) and [where for where, _why in done.kept] == [str(path)]


def _lose_grants(leaving):
    os.unlink(ledger_path(leaving.state))


def _damage(leaving):
    Path(ledger_path(leaving.state)).write_bytes(b"damaged" * 1000)


def _half_ended(leaving):
    leaving.claims.change("job-1", state="asked")


def _left_lock(leaving):
    Path(leaving.state, "claims/job-0.lock").touch(0o600)


def _with_pod(leaving):
    with alone_with_pods(leaving.state):
        write_pod(leaving.state, PodRecord("default/web", {"c": ("job-1",)}))


def _in_use(leaving):
    leaving.claims.start_container(leaving.claims.stored("job-1"))
    Path(leaving.state, "container").unlink()


@pytest.mark.parametrize("first", [None, _lose_grants, _damage, _half_ended, _left_lock, _with_pod, _in_use])
def test_with_force_the_claims_end_first(leaving, first):
    leaving.claims.add("job-1", "gpu:1", "zero:1")
    if first:
        first(leaving)
    done = leaving.undo(force=True)
    assert done.kept == () and leaving.path("job-1") in done.removed
    assert leaving.left() == [] and leaving.claims.how.with_suffix(".held").read_text() == ""


def test_what_does_not_end_is_named_and_a_later_run_ends_it(leaving):
    leaving.claims.add("job-1", "gpu:1", "zero:1")
    leaving.claims.behave("del")
    done = leaving.undo(force=True)
    ((path, why),) = done.kept
    assert done.forced == ()
    assert path == leaving.path("job-1") and "stuck" in why and os.path.lexists(ledger_path(leaving.state))
    leaving.claims.behave("well")
    assert leaving.undo(force=True).kept == () and leaving.left() == []


def test_after_del_a_plain_undo_leaves_nothing(leaving):
    leaving.claims.add("job-1", "gpu:1")
    leaving.claims.delete("job-1")
    assert leaving.undo().kept == () and leaving.left() == []


def test_gc_of_grants_leaves_those_of_claims(leaving):
    leaving.claims.add("job-1", "gpu:2")
    ledger = Ledger(leaving.state, BOOT)
    done = gc(ledger, [], ledger.now() + 1, force=True, claimed=claimed_requests(leaving.state))
    assert done.freed == () and done.young == () and not leaving.claims.free()


def test_a_claim_that_is_made_meanwhile_is_named(leaving, monkeypatch):
    take_back = undo_room._undo

    def slow(*arguments):
        leaving.claims.add("job-2", "gpu:1")
        return take_back(*arguments)

    monkeypatch.setattr(undo_room, "_undo", slow)
    ((path, why),) = leaving.undo(force=True).kept
    assert path == leaving.path("job-2") and "fleet-cdi claim del" in why
