# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stores of other releases: newer ones, and older ones that an activation migrates."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.report import info
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import errors, schema
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.migrate import migrate
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.allocation.ledger.stores import (
    FILES,
    add,
    directory,
    held,
    statement,
    touch,
)


def test_a_newer_store_is_refused_and_left_alone(ledger):
    add(ledger, 1)
    newer = (schema.VERSION + 1) * 100 + schema.VERSION + 1
    migrate(ledger, {schema.VERSION: ["CREATE TABLE more (id INTEGER)"]}, newer)
    with pytest.raises(errors.Unusable, match="has schema version 2 and needs a release that knows 2; .* knows 1"):
        add(ledger, 2)
    assert sorted(os.listdir(directory(ledger))) == FILES


def test_a_newer_store_that_this_release_can_work_with(ledger):
    add(ledger, 1)
    newer = (schema.VERSION + 1) * 100 + schema.VERSION
    assert migrate(ledger, {schema.VERSION: ["CREATE TABLE more (id INTEGER)"]}, newer) == (101, newer)
    add(ledger, 2)
    assert held(ledger) == [1, 2] and info(ledger).schema == 2


@pytest.mark.parametrize("left", ["as this boot left it", "as an earlier boot left it"])
def test_an_older_store_is_refused_until_it_is_migrated(ledger, monkeypatch, left):
    """A release whose schema is 2, and that can't work with 1: the store goes through its migration."""
    add(ledger, 1)
    if left == "as an earlier boot left it":
        touch(ledger)
    table = "CREATE TABLE more (id INTEGER)"
    for name, value in (("VERSION", 2), ("OLDEST", 2), ("USER_VERSION", 202), ("STEPS", {1: [table]})):
        monkeypatch.setattr(schema, name, value)
    monkeypatch.setattr(schema, "TABLES", (*schema.TABLES, table))
    later = Ledger(directory(ledger), "boot-1")
    with pytest.raises(errors.Unusable, match="has schema version 1; this release reads 2 to 2. Activate it again"):
        add(later, 2)
    assert migrate(later, target=schema.USER_VERSION) == (101, 202)
    add(later, 2)
    assert held(later) == [1, 2] and info(later).schema == 2 and not later.reports


def test_an_older_store_that_is_damaged_is_no_migrated_one(ledger, monkeypatch):
    add(ledger, 1)
    with open(ledger.path, "r+b") as file:
        file.truncate(4096)
    os.unlink(os.path.join(directory(ledger), "ledger.log"))
    monkeypatch.setattr(schema, "VERSION", 2)
    monkeypatch.setattr(schema, "OLDEST", 2)
    migrate(ledger, {1: []}, 202)
    assert "it was rebuilt" in ledger.reports[0] and not info(ledger).complete


def test_opening_migrates_nothing_and_migrating_twice_neither(ledger, monkeypatch):
    add(ledger, 1)
    monkeypatch.setattr(schema, "VERSION", 2)
    add(ledger, 2)
    assert info(ledger).schema == 1
    steps = {1: ["CREATE TABLE more (id INTEGER)"]}
    assert migrate(ledger, steps, 202) == (101, 202)
    assert migrate(ledger, steps, 202) == (202, 202)
    assert held(ledger) == [1, 2]


def test_a_migration_that_fails_leaves_the_store_as_it_was(ledger):
    add(ledger, 1)
    with pytest.raises(errors.Unusable):
        migrate(ledger, {1: ["CREATE TABLE more (id INTEGER)", "INSERT INTO nothing VALUES"]}, 202)
    add(ledger, 2)
    assert held(ledger) == [1, 2] and info(ledger).schema == 1


def test_no_store_to_migrate(ledger):
    migrate(ledger)
    assert not os.path.exists(ledger.path)


def test_a_version_that_only_the_header_has_is_damage(ledger):
    add(ledger, 1)
    statement(ledger, "PRAGMA user_version = 707")
    add(ledger, 2)
    assert held(ledger) == [1, 2] and "its header has version 7" in ledger.reports[0]
