# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with a real GPU of NVIDIA or AMD: what we say of it beside what the vendor's own programs say and do."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import vendor_spec
import vendors
from gpu_host import DEVICES

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.build_spec import spec_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover

SHOWN = 160  # characters of a line in the results
# What `nvidia-smi topo -m` says of two GPUs, the nearest last; NV4 are four NVLinks.
NEAR = ("SYS", "NODE", "PHB", "PXB", "PIX", "NV")


def test_every_gpu_of_the_vendor_is_a_device(host, listed):
    ours = {one["pci_address"]: one for one in host.devices()}
    assert sorted(ours) == [gpu.address for gpu in listed]
    for gpu in listed:
        one = ours[gpu.address]
        assert one["health"]["state"] == "healthy"
        if gpu.uuid:
            assert (one["uuid"], one["capacity"]) == (gpu.uuid, {"memory": gpu.memory})
        for node in one["nodes"]:
            assert os.stat(node["path"]).st_rdev == os.makedev(node["major"], node["minor"])


def test_numbers_are_the_vendors(host, listed):
    """GPU 0 is the one that the vendor lists first."""
    names = {one["pci_address"]: one["names"] for one in host.devices()}
    assert [names[gpu.address][0] for gpu in listed] == [str(number) for number in range(len(listed))]


def test_a_second_run_changes_nothing(host):
    assert re.search(r"changed=0 .*failed=0", host.provision())


def test_nothing_is_wrong(host):
    findings = json.loads(host.attempt("doctor", "--json").stdout)["findings"]
    # Units, and directories of runtimes, are those of the host, not of this namespace.
    assert [one for one in findings if one["level"] == "error"] == []


@pytest.mark.parametrize("program", ["the vendor's", "ours"])
def test_the_spec_is_that_of_the_vendors_generator(vendor, told, options, explanations, tmp_path, program):
    """Every difference is in differences.yml, with the reason."""
    if not shutil.which(vendor.generator[0]):
        pytest.skip(f"{vendor.generator[0]} is not installed")
    if program == "the vendor's":
        if not vendor.hook or not shutil.which(vendor.hook):
            pytest.skip("the vendor's program for hooks is not installed, or there is none")
        options = {**options, "hook_path": shutil.which(vendor.hook)}
    theirs = vendor_spec.containers(vendors.spec(vendor, tmp_path / "theirs.json", options))
    entry = {"profile": vendor.profile, "name_by": list(vendor.names), "device_numbers": True, **options}
    found = discover({"gpus": entry}, snapshot.take("/"))
    ours = vendor_spec.containers(spec_of(found.kinds[0], found.devices))
    assert ours.keys() == theirs.keys()
    rows = [row for row in explanations if program == "ours" or row.get("without") != "hook"]
    explained: dict[str, list[str]] = {}
    for side, line in vendor_spec.differences(ours, theirs):
        fit = vendor_spec.explained(rows, line, side=side)
        assert fit, f"only {side}: {line}"
        explained.setdefault(f"{side}: {rows[fit[0]]['why']}", []).append(line[:SHOWN])
    told.setdefault("differences", {})[program] = explained
    for name in ours:
        assert _mounted(ours[name]) == _mounted(theirs[name])


def _mounted(lines):
    """The last parts of the paths of all mounts: the same files, wherever one side found them."""
    return sorted(line.split()[1].rpartition("/")[2] for line in lines if line.startswith("mount "))


def test_what_a_discovery_costs(vendor, told, tmp_path):
    """CPU seconds of a discovery, in a process of its own, beside those of the vendor's generator. A figure only."""
    script = (
        "from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot\n"
        "from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover\n"
        f"discover({{'gpus': {{'profile': {vendor.profile!r}}}}}, snapshot.take('/'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told["cpu_seconds"] = {"ours": _cpu([sys.executable, "-c", script], environment)}
    told["cpu_seconds"]["python alone"] = _cpu([sys.executable, "-c", ""], environment)
    if shutil.which(vendor.generator[0]):
        command = [word.format(tmp_path / "theirs.json") for word in vendor.generator]
        told["cpu_seconds"]["theirs"] = _cpu(command, environment)


def _cpu(command, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 3)


def test_a_container_has_the_nodes_of_its_gpu(host, vendor, podman):
    """And a container without a GPU has none of them."""
    all_nodes = {node["path"] for one in host.devices() for node in one["nodes"]}
    assert not all_nodes & _nodes(podman)
    for one in host.devices():
        own = {node["path"] for node in one["nodes"]}
        assert all_nodes & _nodes(podman, f"{vendor.kind}={one['names'][0]}") == own


def _nodes(podman, device=None):
    done = podman(["/bin/sh", "-c", "for node in /dev/* /dev/*/*; do [ -c $node ] && echo $node; done"], device)
    return set(done.stdout.split())


def test_a_container_lists_its_gpu_alone(host, vendor, listed, podman):
    if vendor.name != "nvidia":
        pytest.skip("AMD's programs are in images, not in what a container gets of the host")
    mounts = [mount for mount in host.spec()["containerEdits"]["mounts"] if mount["hostPath"].endswith("/nvidia-smi")]
    if not mounts:
        pytest.skip("nvidia-smi is in no usual directory; say where the driver is: OPTIONS='{\"driver_root\": ...}'")
    (mount,) = mounts
    if Path(mount["hostPath"]).read_bytes()[:2] == b"#!":
        pytest.skip(
            f"{mount['hostPath']} is a script of this host; OPTIONS='{{\"driver_root\": ...}}' names the driver"
        )
    listing = [mount["containerPath"], "-L"]
    assert podman(listing).returncode != 0
    for number, gpu in enumerate(listed):
        for name in (str(number), gpu.uuid):
            done = podman(listing, f"{vendor.kind}={name}")
            assert done.stdout == f"GPU 0: {gpu.model} (UUID: {gpu.uuid})\n", done.stderr
    done = podman(listing, f"{vendor.kind}=all")
    assert done.stdout.count("UUID") == len(listed)


@pytest.mark.usefixtures("host", "compute")
def test_a_container_computes_on_its_gpu(vendor, listed, podman):
    if vendor.name != "nvidia":
        pytest.skip("compute.c uses CUDA")
    assert podman(["/bin/compute"]).returncode != 0
    for number, gpu in enumerate(listed):
        done = podman(["/bin/compute"], f"{vendor.kind}={number}")
        assert (done.stdout, done.stderr) == (f"{gpu.uuid}\n", "")


@pytest.mark.skipif(shutil.which("nvidia-cdi-hook") is None, reason="nvidia-cdi-hook is not installed")
@pytest.mark.usefixtures("compute")
def test_a_container_with_the_vendors_hooks_computes(host, vendor, listed, podman):
    """The same with hook_path, and then our hook again."""
    host.provision(hook_path=shutil.which("nvidia-cdi-hook"))
    try:
        assert "nvidia-cdi-hook" in json.dumps(host.spec())
        done = podman(["/bin/compute"], f"{vendor.kind}=all")
        assert (done.stdout.split(), done.stderr) == ([gpu.uuid for gpu in listed], "")
    finally:
        host.provision()


@pytest.mark.usefixtures("compute")
def test_claims_hand_each_gpu_out_once(host, vendor, listed, podman):
    names = [f"test-{number}" for number in range(len(listed))]
    try:
        devices = [host.run("claim", "add", name, "gpu:1").strip() for name in names]
        refused = host.attempt("claim", "add", "one-more", "gpu:1")
        assert refused.returncode != 0 and "error 100" in refused.stderr
        if vendor.name == "nvidia":
            seen = [podman(["/bin/compute"], device).stdout.strip() for device in devices]
            assert sorted(seen) == sorted(gpu.uuid for gpu in listed)
    finally:
        for name in names:
            host.run("claim", "del", name)
    assert json.loads(host.run("claim", "list", "--json"))["claims"] == []


@pytest.fixture
def kubelet(host, tmp_path):
    """A kubelet for tests (tests/contract) with the device plugin on this host, as a process of its own."""
    pytest.importorskip("grpc", reason="missing packages: python3-grpcio")
    sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
    from host import Plugin
    from kubelet import Kubelet
    from personality import NEW

    short = Path(tempfile.mkdtemp(prefix="c"))  # a socket's path may have 107 bytes
    node = Kubelet(str(short / "p"), NEW, registry_dir=str(short / "r"), pod_resources=str(short / "kubelet.sock"))
    settings = {
        "version": 1,
        "plugin_dir": str(short / "p"),
        "registry_dir": str(short / "r"),
        "pod_resources": str(short / "kubelet.sock"),
        "spec_dirs": ["/etc/cdi"],
        "inventory": DEVICES,
        "state_dir": "/var/lib/cdi",
        "run_dir": str(short / "run"),
        "resources": {host.vendor.kind: {}},
    }
    (tmp_path / "device-plugin.json").write_text(json.dumps(settings))
    node.start()
    plugin = Plugin(SimpleNamespace(base=tmp_path, config=tmp_path / "device-plugin.json"))
    try:
        yield node
        assert plugin.stop() == 0, plugin.text
    finally:
        plugin.kill()
        node.stop()
        shutil.rmtree(short)


@pytest.mark.usefixtures("compute")
def test_pods_get_a_gpu_each(vendor, listed, kubelet, podman):
    """The kubelet gets CDI names, with which a runtime starts the container."""
    assert kubelet.wait_for(vendor.kind, len(listed))
    told = [kubelet.run(f"pod-{number}", **{vendor.kind: 1}) for number in range(len(listed))]
    names = [container["cdi_devices"] for container in told]
    assert [len(one) for one in names] == [1] * len(listed)
    if vendor.name == "nvidia":
        seen = [podman(["/bin/compute"], name).stdout.strip() for (name,) in names]
        assert sorted(seen) == sorted(gpu.uuid for gpu in listed)


def test_two_gpus_of_a_claim_are_near(host, vendor, told, listed):
    """No two GPUs of this host are nearer than those that a request for two gets, as `nvidia-smi topo -m` says it."""
    if vendor.name != "nvidia" or len(listed) < 2:
        pytest.skip("needs two GPUs of NVIDIA to choose between")
    rank = _topology()
    told["topology"] = rank
    try:
        host.run("claim", "add", "pair", "gpu:2")
        (claim,) = json.loads(host.run("claim", "list", "--json"))["claims"]
        nodes = {node["path"] for node in claim["nodes"]}
        got = [number for number, one in enumerate(host.devices()) if {node["path"] for node in one["nodes"]} <= nodes]
        assert rank[got[0]][got[1]] == max(rank[a][b] for a in range(len(rank)) for b in range(a))
    finally:
        host.run("claim", "del", "pair")


def _topology():
    """rank[a][b]: how near GPUs a and b are, the larger the nearer."""
    text = subprocess.run(["nvidia-smi", "topo", "-m"], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines() if re.match(r"GPU[0-9]+\s", line)]
    return [[_rank(word) for word in row[1 : len(rows) + 1]] for row in rows]


def _rank(word):
    links = re.match(r"NV([0-9]+)", word)
    return len(NEAR) + int(links[1]) if links else NEAR.index(word) if word in NEAR else -1


def test_who_has_a_gpu_open_is_known(host, vendor, listed, compute):
    """A process that has a GPU without a grant: named by `fleet-cdi grants`, and gone when it has ended."""
    if vendor.name != "nvidia":
        pytest.skip("compute.c uses CUDA")
    with subprocess.Popen([compute, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == listed[0].uuid
        assert str(process.pid) in host.run("grants", "list", "--open")
        process.stdin.close()
    assert str(process.pid) not in host.run("grants", "list", "--open")


@pytest.mark.usefixtures("host")
def test_undo_leaves_nothing():
    """The last test: what provision wrote is gone."""
    subprocess.run(["/opt/cdi/bin/fleet-cdi", "undo", "--force"], check=True, capture_output=True)
    assert not Path("/etc/cdi").exists() or list(Path("/etc/cdi").iterdir()) == []
