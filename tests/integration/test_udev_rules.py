# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The udev rules of a refresh, as the host's own udev reads them, for events of devices that umockdev lends it."""

from __future__ import annotations

import os
import subprocess

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.refresh_unit import (
    RULES,
    WANTED_BY_UDEV,
    RefreshUnit,
    refresh_texts,
)
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

pytestmark = [
    pytest.mark.counterpart("umockdev"),
    pytest.mark.skipif(os.geteuid() != 0, reason="gives udev a /run and a /dev of its own: needs root"),
]

GPU = "/sys/devices/pci0000:00/0000:3b:00.0"
DEVICES = {
    GPU: {"subsystem": "bus/pci", "driver": "amdgpu", "uevent": {"DRIVER": "amdgpu", "PCI_ID": "1002:740F"}},
    f"{GPU}/drm/card2": {"subsystem": "class/drm", "uevent": {"MAJOR": 226, "MINOR": 2, "DEVNAME": "dri/card2"}},
    f"{GPU}/net/eth3": {"subsystem": "class/net", "uevent": {"INTERFACE": "eth3", "IFINDEX": 3}},
    "/sys/devices/virtual/net/veth0": {"subsystem": "class/net", "uevent": {"INTERFACE": "veth0", "IFINDEX": 9}},
    "/sys/devices/virtual/block/dm-0": {
        "subsystem": "class/block",
        "uevent": {"MAJOR": 253, "MINOR": 0, "DEVNAME": "dm-0"},
    },
}

# udevadm writes its database, and links in /dev/char and /dev/block, as udev itself would: /run and /dev are its own.
IN_PRIVATE = """
mount -t tmpfs tmpfs /run
mkdir /run/dev
for node in null zero full random urandom; do
    touch /run/dev/$node
    mount --bind /dev/$node /run/dev/$node
done
mount --rbind /run/dev /dev
mkdir -p /run/udev/rules.d
cp "$0" /run/udev/rules.d/
exec udevadm test --action="$1" "$2"
"""


@pytest.fixture
def udev(tmp_path):
    """What udev would run for an action on a device of the tree."""
    root = render({"devices": DEVICES}, tmp_path / "root")
    rules = tmp_path / "70-fleet-cdi-test.rules"
    rules.write_bytes(refresh_texts(RefreshUnit())[RULES])
    environment = {**os.environ, "UMOCKDEV_DIR": root, "LD_PRELOAD": "libumockdev-preload.so.0"}

    def test(action, path):
        command = ["unshare", "--mount", "sh", "-ec", IN_PRIVATE, rules, action, path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert "Reading rules file" in done.stdout + done.stderr, done.stderr
        return [line for line in (done.stdout + done.stderr).splitlines() if rules.name in line and "RUN" in line]

    return test


@pytest.mark.parametrize("action", ["add", "remove", "bind", "unbind"])
@pytest.mark.parametrize("path", [GPU, f"{GPU}/drm/card2", f"{GPU}/net/eth3"])
def test_hardware_that_comes_or_goes_wants_a_refresh(udev, action, path):
    (line,) = udev(action, path)
    assert WANTED_BY_UDEV in line


@pytest.mark.parametrize(
    ("action", "path"),
    [("change", GPU), ("add", "/sys/devices/virtual/net/veth0"), ("add", "/sys/devices/virtual/block/dm-0")],
)
def test_what_containers_and_volumes_do_all_day_does_not(udev, action, path):
    assert udev(action, path) == []
