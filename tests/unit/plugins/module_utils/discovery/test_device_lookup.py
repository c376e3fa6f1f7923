# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators call a device, and what they are told where that is none, or more than one."""

from __future__ import annotations

import os
import re

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery.device_lookup import find
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Node

GPU = Device(
    "pci:0000:3b:00.0",
    "drm",
    "fleet.cdi/gpu",
    ("0", "gpu-a"),
    (Node("/dev/dri/card0", "c", 226, 0),),
    pci_address="0000:3b:00.0",
    uuid="GPU-1234",
)
PART = GPU._replace(
    id="mig:1", kind="fleet.cdi/mig", names=("0",), nodes=(Node("/dev/nvidia-caps/cap3", "c", 1, 3),), uuid=""
)
TTY = Device("tty:tty14", "tty", "fleet.cdi/tty", ("tty14",), (Node("/dev/tty14", "c", 4, 14),), serial="S1")
DEVICES = (GPU, PART, TTY)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("pci:0000:3b:00.0", GPU),
        ("0000:3b:00.0", GPU),
        ("3b:00.0", GPU),
        ("GPU-1234", GPU),
        ("gpu-a", GPU),
        ("fleet.cdi/gpu=0", GPU),
        ("fleet.cdi/mig=0", PART),
        ("/dev/dri/card0", GPU),
        ("tty14", TTY),
        ("/dev/tty14", TTY),
        ("fleet.cdi/tty=tty14", TTY),
        ("tty:tty14", TTY),
        ("S1", TTY),
    ],
)
def test_what_names_a_device(name, device):
    assert find(name, DEVICES) == device


@pytest.mark.parametrize("name", ["fleet.cdi/gpu=0", "vendor.com/gpu=main", "main", "gpu-a", "GPU-1234", GPU.id])
def test_a_device_of_two_kinds_has_the_names_of_both(name):
    other = GPU._replace(kind="vendor.com/gpu", names=("main",))
    assert find(name, (GPU, other, TTY)) == GPU
    assert find(name, (other, GPU, TTY)) == other


def test_a_link_names_what_it_leads_to(tmp_path):
    node = tmp_path / "node"
    node.touch()
    (tmp_path / "by-id").symlink_to(node)
    device = TTY._replace(nodes=(Node(os.path.realpath(node), "c", 1, 1),))
    assert find(str(tmp_path / "by-id"), [device]) == device


def test_a_device_that_is_out_of_service_need_not_be_there():
    assert find("pci:gone", DEVICES, ["pci:gone"]) is None


def test_of_several_all_are_named():
    with pytest.raises(CdiError, match=r"'0', which is one of fleet.cdi/gpu=0, fleet.cdi/mig=0; expected a name"):
        find("0", DEVICES)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("tty41", "tty14"),
        ("/dev/tty1", "/dev/tty14"),
        ("fleet.cdi/tty=tty15", "fleet.cdi/tty=tty14"),
        ("3b:00.1", "3b:00.0"),
        ("tty99", "tty14"),
        ("TTY14", "tty14"),
        ("/dev/tty1\0", "/dev/tty14"),
    ],
)
def test_a_typo_gets_the_nearest_name(name, near):
    with pytest.raises(CdiError, match=rf"^device: found {re.escape(repr(name))}.*did you mean '{near}'"):
        find(name, DEVICES)


def test_nonsense_gets_no_suggestion_and_why_nothing_is_known():
    with pytest.raises(
        CdiError, match=r"which this host does not have; expected an id, .* show[s]? them \(there is none\)$"
    ):
        find("nonsense", (), why="there is none")
