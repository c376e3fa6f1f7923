# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the hosts of a fleet, as module host_report_info returns them: for tests and benchmarks of the report."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ansible_collections.fleet.cdi.plugins.plugin_utils.on_host import release

RELEASE = release().id
MADE = 1763900000  # 2025-11-23
SPEC = "/etc/cdi/nvidia.com-gpu.json"
SLOTS = ("1a", "3d", "4e", "5f", "9b", "bb", "cd", "dc", "df", "e1", "e4", "e7", "f1", "f3", "f5", "f7")
PROVISION = "the driver was changed: run the provisioning again: `ansible-playbook fleet.cdi.provision`"
LIBRARY = "/containerEdits/mounts/0/hostPath: the spec says libcuda.so.580.1, the host has libcuda.so.580.2"

# Every so many hosts have this problem.
EVERY = {"unreachable": 61, "bare": 211, "stale": 23, "gone": 97, "occupied": 131, "unseen": 71, "disabled": 43}


def hexadecimal(*words: Any) -> str:
    """Return 64 digits that follow from the words."""
    return hashlib.sha256(repr(words).encode()).hexdigest()


def device(host: int, slot: int) -> dict[str, Any]:
    """Return one healthy GPU that nobody holds."""
    bus, digits = SLOTS[slot % len(SLOTS)], hexadecimal(host, slot)
    uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
    return {
        "id": f"pci:0000:{bus}:00.0",
        "kind": "nvidia.com/gpu",
        "names": [str(slot), uuid],
        "driver": "nvidia",
        "pci_address": f"0000:{bus}:00.0",
        "pci_id": "0x10de:0x2335",
        "serial": str(1650000000000 + host * 16 + slot),
        "uuid": uuid,
        "pcie_path": [f"pci0000:{15 * (slot // 2):02x}", f"0000:{15 * (slot // 2):02x}:01.0"],
        "nic_relation": "PIX",
        "nodes": [f"/dev/nvidia{slot}"],
        "numa_node": slot // 4,
        "wanted": ["offered", "cdi_host"],
        "written": ["yes", "", [SPEC]],
        "promised": ["free", "", []],
        "real": ["healthy", ""],
        "openers": [],
    }


def hold(one: dict[str, Any], host: int, job: int) -> None:
    """Let a pod hold the device, and a process of its container have it open."""
    digits = hexadecimal(host, job)
    pod = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
    who = f"request {pod} of kubernetes/nvidia.com/gpu (kubernetes)"
    since = MADE - 3600 * (1 + (host + job) % 99)
    promise = {"who": who, "owner": "kubernetes", "request": pod, "state": "active", "since": since, "unique": ""}
    process = {"pid": 4000 + 100 * job, "command": "python3.11", "uid": 1000 + host, "path": one["nodes"][0]}
    one["promised"] = ["held", "", [promise]]
    if host % 2:  # a host that knows the names of its users
        process["user"] = f"scientist{host}"
    one["openers"] = [{**process, "container": hexadecimal("c", host, job), "engine": "containerd", "pod": pod}]


def finding(report: dict[str, Any], rule: str, subject: str, problem: str, then: str, *slots: int) -> None:
    """Add a finding about the devices in these slots."""
    for slot in slots:
        report["devices"][slot].setdefault("findings", []).append(len(report["findings"]))
    report["findings"].append({"rule": rule, "subject": subject, "problem": problem, "next": then})


def report(host: int, devices: int = 8) -> dict[str, Any]:
    """Return the truth of a host without problems, half of whose devices are held."""
    found = [device(host, slot) for slot in range(devices)]
    for slot in range(host % (devices + 1) if devices else 0):
        hold(found[slot], host, slot // (1 << host % 4))
    half = max(devices // 2, 1)
    return {
        "version": 1,
        "made": MADE,
        "uptime": 86400 * (1 + host % 50),
        "boot_id": hexadecimal("boot", host)[:32],
        "release": RELEASE,
        "devices": found,
        "links": [[a, b, "NVL", 18, 478.0] for a in range(devices) for b in range(a + 1, devices)],
        "nics": [
            {
                "id": f"pci:0000:{nic:02x}:00.0",
                "names": [f"mlx5_{nic}", f"ibp{nic}s0"],
                "numa_node": 2 * nic // half,
                "pcie_path": [f"pci0000:{15 * nic:02x}", f"0000:{15 * nic:02x}:01.0"],
            }
            for nic in range(half)
        ],
        "findings": [],
    }


def result(host: int, devices: int = 8) -> dict[str, Any]:
    """Return the result of the module on a host, with the problems of EVERY."""
    has = {name: host % every == every - 1 for name, every in EVERY.items()}
    if has["unreachable"]:
        return {"unreachable": True, "msg": "Failed to connect to the host via ssh: Connection timed out"}
    found = report(host, devices)
    if has["bare"]:
        found["release"] = ""
    if devices and has["stale"]:
        finding(found, "driver-version", SPEC, LIBRARY, PROVISION, *range(devices))
    if devices and has["gone"]:
        slot = host % devices
        one = found["devices"][slot]
        one["real"], one["openers"] = ["gone", ""], []
        text = f"/devices/{slot}: the spec says {slot}, the host has no such device"
        finding(found, "device-gone", SPEC, text, "look at the device; `fleet-cdi refresh --drop` gives it up", slot)
    if devices and has["occupied"]:
        slot = (host + 1) % devices
        one = found["devices"][slot]
        hold(one, host, 90)
        one["promised"] = ["free", "", []]
        text = (
            f"{one['id']}: {one['nodes'][0]} is open in pid {4000 + host} (python3.11, uid 1000), and nobody holds it"
        )
        finding(found, "occupied", one["id"], text, "end the process that is named", slot)
    if has["unseen"]:
        for one in found["devices"]:
            one["openers"] = None
    if devices and has["disabled"]:
        found["devices"][-1]["wanted"] = ["withdrawn", "out of service since 2026-11-21T15:20:00Z: fan"]
    return {"changed": False, "report": found, "gathered": MADE + 2}


def name(host: int) -> str:
    """Return the name of a host."""
    return f"gpu-{host:05d}"


def rack(host: int) -> str:
    """Return the rack of a host: 40 in each."""
    return f"rack{host // 40 + 1}"


def hostvars(hosts: int, devices: int = 8) -> dict[str, dict[str, Any]]:
    """Return the variables of the hosts, as filter fleet_report takes them."""
    return {
        name(host): {"fleet_cdi_rack": rack(host), "truth": json.loads(json.dumps(result(host, devices)))}
        for host in range(hosts)
    }
