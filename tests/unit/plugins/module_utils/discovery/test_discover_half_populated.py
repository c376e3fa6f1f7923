# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sysfs in which something is missing or can't be read: each file, link and directory that is asked for, in turn."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.root import Root
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

FAMILIES = ("amd", "fpga", "infiniband", "intel")
CASES = [
    pytest.param(case, id=f"{family}: {case['name']}")
    for family in FAMILIES
    for case in yaml.safe_load(Path(__file__).with_name(f"cases_{family}.yml").read_text(encoding="utf-8"))["cases"]
    # In which there is something to hide. A card that is managed through another function is made of both.
    if not case["tree"].get("nodes") and len(case.get("devices", ())) > 2 and "management" not in str(case["entries"])
]


class Broken(Root):
    """A root directory in which one thing is broken. It remembers what it was asked for."""

    def __init__(self, directory, broken=("", "")):
        super().__init__(directory)
        self.broken = broken
        self.asked = {}

    def _is_broken(self, how, path):
        self.asked[how, path] = None
        return self.broken == (how, path)

    def read(self, path, *limit):
        if self._is_broken("read", path):
            raise OSError(errno.EIO, "Input/output error")
        return super().read(path, *limit)

    def readlink(self, path):
        return "" if self._is_broken("readlink", path) else super().readlink(path)

    def names(self, path):
        return [] if self._is_broken("names", path) else super().names(path)


def found(root, entries):
    return {
        (device.kind, device.id): device for device in discover(entries, snapshot.Snapshot(root, live=False)).devices
    }


@pytest.mark.parametrize("case", CASES)
def test_what_is_broken_on_one_card_hides_no_other(case, tmp_path):
    directory = render(case["tree"], tmp_path)
    # By the names for which nothing has to be read.
    entries = {name: {**entry, "name_by": ["index"]} for name, entry in case["entries"].items()}
    whole = Broken(directory)
    devices = found(whole, entries)
    for broken in whole.asked:
        still = found(Broken(directory, broken), entries)
        cards = set(re.findall(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", broken[1]))
        for identity, device in devices.items():
            own = {device.pci_address, *(card[len("pci:") :] for card in device.part_of)}
            if cards and not cards & own:
                assert identity in still, broken
                assert still[identity].nodes == device.nodes, broken
