# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the examples give away. tests/e2e/test_manifest.py asks an API server's code about the same files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

KUBERNETES = Path(__file__).resolve().parents[2] / "examples/kubernetes"
MANIFEST = KUBERNETES / "daemonset.yaml"
# What has secrets of the node or of its pods, so that a pod with it, or with anything above it, has these, too.
SECRET = (
    *(
        "/boot",
        "/etc/kubernetes",
        "/etc/passwd",
        "/etc/shadow",
        "/etc/ssh",
        "/etc/ssl/private",
        "/home",
        "/mnt",
        "/proc/1",
    ),
    *("/root", "/run/containerd", "/run/crio", "/run/docker.sock", "/run/secrets", "/run/systemd", "/run/user", "/srv"),
    *("/tmp", "/var/lib/containerd", "/var/lib/docker", "/var/lib/etcd", "/var/lib/kubelet/config.yaml", "/var/log"),
    *("/var/lib/kubelet/pki", "/var/lib/kubelet/pods", "/var/spool"),
)
WRITABLE = {"/var/lib/kubelet/device-plugins", "/var/lib/cdi", "/run/cdi-device-plugin"}


def shown(text: str) -> tuple[dict[str, str], set[str]]:
    """(place on the node -> the secret that a pod would have with it, places that the pod may write)."""
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    places = {one["name"]: os.path.normpath(one["hostPath"]["path"]) for one in pod["volumes"] if "hostPath" in one}
    secrets: dict[str, str] = {}
    for place in places.values():
        inside = place.rstrip("/") + "/"
        for secret in SECRET:
            if f"{secret}/".startswith(inside) or inside.startswith(f"{secret}/"):
                secrets[place] = secret
    mounts = [mount for container in pod["containers"] for mount in container["volumeMounts"]]
    return secrets, {places[one["name"]] for one in mounts if one["name"] in places and not one.get("readOnly")}


def test_the_daemon_set_shows_its_pod_no_secret_of_the_node():
    assert shown(MANIFEST.read_text(encoding="utf-8")) == ({}, WRITABLE)


@pytest.mark.parametrize(
    "place", ["/", "/etc", "/run", "/var/lib", "/var/lib/kubelet", "/var/lib/kubelet/pods/x", "/root/"]
)
def test_the_test_would_see_it(place):
    text = MANIFEST.read_text(encoding="utf-8")
    assert shown(text.replace("path: /usr,", f"path: {place},"))[0]


def test_the_image_gets_a_release_that_runs(tmp_path):
    """What Containerfile runs, with another place to install to."""
    subprocess.run([sys.executable, KUBERNETES / "release.py", tmp_path / "release.zip"], check=True)
    request = json.loads((tmp_path / "release.json").read_text(encoding="utf-8"))
    options = {**request["options"], "prefix": str(tmp_path / "cdi"), "archive": str(tmp_path / "release.zip")}
    options["state_dir"] = str(tmp_path / "state")
    (code,) = [
        line.split('"')[1].replace("/tmp/release/release.zip", options["archive"])
        for line in (KUBERNETES / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "").splitlines()
        if "main('host_release')" in line
    ]
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-B", "-c", code],
        input=json.dumps({**request, "options": options}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = subprocess.run([tmp_path / "cdi/bin/fleet-cdi", "--version"], capture_output=True, text=True, check=True)
    assert options["release"] in told.stdout
