# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools of the executables: each configuration has what its entry finds, refreshed with the specs."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import messages, pools
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.conftest import KIND, id_of

CONFIG = {"cdiVersion": "0.0.2", "name": "cards", "type": "card", "plugin": "rule"}
ARGS = {"profile": "rule", "match": {"subsystem": "card"}, "kind": KIND}


@pytest.fixture
def configure(host):
    def put(name, content, type_="card"):
        path = host.root / f"etc/{type_}.d/{name}.conf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return put


def path_of(host, args, plugin="rule"):
    return files.canonical(pools.pool_path(host.places.inventory, "card", plugin, args))


def test_each_configuration_has_what_its_entry_finds(host, configure):
    host.insert(1, 2)
    one = {**ARGS, "match": {"subsystem": "card", "node": "/dev/card2"}}
    configure("all", {**CONFIG, "args": {**ARGS, "setup": ["true"]}})
    configure("one", {**CONFIG, "args": one})
    host.refresh()
    found = inventory.read(path_of(host, ARGS), "first")
    assert [device.id for device in found.devices] == [id_of(1), id_of(2)]
    assert json.loads(files.read(path_of(host, ARGS)).content)["args"] == ARGS
    assert [device.id for device in inventory.read(path_of(host, one), "first").devices] == [id_of(2)]
    before = host.everything()
    assert host.refresh().changed == () and host.everything() == before


def test_delegates_have_theirs_and_other_plugins_none(host, configure):
    host.insert(1)
    inner = {"profile": "rule", "match": {"subsystem": "card"}}
    configure("chain", {**CONFIG, "plugin": "vendor-plugin", "args": {"delegate": {"plugin": "rule", "args": inner}}})
    host.refresh()
    assert os.listdir(host.root / "run/inventory.d") == [os.path.basename(path_of(host, inner))]


def test_a_broken_configuration_is_named_and_hides_no_other(host, configure):
    host.insert(1)
    path = configure("good", {**CONFIG, "args": ARGS})
    host.refresh()
    bad = [configure("bad", "{"), configure("worse", {**CONFIG, "args": {**ARGS, "colour": "red"}})]
    path.unlink()
    done = host.refresh()
    assert [text.split(": ")[0] for text in done.failed] == [str(one) for one in bad]
    assert done.failed[1].startswith(f"{bad[1]}: args.colour: ")
    assert os.path.exists(path_of(host, ARGS))  # one of the broken ones may have been it
    for one in bad:
        one.unlink()
    assert host.refresh().changed == (path_of(host, ARGS),)
    assert not os.path.exists(host.root / "run/inventory.d")


def test_a_directory_that_can_not_be_read_keeps_its_pools(host, configure):
    host.insert(1)
    path = configure("good", {**CONFIG, "args": ARGS})
    host.refresh()
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(path.parent.name)  # root may read each directory, but not this one
    (told,) = host.refresh().failed
    assert told.startswith(f"{path.parent}: ") and told.endswith("can't be read (Too many levels of symbolic links)")
    assert os.path.exists(path_of(host, ARGS))


def test_undo_takes_pools_back(host, configure):
    configure("good", {**CONFIG, "args": ARGS})
    host.refresh()
    assert os.path.exists(path_of(host, ARGS))
    undo(host.places)
    assert not os.path.exists(path_of(host, ARGS))


def test_a_large_one_is_refused(host, configure):
    configure("large", "{" + " " * messages.LARGEST + "}")
    assert "is larger than" in host.refresh().failed[0]
