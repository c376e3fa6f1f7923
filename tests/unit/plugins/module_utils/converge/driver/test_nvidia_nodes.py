# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of NVIDIA's driver that no program has made yet, by rendered /proc trees."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import nvidia_nodes
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

DRIVER = nvidia_nodes.DRIVER
DEVICES = "Character devices:\n  1 mem\n195 nvidia\n506 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n"
PARAMS = (
    "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n"
)
FILES = {
    "/proc/devices": DEVICES,
    f"{DRIVER}/params": PARAMS,
    f"{DRIVER}/gpus/0000:3b:00.0/information": "Model: \t\t H200\nDevice Minor: \t 1\n",
    f"{DRIVER}/capabilities/mig/config": "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
    f"{DRIVER}/capabilities/gpu0/mig/gi1/access": "DeviceFileMinor: 12\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
    f"{DRIVER}/capabilities/gpu0/mig/gi2/access": "DeviceFileMinor: 21\nDeviceFileMode: 292\nDeviceFileModify: 0\n",
}


def missing(base, **changes):
    return nvidia_nodes.missing_nodes(render({"files": {**FILES, **changes}}, base))


def test_all_that_are_missing_with_the_numbers_and_modes_of_the_driver(tmp_path):
    assert set(missing(tmp_path)) == {
        ("/dev/nvidiactl", 195, 255, 0o660, 0, 44),
        ("/dev/nvidia1", 195, 1, 0o660, 0, 44),
        ("/dev/nvidia-uvm", 510, 0, 0o660, 0, 44),
        ("/dev/nvidia-uvm-tools", 510, 1, 0o660, 0, 44),
        ("/dev/nvidia-caps/nvidia-cap1", 506, 1, 0o400, 0, 0),
        ("/dev/nvidia-caps/nvidia-cap12", 506, 12, 0o444, 0, 0),
    }


def test_modeset_with_its_module(tmp_path):
    found = missing(tmp_path, **{"/sys/module/nvidia_modeset/initstate": "live"})
    assert ("/dev/nvidia-modeset", 195, 254, 0o660, 0, 44) in found


def test_what_is_there_is_left_alone(tmp_path):
    found = missing(tmp_path, **{"/dev/nvidiactl": "", "/dev/nvidia-caps/nvidia-cap12": ""})
    assert {node.path for node in found}.isdisjoint({"/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap12"})


@pytest.mark.parametrize("files", [{"/proc/devices": DEVICES}, {**FILES, f"{DRIVER}/params": "ModifyDeviceFiles: 0\n"}])
def test_nothing_without_the_driver_or_where_it_forbids_that(tmp_path, files):
    assert nvidia_nodes.missing_nodes(render({"files": files}, tmp_path)) == ()


@pytest.mark.parametrize("value", ["", "0x1b6", "\u00b2", "-1", "9" * 20, "9" * 5000])
@pytest.mark.parametrize(
    ("name", "owner_and_mode"),
    [("DeviceFileMode", (0o666, 0, 44)), ("DeviceFileUID", (0o660, 0, 44)), ("DeviceFileGID", (0o660, 7, 0))],
)
def test_an_odd_number_of_the_driver_is_its_default(tmp_path, name, owner_and_mode, value):
    lines = {"DeviceFileUID": "7" if name == "DeviceFileGID" else "0", "DeviceFileGID": "44", "DeviceFileMode": "432"}
    params = "".join(f"{key}: {text}\n" for key, text in {**lines, name: value}.items())
    found = missing(tmp_path, **{f"{DRIVER}/params": params})
    assert ("/dev/nvidiactl", 195, 255, *owner_and_mode) in found


def test_large_ids_are_taken(tmp_path):
    ids = f"DeviceFileUID: {2**32 - 2}\nDeviceFileGID: 1234567890\n"
    assert missing(tmp_path, **{f"{DRIVER}/params": ids})[0][-2:] == (2**32 - 2, 1234567890)


@pytest.mark.parametrize("name", ["DeviceFileMinor", "DeviceFileMode"])
@pytest.mark.parametrize("value", ["", "0x1b6", "\u00b2", "-1", "9" * 20, "9" * 5000])
def test_a_capability_with_an_odd_number_has_no_node(tmp_path, name, value):
    lines = {"DeviceFileMinor": "12", "DeviceFileMode": "292", "DeviceFileModify": "1", name: value}
    text = "".join(f"{key}: {one}\n" for key, one in lines.items())
    found = missing(tmp_path, **{f"{DRIVER}/capabilities/gpu0/mig/gi1/access": text})
    assert [node.path for node in found if "caps" in node.path] == ["/dev/nvidia-caps/nvidia-cap1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node takes root")
def test_making_one(tmp_path):
    node = nvidia_nodes.Absent(str(tmp_path / "nvidia-caps/nvidia-cap1"), 506, 1, 0o444, 0, 44)
    nvidia_nodes.make_nodes(node)
    found = os.lstat(node.path)
    assert (found.st_mode, found.st_rdev, found.st_gid) == (0o020444, os.makedev(506, 1), 44)
    nvidia_nodes.make_nodes(node)  # somebody else was quicker
