# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: what is written is read, and what can't be trusted is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import (
    CdiError,
    ContainerEdits,
    Device,
    Health,
    Hook,
    Kind,
    Link,
    Mount,
    NetDevice,
    Node,
)

BOOT = "0d5c9a9e-1b3a-4a51-9d4c-0b7e6f6f2a11"
TEXT = st.text(max_size=5)
TEXTS = st.lists(TEXT, max_size=2).map(tuple)
NODES = st.lists(st.builds(Node, TEXT, TEXT, st.integers(0), st.integers(0), TEXT, TEXT), max_size=2).map(tuple)
MOUNTS = st.lists(st.builds(Mount, TEXT, TEXT, TEXTS, TEXT), max_size=1).map(tuple)
HOOKS = st.lists(st.builds(Hook, TEXT, TEXT, TEXTS, TEXTS), max_size=1).map(tuple)
NET_DEVICES = st.lists(st.builds(NetDevice, TEXT, TEXT), max_size=1).map(tuple)
GIDS = st.lists(st.integers(0, 9), max_size=2).map(tuple)
DEVICES = st.builds(
    Device,
    id=TEXT,
    profile=TEXT,
    kind=TEXT,
    names=st.lists(TEXT, min_size=1, max_size=2).map(tuple),
    nodes=NODES,
    mounts=MOUNTS,
    hooks=HOOKS,
    additional_gids=GIDS,
    net_devices=NET_DEVICES,
    part_of=TEXTS,
    capacity=st.dictionaries(TEXT, st.integers(0), max_size=1),
    serial=TEXT,
    numa_node=st.none() | st.integers(0, 7),
    env=TEXTS,
    health=st.builds(Health, TEXT, TEXT),
    symlinks=TEXTS,
    properties=st.dictionaries(TEXT, TEXT, max_size=2),
)
EDITS = st.builds(ContainerEdits, TEXTS, NODES, MOUNTS, HOOKS, GIDS, NET_DEVICES)
INVENTORIES = st.builds(
    inventory.Inventory,
    st.lists(DEVICES, max_size=3).map(tuple),
    st.lists(st.builds(Kind, TEXT, EDITS, st.booleans(), TEXTS, st.booleans()), max_size=2).map(tuple),
    st.lists(st.builds(Link, TEXT, TEXT, TEXT, st.integers(0), st.sampled_from([0.0, 25.5])), max_size=2).map(tuple),
)

MISFIT = "is damaged (a field is missing, or is unknown)"


@given(INVENTORIES)
def test_round_trip(tmp_path_factory, found):
    path = tmp_path_factory.getbasetemp() / "inventory.json"
    path.write_bytes(inventory.render(found, BOOT))
    assert inventory.read(str(path), BOOT) == found
    assert inventory.render(inventory.read(str(path), BOOT), BOOT) == path.read_bytes()


def test_one_of_the_release_before(tmp_path):
    """Between an upgrade and the first refresh."""
    path = tmp_path / "inventory.json"
    path.write_text(changed(version=2))
    assert inventory.read(str(path), BOOT).devices == (DEVICE,)


DEVICE = Device("tty:tty13", "tty", "fleet.cdi/tty", ("tty13",), (Node("/dev/tty13", "c", 4, 13),))
WHOLE = json.loads(inventory.render(inventory.Inventory((DEVICE,)), BOOT))


def changed(**changes):
    return json.dumps({**WHOLE, **changes})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "does not exist; run the discovery again"),
        ("", "is damaged"),
        (inventory.render(inventory.Inventory((DEVICE,)), BOOT).decode()[:-9], "is damaged"),
        ("\xff", "is damaged"),
        ("[]", "is damaged (found version None, expected 3)"),
        (changed(version="1"), "is damaged (found version '1', expected 3)"),
        (changed(version=True), "is damaged (found version True, expected 3)"),
        (changed(version=4), "found version 4 of a newer release, expected 3"),
        (changed(boot_id="other"), f"was written in boot 'other', but this is boot '{BOOT}'"),
        (changed(devices=None), "is damaged"),
        (changed(devices=[1]), "is damaged"),
        (changed(kinds=[{}]), MISFIT),
        (changed(links=[{"a": "b"}]), MISFIT),
        (changed(devices=[{}]), MISFIT),
        (changed(devices=[{**WHOLE["devices"][0], "colour": "red"}]), MISFIT),
        (changed(devices=[{**WHOLE["devices"][0], "nodes": [{"path": "/dev/null"}]}]), MISFIT),
    ],
)
def test_refused(tmp_path, text, words):
    path = tmp_path / "inventory.json"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(CdiError) as error:
        inventory.read(str(path), BOOT)
    assert f"inventory {path}: {words}" in str(error.value)


def test_unreadable(tmp_path):
    with pytest.raises(CdiError, match=r"is not a regular file \(d"):
        inventory.read(str(tmp_path), BOOT)


def test_boot_id(tmp_path):
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        assert inventory.boot_id() == file.read().strip()
    assert inventory.boot_id(str(tmp_path)) == ""
