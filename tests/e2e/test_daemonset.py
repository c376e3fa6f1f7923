# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""examples/kubernetes as it is: the image is built without a network, the DaemonSet's pod runs as a static pod."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest
import yaml
from node import wait
from product import ACCEL, ALL, HERE, seen

KUBERNETES = HERE.parents[1] / "examples/kubernetes"
IMAGE = "localhost/fleet-cdi-device-plugin:test"
BASE = "localhost/fleet-cdi-e2e"
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
    base = f"{BASE}:{hashlib.sha256(json.dumps(RECIPE).encode()).hexdigest()[:12]}"
    if subprocess.run(["podman", "image", "exists", base], check=False).returncode:
        mirror = [os.environ["FLEET_CDI_DEBIAN_MIRROR"]] if os.environ.get("FLEET_CDI_DEBIAN_MIRROR") else []
        command = ["mmdebstrap", *RECIPE, str(place / "base.tar"), *mirror]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mmdebstrap made no base image: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        podman("import", "--quiet", place / "base.tar", base)
        (place / "base.tar").unlink()
    subprocess.run([sys.executable, KUBERNETES / "release.py", place / "image/release.zip"], check=True)
    # Isolation chroot needs nothing of the machine, and has whatever network podman has, which is none.
    build = ["build", "--isolation=chroot", "--format=docker", f"--build-arg=BASE={base}", "--tag", IMAGE]
    podman(*build, "--file", KUBERNETES / "Containerfile", place / "image", before=("unshare", "--net"))
    try:
        podman("save", "--quiet", "--format=docker-archive", "--output", place / "image.tar", IMAGE)
        yield place / "image.tar"
        (place / "image.tar").unlink()
    finally:
        podman("rmi", IMAGE)


def pod_of(documents, settings):
    """The DaemonSet's pod as a static pod on a node without a network, and its configuration with more settings."""
    config, daemon_set = documents
    configuration = {**json.loads(config["data"]["device-plugin.json"]), **settings}
    template = daemon_set["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": "device-plugin", "namespace": "kube-system"}
    spec = pod["spec"]
    spec["hostNetwork"] = True
    (container,) = spec["containers"]
    container["image"], container["imagePullPolicy"] = IMAGE, "Never"
    (volume,) = [volume for volume in spec["volumes"] if "configMap" in volume]  # there is no API server to have it
    del volume["configMap"]
    volume["hostPath"] = {"path": "/etc/fleet-cdi", "type": "Directory"}
    return pod, configuration


@pytest.fixture
def daemon_set(product, cluster, archive):
    """Start the pod; returns its container's log."""
    product.node.path("/run/image.tar").write_bytes(archive.read_bytes())
    product.node.run("ctr", "--namespace", "k8s.io", "images", "import", "/run/image.tar")
    product.node.path("/run/image.tar").unlink()
    documents = [yaml.safe_load((KUBERNETES / name).read_text()) for name in ("configmap.yaml", "daemonset.yaml")]
    pod, configuration = pod_of(documents, {"resources": {ACCEL: {"health": {"hold_down": 1}}}, "grace": 2})
    product.configure(**configuration)
    cluster.submit(pod)

    def log():
        found = sorted(product.node.path("/var/log/pods").glob("kube-system_device-plugin-node_*/device-plugin/*.log"))
        return found[-1].read_text() if found else ""

    return log


@pytest.mark.counterpart("podman", "mmdebstrap")
@pytest.mark.parametrize("version", ["1.36", "1.20"])
def test_the_pod_serves_other_pods_and_survives_restarts(product, cluster, daemon_set):
    try:
        cluster.await_allocatable(ACCEL, ALL)
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
        cluster.start_kubelet(cluster.version)
        cluster.await_allocatable(ACCEL, ALL, since)
        assert cluster.held(name, ACCEL) == {held}
        assert seen(cluster.output(cluster.create({ACCEL: 2})))[1] == ALL - {held}

        assert ready(cluster), "the probes of the pod fail"
        cluster.delete(name)
        wait("the ledger without the hold", lambda: held not in "".join(product.holds()))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{daemon_set()}") from error


def ready(cluster):
    """Whether the plugin's pod runs, was never started again, and is ready by its own probes."""

    def look():
        (status,) = (cluster.pods() or {})["device-plugin"]["status"]["containerStatuses"]
        assert status["restartCount"] == 0, status
        return status["ready"]

    return wait("the pod of the device plugin ready", look)
