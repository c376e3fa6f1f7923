# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin's image as the release script builds it: its files, and the plugin in it with podman."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
import time

import built_release  # tests/harness
import pytest

NAME = "registry.example.com/fleet-cdi-device-plugin:0.1.0"
LIMITS = ["--network=none", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
# As the DaemonSet has it.
CONFINED = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
HEALTHY = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9400/healthz').status)"
CONFIGURATION = {"version": 1, "root": "/host", "spec_dirs": ["/host/etc/cdi"], "metrics": ":9400", "resources": {}}
STARTED_S = 60  # as the DaemonSet's startupProbe


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    return built_release.build(built_release.with_packages(place), place / "built")


@pytest.fixture(scope="module")
def archive(built):
    return built.out / built.named("fleet-cdi-device-plugin-", ".oci.tar")


@pytest.fixture
def storage():
    """A directory for podman, which takes no longer names: the images of this machine stay as they are."""
    with tempfile.TemporaryDirectory() as place:
        yield place


def blobs(archive):
    with tarfile.open(archive) as opened:
        return {one.name: opened.extractfile(one).read() for one in opened if one.isfile()}


def layers(archive):
    """The entries of all layers: name -> (type, digest of a file)."""
    found = blobs(archive)
    (head,) = json.loads(found["index.json"])["manifests"]
    manifest = json.loads(found[head["digest"].replace("sha256:", "blobs/sha256/")])
    entries = {}
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(found[layer["digest"].replace("sha256:", "blobs/sha256/")])) as opened:
            for one in opened:
                digest = hashlib.sha256(opened.extractfile(one).read()).hexdigest() if one.isfile() else ""
                entries[one.name] = (one.type, digest)
    return head["digest"], entries


def test_the_bill_of_materials_names_each_file_and_package_and_nothing_else(built, archive):
    bill = json.loads(built.files[f"{archive.name}.cdx.json"])
    _digest, entries = layers(archive)
    listed = {one["name"]: one["hashes"][0]["content"] for one in bill["components"] if one["type"] == "file"}
    assert listed == {name: digest for name, (kind, digest) in entries.items() if kind == tarfile.REGTYPE}
    packages = {one["name"] for one in bill["components"] if one["type"] == "library"}
    assert packages == {name.rpartition("/")[2] for name in entries if name.startswith("var/lib/dpkg/status.d/")}


def test_no_file_is_setuid_or_writable_by_others(archive):
    for content in blobs(archive).values():
        if content[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(content)) as opened:
                for one in opened:
                    assert not one.mode & 0o6000 and (one.uid, one.gid) == (0, 0), one.name
                    assert one.issym() or not one.mode & 0o022 or one.mode == 0o1777, one.name


@pytest.mark.counterpart("podman", "runc")
def test_the_plugin_runs_in_it_confined_as_in_the_daemon_set(built, archive, tmp_path, storage):
    """podman knows it by the digest of the manifests; it proves its commit, and answers its probe."""
    engine = ["podman", "--log-level=error", "--runtime=runc"]
    engine += ["--storage-driver=vfs", f"--root={storage}/root", f"--runroot={storage}/run"]

    def podman(*words, check=True):
        done = subprocess.run([*engine, *map(str, words)], capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout

    for name in ("config", "state", "status", "kubelet"):
        (tmp_path / name).mkdir()
    (tmp_path / "config/device-plugin.json").write_text(json.dumps(CONFIGURATION))
    places = {"config": "/etc/fleet-cdi:ro", "state": "/var/lib/cdi", "status": "/run/cdi-device-plugin"}
    places["kubelet"] = "/var/lib/kubelet/device-plugins"
    volumes = [f"--volume={tmp_path}/{name}:{place}" for name, place in places.items()]
    podman("pull", "--quiet", f"oci-archive:{archive}")
    try:
        digest = podman("image", "inspect", "--format={{.Digest}}", NAME).strip()
        assert (
            f"image: {NAME.rpartition(':')[0]}@{digest}\n" in built.files[built.named("fleet-cdi-", ".yaml")].decode()
        )
        proof = json.loads(
            podman(
                "run",
                "--rm",
                *LIMITS,
                *CONFINED,
                "--entrypoint=/opt/cdi/bin/fleet-cdi",
                NAME,
                "version",
                "--verify",
                "--json",
            )
        )
        assert (
            proof["verified"]
            and proof["commit"] == built_release.git(built.out.parent / "repository", "rev-parse", "HEAD").strip()
        )
        config = ["--config", "/etc/fleet-cdi/device-plugin.json"]
        container = podman("run", "--detach", *LIMITS, *CONFINED, *volumes, NAME, *config).strip()
        deadline = time.monotonic() + STARTED_S
        while podman("exec", container, "/usr/bin/python3", "-c", HEALTHY, check=False) != "200\n":
            assert time.monotonic() < deadline, podman("logs", container)
            time.sleep(0.2)
        assert (
            "event=started"
            in subprocess.run([*engine, "logs", container], capture_output=True, text=True, check=True).stderr
        )
    finally:
        podman("rm", "--force", "--all", "--time=1", check=False)
        podman("rmi", "--force", "--all", check=False)
