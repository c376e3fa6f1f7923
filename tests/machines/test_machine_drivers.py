# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers that are unbound and unloaded, and devices that come and go fast: the units of the refresh follow them."""

from __future__ import annotations

import time

import pytest
from look import GPU, container, devices_of, health_of, requests_of, spec_of, wait_for, wait_idle
from whole import only_whole

pytestmark = only_whole

DISPLAY = "/sys/bus/pci/devices/0000:21:00.0"
NVME = "/sys/bus/pci/drivers/nvme"
# A device, what takes its driver away, and what brings it back.
DRIVERS = {
    "disk unbound": (
        "fleet.cdi/nvme=nvme0n1",
        f"echo 0000:41:00.0 > {NVME}/unbind",
        f"echo 0000:41:00.0 > {NVME}/bind",
    ),
    "module of edu": ("example.com/edu=0", "modprobe -r uio_pci_generic", "modprobe uio_pci_generic"),
    "module of the port": ("example.com/port=0", "modprobe -r ftdi_sio", "modprobe ftdi_sio"),
    "module of the display": (
        "fleet.cdi/gpu=0",
        "echo 0 > /sys/class/vtconsole/vtcon1/bind; modprobe -r virtio_gpu",
        "modprobe virtio_gpu",
    ),
}
PLUGS = 20


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller):
    """A machine in the state of its settings."""
    controller.play("provision")
    wait_idle(machine)


@pytest.mark.parametrize("what", DRIVERS)
def test_a_driver_that_goes_and_comes_is_followed_by_the_units_alone(machine, what, figure):
    name, take, give = DRIVERS[what]
    kind = name.partition("=")[0]
    assert health_of(machine, name) == "healthy"
    before = spec_of(machine, kind)
    started = time.monotonic()
    machine.root(take)
    wait_for(lambda: health_of(machine, name) == "unhealthy", f"{name} counts as healthy")
    figure(f"{what}: from its driver gone to unhealthy", time.monotonic() - started)
    assert devices_of(machine)[name]["health"]["reason"]
    assert container(machine, name, "true").returncode != 0
    started = time.monotonic()
    machine.root(give)
    wait_for(lambda: health_of(machine, name) == "healthy", f"{name} counts as unhealthy")
    figure(f"{what}: from its driver back to healthy", time.monotonic() - started)
    wait_for(lambda: spec_of(machine, kind) == before, f"the spec of {kind} is another one")
    assert "reason" not in devices_of(machine)[name]["health"]
    assert container(machine, name, "true").returncode == 0
    wait_idle(machine)


def test_twenty_plugs_in_quick_succession_end_in_the_truth(machine, figure):
    """USB devices come and go at once; PCIe slots wait five seconds for a second press of their button."""

    def nodes():
        return sorted(machine.run("ls /dev/ttyUSB*").split())

    def offered():
        return sorted(path for paths in spec_of(machine, "example.com/port").values() for path in paths)

    plugged = {"driver": "usb-serial", "serial": "quick", "always-plugged": True}  # else only with an open chardev
    before, since = nodes(), machine.run("date +%s.%N").strip()
    assert set(offered()) == set(before)
    started = time.monotonic()
    for number in range(PLUGS):
        name = f"quick-{number}"
        machine.control("chardev-add", id=name, backend={"type": "null", "data": {}})
        machine.control("device_add", id=name, chardev=name, **plugged)
        if number < PLUGS - 1:
            machine.control("device_del", id=name)
    figure(f"{PLUGS} plugs of a USB device", time.monotonic() - started)
    wait_for(lambda: len(nodes()) == len(before) + 1, "the kernel does not see the last one")
    wait_for(lambda: set(offered()) == set(nodes()), "the spec is not what the kernel has")
    wait_idle(machine)
    assert set(offered()) == set(nodes())
    starts = machine.root(f"journalctl --unit fleet-cdi-refresh --since @{since}").count("Starting fleet-cdi-refresh")
    figure(f"refreshes for {PLUGS} plugs (a number)", starts)
    assert 0 < starts < PLUGS
    machine.control("device_del", id=f"quick-{PLUGS - 1}")
    wait_for(lambda: nodes() == before, "the kernel keeps the device")
    wait_idle(machine)
    machine.root("fleet-cdi refresh --drop")
    assert set(offered()) == set(before)


@pytest.mark.parametrize("moment", [0.5, 1.5, 2.5])
def test_a_device_that_is_pulled_while_an_add_is_on_its_way(machine, moment):
    """The claim is refused, or no container opens its device until that is back. Nothing is left behind."""
    claim = f"pulled-{moment * 1000:.0f}"  # an id with a dot is not the request-id
    pull = f"(sleep {moment}; echo 1 > {DISPLAY}/remove) &"
    done = machine.attempt(f"sudo sh -c '{pull} fleet-cdi claim add {claim} gpu:1; said=$?; wait; exit $said'")
    assert "Traceback" not in done.stdout + done.stderr and done.returncode != 255, done.stderr
    assert machine.attempt("test -e /dev/dri/card0").returncode
    assert container(machine, f"fleet.cdi/claim={claim}", f"exec 3<{GPU}").returncode != 0
    wait_for(lambda: health_of(machine, "fleet.cdi/gpu=0") == "unhealthy", "the device counts as there")
    assert (claim in requests_of(machine)) == (done.returncode == 0), done.stderr
    machine.root("echo 1 > /sys/bus/pci/rescan")
    wait_for(lambda: health_of(machine, "fleet.cdi/gpu=0") == "healthy", "the device counts as gone")
    wait_idle(machine)
    if done.returncode == 0:
        assert container(machine, f"fleet.cdi/claim={claim}", f"exec 3<{GPU}").returncode == 0
        machine.root(f"fleet-cdi claim del {claim}")
    machine.root(f"fleet-cdi claim add again-{claim} gpu:1")
    assert container(machine, f"fleet.cdi/claim=again-{claim}", f"exec 3<{GPU}").returncode == 0
    machine.root(f"fleet-cdi claim del again-{claim}")
    assert requests_of(machine) == set()
