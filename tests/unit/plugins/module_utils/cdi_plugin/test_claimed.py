# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ADD on a host where no device plugin runs, and where claims of others' DRA drivers have devices."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import claimed
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.devices import Many, read
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus

UID = "3b0e3f4c-8ed5-4b0a-9d2a-6f3a1c2d4e5f"
# The files and names that these drivers make; device_plugin/allocate/dra_claims.yml says where they are read.
DRIVERS = {
    "NVIDIA": ("k8s.gpu.nvidia.com/claim", f"{UID}-gpu-0", []),
    "AMD": ("k8s.gpu.amd.com/gpu", f"{UID}-gpu-0-128", ["/dev/kfd"]),
    "example": ("k8s.gpu.example.com/gpu", f"{UID}-gpu-0", []),
}


def prepared(machine, kind, name, paths, uid=UID, ending="yaml"):
    """What a driver writes for a claim on the nodes at these paths; returns its file."""
    document = spec({name: nodes(*paths)}, kind)
    (directory,) = machine.host.spec_dirs
    path = machine.directory / directory / f"{kind.replace('/', '-')}_{uid}.{ending}"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document) if ending == "json" else yaml.safe_dump(document))
    return path


def nodes_of(number):
    return [f"/dev/dri/card{number}", f"/dev/dri/renderD{128 + number}"]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_what_a_claim_has_is_granted_when_the_claim_is_over(two, driver, ending):
    machine, conf = two
    kind, name, shared = DRIVERS[driver]
    path = prepared(machine, kind, name, [*nodes_of(0), *shared], ending=ending)
    assert machine.add(conf, "gpu:1", "a") == nodes_of(1)
    code, details = machine.refused(conf, "gpu:1", "b")
    assert code == 100
    driver_name = kind.partition("/")[0].removeprefix("k8s.")
    assert f"claim uid:{UID} of DRA driver {driver_name}" in details
    path.unlink()
    assert machine.add(conf, "gpu:1", "b") == nodes_of(0)


def test_a_share_of_it_is_not_granted_either(two):
    machine, _whole = two
    conf = machine.configure(config(shared=True))
    prepared(machine, *DRIVERS["AMD"][:2], nodes_of(1))
    assert machine.add(conf, "gpu-memory:1024", "a") == nodes_of(0)
    assert machine.refused(conf, "gpu-memory:5000", "b")[0] == 100


def test_the_real_executable_reads_what_drivers_write(hosts, python):
    if subprocess.run([python, "-I", "-c", "import yaml"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no PyYAML, and drivers write YAML: install python3-yaml")
    machine = hosts(gpus((4096, 4096)))
    machine.install(python)
    conf = machine.configure(config())
    prepared(machine, *DRIVERS["NVIDIA"][:2], nodes_of(0))
    variables = {"CDI_VERSION": "0.0.1", "CDI_COMMAND": "ADD", "CDI_REQUEST": "gpu:1", "CDI_REQUEST_ID": "1"}
    status, reply, said = machine.run("drm", variables, conf)
    assert (status, reply and reply["devices"], said) == (0, nodes_of(1), "")


def test_a_claim_whose_spec_can_not_be_read_is_told(two, capfd):
    machine, conf = two
    path = prepared(machine, *DRIVERS["NVIDIA"][:2], nodes_of(0))
    path.write_text("{")
    assert machine.add(conf, "gpu:1", "a") == nodes_of(0)
    said = capfd.readouterr().err
    assert str(path) in said and "what this claim of a DRA driver has is not known" in said


def test_nothing_is_granted_where_a_claim_opens_and_can_not_be_read(two):
    machine, conf = two
    path = prepared(machine, *DRIVERS["NVIDIA"][:2], nodes_of(0))
    path.unlink()
    path.symlink_to("/proc/self/mem")  # nothing is mapped at its start: an error of input, as on a bad sector
    code, why = machine.refused(conf, "gpu:1", "a")
    assert code == 100 and "Input/output error" in why and "is not known" in why


@pytest.mark.parametrize("call", ["open", "list"])
def test_nothing_is_granted_where_the_system_does_not_let_us_read_claims(two, monkeypatch, call):
    """Its claim may have any device. Found by `make world`, seed 30014."""
    machine, conf = two
    path = str(prepared(machine, *DRIVERS["NVIDIA"][:2], nodes_of(0)))
    failed = errno.EIO, os.strerror(errno.EIO)
    open_, listdir = os.open, os.listdir

    def opens(name, *given, **named):
        if os.path.basename(name) == os.path.basename(path):
            raise OSError(*failed)
        return open_(name, *given, **named)

    def lists(directory="."):
        if directory == os.path.dirname(path):
            raise OSError(*failed)
        return listdir(directory)

    with monkeypatch.context() as patch:
        patch.setattr(os, *(("open", opens) if call == "open" else ("listdir", lists)))
        code, why = machine.refused(conf, "gpu:1", "a")[:2]
    assert code == 100 and "Input/output error" in why and "is not known" in why
    assert machine.add(conf, "gpu:1", "a") == nodes_of(1)


def test_specs_that_are_no_claims_change_nothing(two, capfd):
    machine, conf = two
    prepared(machine, "k8s.gpu.amd.com/gpu", "common", nodes_of(0), uid="common")
    prepared(machine, "fleet.cdi/claim", "x", nodes_of(0))  # ours: the ledger has it
    prepared(machine, "vendor.com/gpu", "x", nodes_of(0), uid="a-b-c-d-e-f")
    assert machine.add(conf, "gpu:2", "a") == [*nodes_of(0), *nodes_of(1)]
    assert capfd.readouterr().err == ""


def test_of_thousands_that_are_alike_a_claim_has_one(tmp_path):
    pool = tmp_path / "pool.json"
    alike = [Device(f"tty:{n}", "rule", "k.x/gpu", (f"{n}",), (Node(f"/dev/{n}", "c", 4, n),)) for n in range(100)]
    pool.write_bytes(inventory.render(Inventory(tuple(alike)), "boot", sketched=True))
    made = spec({"x": nodes("/dev/7", "/dev/vendorctl")}, "k8s.gpu.nvidia.com/claim")
    (tmp_path / f"k8s.gpu.nvidia.com-claim_{UID}.json").write_text(json.dumps(made))
    found = read(str(pool), "boot")
    assert isinstance(found.devices, Many)
    assert claimed.claimed_devices((str(tmp_path),), found, print).locks == {"tty:7": "whole"}


def test_a_claim_for_a_partition_leaves_the_others(tmp_path):
    def device(name, *nodes, part_of=()):
        return Device(name, "p", "k.x/gpu", (), tuple(Node(node, "c", 1, 1) for node in nodes), part_of=part_of)

    pool = Inventory(
        (
            device("gpu0", "/dev/nvidia0"),
            device("mig1", "/dev/nvidia0", "/dev/cap1", part_of=("gpu0",)),
            device("mig2", "/dev/nvidia0", "/dev/cap2", part_of=("gpu0",)),
            device("gpu1", "/dev/nvidia1"),
        )
    )
    made = spec({"x": nodes("/dev/nvidia0", "/dev/cap2", "/dev/nvidiactl")}, "k8s.gpu.nvidia.com/claim")
    (tmp_path / f"k8s.gpu.nvidia.com-claim_{UID}.json").write_text(json.dumps(made))
    assert claimed.claimed_devices((str(tmp_path),), pool, print).locks == {"gpu0": "parts", "mig2": "whole"}


def link(root, path):
    """A symlink, as udev makes them."""
    os.makedirs(f"{root}/dev/dri/by-path")
    os.symlink(f"../{os.path.basename(path)}", f"{root}/dev/dri/by-path/pci-0000:03:00.0-card")
    return {"path": "/dev/dri/by-path/pci-0000:03:00.0-card"}


def second(root, path):
    """A second node of the same numbers, in a tree of its own, as NVIDIA's driver container has it."""
    os.makedirs(f"{root}/run/nvidia/driver/dev")
    os.mknod(f"{root}/run/nvidia/driver/dev/card0", stat.S_IFCHR | 0o600, os.stat(f"{root}{path}").st_rdev)
    return {"path": path, "hostPath": "/run/nvidia/driver/dev/card0"}


def numbered(root, path):
    """No file at all: a runtime makes the node of the numbers that the spec gives."""
    rdev = os.stat(f"{root}{path}").st_rdev
    return {"path": "/dev/accel", "type": "c", "major": os.major(rdev), "minor": os.minor(rdev)}


def renumbered(root, path):
    """The path of another device, in the container."""
    return {**numbered(root, path), "path": "/dev/dri/card1"}


@pytest.mark.parametrize("way", [link, second, numbered, renumbered])
def test_a_claim_has_a_device_under_another_path(two, way):
    machine, conf = two
    path = prepared(machine, *DRIVERS["NVIDIA"][:2], [])
    edits = {"deviceNodes": [way(machine.root, "/dev/dri/card0")]}
    path.write_text(json.dumps(spec({"x": edits}, DRIVERS["NVIDIA"][0])))
    assert machine.add(conf, "gpu:1", "a") == nodes_of(1)
    code, details = machine.refused(conf, "gpu:1", "b")
    assert code == 100
    assert f"claim uid:{UID} of DRA driver gpu.nvidia.com" in details
    path.unlink()
    assert machine.add(conf, "gpu:1", "b") == nodes_of(0)


def test_a_path_of_a_claim_that_leads_nowhere_locks_nothing(two):
    """Nor does the ADD wait for a FIFO."""
    machine, conf = two
    os.symlink("loop", f"{machine.root}/dev/loop")
    os.mkfifo(f"{machine.root}/dev/fifo")
    os.symlink("fifo", f"{machine.root}/dev/to-fifo")
    os.symlink("../../../../../../../../../../../../dev/null", f"{machine.root}/dev/out")
    paths = ["/dev/loop", "/dev/fifo", "/dev/to-fifo", "/dev/out", "/dev/none", "/etc"]
    prepared(machine, *DRIVERS["NVIDIA"][:2], paths)
    assert machine.add(conf, "gpu:2", "a") == [*nodes_of(0), *nodes_of(1)]


def test_of_thousands_that_are_alike_a_claim_has_one_under_another_path(tmp_path):
    pool = tmp_path / "pool.json"
    alike = [Device(f"tty:{n}", "rule", "k.x/gpu", (f"{n}",), (Node(f"/dev/{n}", "c", 240, n),)) for n in range(100)]
    pool.write_bytes(inventory.render(Inventory(tuple(alike)), "boot", sketched=True))
    (tmp_path / "dev").mkdir()
    made = spec({"x": nodes("/dev/other", "/dev/vendorctl")}, "k8s.gpu.nvidia.com/claim")
    os.mknod(tmp_path / "dev/other", stat.S_IFCHR | 0o600, os.makedev(240, 7))
    (tmp_path / f"k8s.gpu.nvidia.com-claim_{UID}.json").write_text(json.dumps(made))
    found = read(str(pool), "boot")
    assert isinstance(found.devices, Many)
    assert claimed.claimed_devices((str(tmp_path),), found, print, str(tmp_path)).locks == {"tty:7": "whole"}
