# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DaemonSet's pod as a static pod: examples/kubernetes with an image built without a network, and a release's."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid

import built_release  # tests/harness
import kubelets
import pytest
import yaml
from node import hierarchies, wait
from product import ACCEL, ALL, HERE, seen

KUBERNETES = HERE.parents[1] / "examples/kubernetes"
IMAGE = "localhost/fleet-cdi-device-plugin:test"
BASE = "localhost/fleet-cdi-e2e:test"
# What the image's own base and packages are: of a mirror, as a registry can't be reached from everywhere.
RECIPE = ["--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", '--aptopt=Acquire::Check-Valid-Until "false"']
RECIPE += ["--include=python3,python3-grpcio,python3-protobuf", "trixie"]


def podman(*words, before=()):
    command = [*before, "podman", "--log-level=error", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"podman {words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The image, as an archive that containerd takes."""
    place = tmp_path_factory.mktemp("image")
    base = kubelets.CHECKOUT / f"build/image/base-{hashlib.sha256(json.dumps(RECIPE).encode()).hexdigest()[:12]}.tar"
    if not base.exists():
        base.parent.mkdir(parents=True, exist_ok=True)
        mirror = [os.environ["FLEET_CDI_DEBIAN_MIRROR"]] if os.environ.get("FLEET_CDI_DEBIAN_MIRROR") else []
        command = ["mmdebstrap", *RECIPE, str(place / "base.tar"), *mirror]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mmdebstrap made no base image: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        shutil.move(place / "base.tar", base)
    subprocess.run([sys.executable, KUBERNETES / "release.py", place / "image/release.zip"], check=True)
    try:
        podman("import", "--quiet", base, BASE)
        # Isolation chroot needs nothing of the machine, and has whatever network podman has, which is none.
        build = ["build", "--isolation=chroot", "--format=docker", f"--build-arg=BASE={BASE}", "--tag", IMAGE]
        podman(*build, "--file", KUBERNETES / "Containerfile", place / "image", before=("unshare", "--net"))
        podman("save", "--quiet", "--format=docker-archive", "--output", place / "image.tar", IMAGE)
        yield place / "image.tar"
        (place / "image.tar").unlink()
    finally:
        podman("rmi", "--ignore", IMAGE, BASE)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The artifacts of a release, with its image and manifests."""
    place = tmp_path_factory.mktemp("release")
    return built_release.build(built_release.with_packages(place), place / "built")


def examples():
    """The manifests of examples/kubernetes, with the image that was built from them."""
    text = "".join((KUBERNETES / file).read_text() for file in ("configmap.yaml", "daemonset.yaml"))
    (tagged,) = re.findall(r" image: (\S+)", text)
    return text.replace(tagged, IMAGE)


def pod_of(name, port, manifests):
    """The DaemonSet's pod as a static pod on a node without a network or an API server, and its configuration."""
    config, daemon_set = yaml.safe_load_all(manifests)
    configuration = json.loads(config["data"]["device-plugin.json"])
    configuration.update(resources={ACCEL: {"health": {"hold_down": 1}}}, grace=2, metrics=f":{port}")
    template = daemon_set["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    # A uid, as of an API server's: by the same manifest a kubelet takes the next pod for the one before.
    pod["metadata"] = {**template["metadata"], "name": name, "namespace": "kube-system", "uid": str(uuid.uuid4())}
    spec = pod["spec"]
    spec["hostNetwork"] = True
    (container,) = spec["containers"]
    container["imagePullPolicy"] = "Never"
    container["ports"][0]["containerPort"] = port
    (volume,) = [volume for volume in spec["volumes"] if "configMap" in volume]
    del volume["configMap"]
    volume["hostPath"] = {"path": f"/etc/{name}", "type": "Directory"}
    # The line that the manifest asks for, as the vendor's specs name files of a directory of their own.
    spec["volumes"].append({"name": "vendor", "hostPath": {"path": "/run/vendor", "type": "Directory"}})
    container["volumeMounts"].append({"name": "vendor", "mountPath": "/host/run/vendor", "readOnly": True})
    return pod, configuration


class DaemonSet:
    """Its pods on a node, by name."""

    def __init__(self, cluster, manifests):
        self.cluster = cluster
        self.manifests = manifests

    def start(self, name="device-plugin", port=9400):
        pod, configuration = pod_of(name, port, self.manifests)
        directory = self.cluster.node.path(f"/etc/{name}")
        directory.mkdir(exist_ok=True)
        (directory / "device-plugin.json").write_text(json.dumps(configuration))
        return self.cluster.submit(pod)

    def await_ready(self, name):
        """Wait until the pod is ready by its own probes; it was never started again."""

        def look():
            pod = (self.cluster.pods() or {}).get(name, {})
            statuses = pod.get("status", {}).get("containerStatuses", [])
            assert not any(status["restartCount"] for status in statuses), statuses
            return [status["ready"] for status in statuses] == [True]

        wait(f"{name} ready", look)


def prepare(product, archive):
    """Give a node the image, and its inventory where the manifest wants it."""
    place = product.node.path("/run/fleet-cdi")
    place.mkdir(exist_ok=True)
    (place / "inventory.json").write_bytes(product.node.path("/run/cdi-inventory.json").read_bytes())
    product.node.path("/run/image.tar").write_bytes(archive.read_bytes())
    product.node.run("ctr", "--namespace", "k8s.io", "images", "import", "/run/image.tar")
    product.node.path("/run/image.tar").unlink()


@pytest.fixture
def daemon_set(product, cluster, archive):
    """The DaemonSet of examples/kubernetes, and a node that has its image."""
    prepare(product, archive)
    return DaemonSet(cluster, examples())


@pytest.mark.parametrize("version", ["1.36"])
def test_a_release_serves_pods_by_its_own_image_and_manifests(product, cluster, released):
    """The kubelet knows the image by the digest in the manifests, as it would after a pull."""
    manifests = released.files[released.named("fleet-cdi-device-plugin-", ".yaml")].decode()
    (place, digest) = re.findall(r" image: (\S+)@(sha256:\w{64})\n", manifests)[0]
    archive = released.out / released.named("fleet-cdi-device-plugin-", ".oci.tar")
    prepare(product, archive)
    images = ["ctr", "--namespace", "k8s.io", "images"]
    (listed,) = [line for line in product.node.run(*images, "list").splitlines() if line.startswith(place)]
    name, _type, known, *_more = listed.split()
    assert known == digest
    product.node.run(*images, "tag", name, f"{place}@{digest}")

    daemon_set = DaemonSet(cluster, manifests)
    since = cluster.now()
    plugin = daemon_set.start()
    cluster.await_allocatable(ACCEL, ALL, since)
    (held,) = seen(cluster.output(cluster.create({ACCEL: 1})))[1]
    assert product.holds().keys() == {f"node:/dev/{held}"}
    daemon_set.await_ready(plugin)


@pytest.mark.counterpart("podman", "mmdebstrap")
@pytest.mark.parametrize("version", ["1.36", "1.20"])
def test_the_pod_serves_other_pods_and_survives_restarts(product, cluster, daemon_set):
    since = cluster.now()
    plugin = daemon_set.start()
    cluster.await_allocatable(ACCEL, ALL, since)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    assert product.holds().keys() == {f"node:/dev/{held}"}

    since = cluster.now()
    lost = sorted(ALL - {held})[0]
    product.unplug(lost)
    cluster.await_allocatable(ACCEL, ALL - {lost}, since)
    since = cluster.now()
    product.plug(lost)
    cluster.await_allocatable(ACCEL, ALL, since)

    cluster.stop_kubelet()
    since = cluster.now()
    cluster.start_kubelet()
    cluster.await_allocatable(ACCEL, ALL, since)
    assert cluster.held(name, ACCEL) == {held}
    assert seen(cluster.output(cluster.create({ACCEL: 2})))[1] == ALL - {held}

    daemon_set.await_ready(plugin)
    cluster.delete(name)
    wait("the ledger without the hold", lambda: held not in "".join(product.holds()))


@pytest.mark.counterpart("podman", "mmdebstrap")
@pytest.mark.parametrize("version", ["1.36", "1.20"])
def test_a_rolling_update(cluster, daemon_set):
    """As maxSurge has it: the next pod is ready beside the one before, then that goes."""
    old = daemon_set.start()
    daemon_set.await_ready(old)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    new = daemon_set.start("device-plugin-2", 9401)
    daemon_set.await_ready(new)
    cluster.delete(old)
    time.sleep(5)  # what a kubelet does when the old one's stream ends comes late
    cluster.await_allocatable(ACCEL, ALL)
    daemon_set.await_ready(new)
    assert cluster.held(name, ACCEL) == {held}
    assert seen(cluster.output(cluster.create({ACCEL: 2})))[1] == ALL - {held}


LIMITS = {"memory.max": "memory.peak", "memory.limit_in_bytes": "memory.max_usage_in_bytes"}  # of cgroup v2 and v1


def memory(cluster, name):
    """Limit, and the most that was in use, of the running container of a pod, in MiB."""
    (ident,) = cluster.containers(name)
    tasks = cluster.node.run("ctr", "--namespace", "k8s.io", "tasks", "list").splitlines()
    (process,) = [line.split()[1] for line in tasks if line.startswith(ident)]
    places = [line.split(":", 2)[2].strip("/") for line in cluster.node.run("cat", f"/proc/{process}/cgroup").split()]
    files = [root / place / name for root in hierarchies() for place in places for name in LIMITS]
    limits = [file for file in files if file.exists() and file.read_text().strip().isdigit()]
    peaks = [file.with_name(LIMITS[file.name]) for file in limits]
    return min((int(file.read_text()) >> 20, int(peak.read_text()) / 2**20) for file, peak in zip(limits, peaks))


@pytest.mark.counterpart("podman", "mmdebstrap")
@pytest.mark.parametrize("version", ["1.36", "1.20"])
def test_10000_devices_within_the_limit_of_memory(product, cluster, daemon_set, figure):
    """Each has a node, a variable and a mount of its own. The pod is never started again."""
    names = {f"accel{number}" for number in range(10_000)}
    product.plug(*names)
    product.describe(*sorted(names))
    since = cluster.now()
    plugin = daemon_set.start()
    cluster.await_allocatable(ACCEL, names, since)
    daemon_set.await_ready(plugin)

    name = cluster.create({ACCEL: 8})
    cluster.output(name)
    lost = set(sorted(names - cluster.held(name, ACCEL))[:1000])
    since = cluster.now()
    product.unplug(*lost)
    cluster.await_allocatable(ACCEL, names - lost, since)
    cluster.stop_kubelet()
    since = cluster.now()
    cluster.start_kubelet()
    cluster.await_allocatable(ACCEL, names - lost, since)
    daemon_set.await_ready(plugin)

    manifest = yaml.safe_load((KUBERNETES / "daemonset.yaml").read_text())
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    limit, most = memory(cluster, plugin)
    assert container["resources"]["limits"]["memory"] == f"{limit}Mi"
    figure(f"memory of the pod at most, of {limit} MiB, with 10,000 devices", most, unit="MiB")
