# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that DRA drivers hand out on the same node: what a claim has is nobody else's, whoever's driver it is of.

The forms of three drivers: NVIDIA/k8s-dra-driver-gpu 22407113 (cmd/gpu-kubelet-plugin/cdi.go), ROCm/k8s-gpu-dra-driver
26224272 (cmd/gpu-kubeletplugin/cdi.go, state.go) and kubernetes-sigs/dra-example-driver 31914cea
(cmd/dra-example-kubeletplugin/cdi.go).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
from admission import Claim, Pod, Rejected
from conftest import Start
from host import CODE, Host, command, until
from kubelet import Kubelet

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Refused
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec

RESOURCE = "vendor.com/thing"
UID = "3b0e3f4c-8ed5-4b0a-9d2a-6f3a1c2d4e5f"


class Driver(NamedTuple):
    """How a driver writes the spec of a claim on thing0."""

    name: str
    kind: str
    device: str
    nodes: tuple[str, ...]
    common: tuple[str, ...] = ()  # nodes in the edits of the whole spec
    stays: str = ""  # id of a transient spec that it keeps

    @property
    def qualified(self) -> str:
        """The claim's device."""
        return f"{self.kind}={UID}-{self.device}"

    def file(self, id_: str) -> str:
        """The name of a transient spec: GenerateTransientSpecName."""
        return f"{self.kind.replace('/', '-')}_{id_}.yaml"

    def prepare(self, host: Host) -> None:
        """NodePrepareResources."""
        if self.stays:
            document = spec({self.stays: {"env": [f"DRA_RESOURCE_DRIVER_NAME={self.name}"]}}, self.kind)
            (host.specs / self.file(self.stays)).write_text(json.dumps(document))
        edits = {"containerEdits": nodes(*(f"/dev/{one}" for one in self.common))}
        devices = {f"{UID}-{self.device}": self.nodes}
        host.spec(self.kind, devices, file=self.file(UID), **(edits if self.common else {}))

    def unprepare(self, host: Host) -> None:
        """NodeUnprepareResources."""
        (host.specs / self.file(UID)).unlink()


DRIVERS = (
    Driver("gpu.nvidia.com", "k8s.gpu.nvidia.com/claim", "gpu-0", ("thing0",), ("control9",)),
    Driver("gpu.amd.com", "k8s.gpu.amd.com/gpu", "gpu-0-128", ("control9", "thing0"), stays="common"),
    Driver("gpu.example.com", "k8s.gpu.example.com/gpu", "gpu-0", ("thing0",), stays="common"),
)
each_driver = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)


def told(kubelet: Kubelet) -> dict[str, str]:
    """What the kubelet was told first."""
    return kubelet.books.seen("list", RESOURCE)[0].detail


def ledger(host: Host) -> Ledger:
    """The store of the host."""
    return Ledger(str(host.base / "state"), inventory.boot_id())


def held(host: Host) -> dict[str, list[str]]:
    """Who of DRA's holds what."""
    return {
        f"{grant.key.resource_type}/{grant.key.plugin}/{grant.key.request_id}": [hold.device for hold in grant.holds]
        for grant in ledger(host).grants()
        if grant.key.resource_type == "dra"
    }


def add(host: Host, device: str) -> None:
    """What the ADD of an executable asks of the ledger."""
    ledger(host).add(Key("gpu", "drm", "job"), {"gpu-drm": 1}, lambda _held: (Hold(device, "v.com/x"),), "claims")


def grants(host: Host) -> str:
    """What an operator sees."""
    code = "import sys; from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main; sys.exit(main("
    paths = {"state_dir": str(host.base / "state"), "inventory": "/nonexistent", "spec_dirs": ["/nonexistent"]}
    settings = {**paths, "prefix": "/nonexistent"}
    code += f"['grants', 'list'], 'test', {settings!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": CODE}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


def status(host: Host) -> dict[str, Any]:
    """What the instance says of itself."""
    (path,) = (host.base / "run").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def why(host: Host, device: str) -> str:
    """Why a device is Unhealthy."""
    return str(status(host)["resources"][RESOURCE]["devices"][device]["reason"])


@each_driver
def test_what_a_claim_has_is_nobody_elses(host: Host, newer: Kubelet, start: Start, driver: Driver) -> None:
    """It is Unhealthy from the first list on, no new resource, held in the ledger; and free when the claim is over."""
    host.devices(2)
    host.plug("control9")
    driver.prepare(host)
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    assert told(newer) == {"d0": "Unhealthy", "d1": "Healthy"}
    assert set(newer.books.healthy) == {RESOURCE}
    assert held(host) == {f"dra/{driver.name}/uid:{UID}": ["node:/dev/thing0"]}
    newer.pods["claimed"] = Pod("claimed", {"main": {}}, claims=(Claim("train", driver.name, (driver.qualified,)),))
    until(lambda: held(host) == {f"dra/{driver.name}/default/train": ["node:/dev/thing0"]})
    (line,) = [one for one in grants(host).splitlines() if "thing0" in one]
    assert line.split() == ["default/train", f"dra/{driver.name}", "external", "active", "-", "node:/dev/thing0"]
    with pytest.raises(Rejected):
        newer.run("two", **{RESOURCE: 2})
    assert newer.run("one", **{RESOURCE: 1})["cdi_devices"] == [f"{RESOURCE}=d1"]
    with pytest.raises(Refused, match="thing0"):
        add(host, "node:/dev/thing0")
    del newer.pods["claimed"]
    driver.unprepare(host)
    plugin.said("claim-released", driver=driver.name, claim="default/train")
    assert newer.wait_for(RESOURCE, 2)
    assert held(host) == {}


@each_driver
def test_a_claim_that_comes_while_the_plugin_serves(host: Host, kubelet: Kubelet, start: Start, driver: Driver) -> None:
    """Old kubelets list no claims: the spec is enough."""
    host.devices(2)
    host.plug("control9")
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    driver.prepare(host)
    plugin.said("claim-held", driver=driver.name, claim=f"uid:{UID}")
    assert kubelet.wait_for(RESOURCE, 1)
    driver.unprepare(host)
    plugin.said("claim-released", driver=driver.name)
    assert kubelet.wait_for(RESOURCE, 2)


def test_a_driver_without_transient_specs(host: Host, newer: Kubelet, start: Start) -> None:
    """intel/intel-resource-drivers-for-kubernetes gives a claim devices of a spec that stays."""
    host.devices(2)
    plugin = start()
    assert newer.wait_for(RESOURCE, 2)
    newer.pods["p"] = Pod("p", {"main": {}}, claims=(Claim("one", "thing.vendor.com", (f"{RESOURCE}=d1",)),))
    assert newer.wait_for(RESOURCE, 1)
    assert held(host) == {"dra/thing.vendor.com/default/one": ["node:/dev/thing1"]}
    del newer.pods["p"]
    plugin.said("claim-released", claim="default/one")
    assert newer.wait_for(RESOURCE, 2)


def test_a_claim_outlives_the_plugin_and_the_kubelet(host: Host, newer: Kubelet, start: Start) -> None:
    """Who can't be asked frees nothing."""
    driver = DRIVERS[1]
    host.devices(2)
    driver.prepare(host)
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    newer.pods["p"] = Pod("p", {"main": {}}, claims=(Claim("one", driver.name, (driver.qualified,)),))
    plugin.said("claim-held", claim="default/one")
    newer.stop()
    driver.unprepare(host)
    plugin.said("waiting", resource=RESOURCE)
    plugin.kill()
    plugin = start()
    plugin.said("waiting", resource=RESOURCE)
    assert held(host) == {"dra/gpu.amd.com/default/one": ["node:/dev/thing0"]}
    newer.start()
    assert newer.wait_for(RESOURCE, 1)
    assert held(host) == {"dra/gpu.amd.com/default/one": ["node:/dev/thing0"]}
    assert not plugin.lines("claim-released")


def test_a_claim_on_what_a_pod_was_given(host: Host, newer: Kubelet, start: Start) -> None:
    """Nobody can take it away from either: both are named, in the log, to the kubelet, in the status."""
    driver = DRIVERS[0]
    host.devices(1)
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    newer.run("p", **{RESOURCE: 1})
    driver.prepare(host)
    clash = f"claim uid:{UID} of DRA driver gpu.nvidia.com has node:/dev/thing0"
    holder = f"request d0 of kubernetes/{RESOURCE} (kubernetes) holds as well"
    until(lambda: [one for one in plugin.lines("warning") if clash in one["reason"] and holder in one["reason"]])
    until(lambda: newer.books.healthy[RESOURCE] == set())
    until(lambda: why(host, "d0") == f"taken: {clash}, which a pod was given as well")
    assert clash in command(host, "status").stdout  # fleet-cdi doctor says the same
    assert [grant.key.request_id for grant in ledger(host).grants()] == ["d0"] and newer.holds("p")
    newer.delete("p")
    until(lambda: held(host) == {f"dra/{driver.name}/uid:{UID}": ["node:/dev/thing0"]})
    assert newer.books.healthy[RESOURCE] == set()
    until(lambda: plugin.lines("warning-over"))


def test_a_claim_on_what_an_executable_granted(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(2)
    plugin = start()
    assert newer.wait_for(RESOURCE, 2)
    add(host, "node:/dev/thing0")
    DRIVERS[0].prepare(host)
    until(lambda: [one for one in plugin.lines("warning") if "request job of gpu/drm (claims) holds" in one["reason"]])
    assert held(host) == {}
    ledger(host).delete(Key("gpu", "drm", "job"))
    until(lambda: held(host))
    assert newer.wait_for(RESOURCE, 1)


def test_a_claim_gives_a_device_under_another_path(host: Host, newer: Kubelet, start: Start) -> None:
    """As drivers do that have the driver's device nodes in a tree of their own: /run/nvidia/driver/dev/nvidia0."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    host.devices(2)
    tree = host.root / "run/driver/dev"
    tree.mkdir(parents=True)
    os.mknod(tree / "thing0", 0o600 | 0o020000, (host.root / "dev/thing0").stat().st_rdev)
    (host.root / "dev/by-path").symlink_to("../run/driver/dev")
    node = {"path": "/dev/thing0", "hostPath": "/dev/by-path/thing0"}
    driver = DRIVERS[0]
    plugin = start()
    assert newer.wait_for(RESOURCE, 2)
    device = {"name": f"{UID}-gpu-0", "containerEdits": {"deviceNodes": [node]}}
    document = {"cdiVersion": "0.5.0", "kind": driver.kind, "devices": [device]}
    (host.specs / driver.file(UID)).write_text(json.dumps(document))
    plugin.said("claim-held", driver=driver.name, claim=f"uid:{UID}")
    assert newer.wait_for(RESOURCE, 1)
    holder = f"taken: claim uid:{UID} of DRA driver {driver.name} holds node:"
    until(lambda: why(host, "d0").startswith(holder))  # the file is written after the list
    with pytest.raises(Refused, match="thing0"):
        add(host, "node:/dev/thing0")
    driver.unprepare(host)
    plugin.said("claim-released", driver=driver.name)
    assert newer.wait_for(RESOURCE, 2)


def test_the_spec_of_another_tool_gives_a_device_under_another_path(host: Host, newer: Kubelet, start: Start) -> None:
    """Both kinds are offered, and the second pod is refused the device that the first one has."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    host.devices(1)
    os.mknod(host.root / "dev/second", 0o600 | 0o020000, (host.root / "dev/thing0").stat().st_rdev)
    host.spec("other.com/thing", {"x": ["second"]}, file="other.json")
    start()
    assert newer.wait_for(RESOURCE, 1)
    assert newer.wait_for("other.com/thing", 1)
    newer.run("one", **{RESOURCE: 1})
    assert newer.wait_for("other.com/thing", 0)
    with pytest.raises(Rejected):
        newer.run("two", **{"other.com/thing": 1})
