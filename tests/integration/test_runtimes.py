# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module spec writes, at the version that it chooses, is read by podman, dockerd and containerd (by its CRI).

podman of this machine; docker, podman and containerd of Debian trixie in a container host: an image that mmdebstrap
makes from the machine's own mirror, once per recipe. FLEET_CDI_SUITES="trixie sid" tries sid's too, which takes longer.
Each test shows as well that the runtime refuses the same content where nothing was left out.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path

import engines
import pytest
from engines import LOOK, NODE, RUNTIMES, number_of

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="runs containers with devices: needs root")

KIND = "test.fleet.cdi/instrument"
NAME = f"{KIND}=front"
# Something of every version: 0.5.0 hostPath, 0.6.0 annotations, 0.7.0 additionalGids, 1.1.0 netDevices.
CONTENT = {
    "annotations": {"example.com/calibrated": "yes"},
    "devices": [
        {
            "name": "front",
            "containerEdits": {
                "env": ["INSTRUMENT=/dev/instrument"],
                "deviceNodes": [{"path": "/dev/instrument", "hostPath": NODE}],
                "additionalGids": [4242],
                "netDevices": [{"hostInterfaceName": "instrument0", "name": "eth7"}],
            },
        }
    ],
}
NEWEST = {"podman": "6.0"}  # reads all of it


def assert_only_its_device(without, seen, groups):
    """`without` and `seen`: the lines that LOOK printed without and with the device."""
    nodes = {line for line in seen - without if line.startswith("/dev")}
    assert nodes == {f"/dev/instrument {number_of(NODE)}"}
    assert "INSTRUMENT=/dev/instrument" in seen - without
    assert any(groups in line.split() for line in seen) == bool(groups)


@pytest.fixture
def podman(container):
    """Run LOOK in a container of this machine's podman, with more options."""
    return functools.partial(container, LOOK)


@pytest.fixture
def spec(ansible_module, tmp_path):
    """Run the module on this machine; whatever it wrote is taken back afterwards."""
    paths = {"spec_dir": "/var/run/cdi", "state_dir": str(tmp_path / "state"), "device_list": ""}

    def run(**options):
        return ansible_module("fleet.cdi.spec", kind=KIND, **paths, **options)

    yield run
    run(state="absent")


@pytest.mark.counterpart("podman", "runc", "busybox-static")
@NEEDS_ROOT
class TestThisMachine:
    """podman as it is installed here; /var/run/cdi is one of its two directories, and gone at reboot."""

    def test_podman_reads_what_is_written_for_it_and_refuses_the_whole(self, podman, spec):
        written = spec(content=CONTENT)
        version = subprocess.run(["podman", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
        (engine,) = [engine for engine in written["runtimes"] if engine["name"] == "podman"]
        assert (engine["version"], engine["path"]) == (version, "/usr/bin/podman")
        if engine["reads"] == "1.1.0":
            pytest.skip(f"podman {version} reads everything that there is")
        assert written["cdi_version"] <= engine["reads"]
        document = json.loads(Path(written["path"]).read_text())
        assert ("annotations" in document) == (engine["reads"] >= "0.6.0")
        assert "netDevices" not in document["devices"][0]["containerEdits"]

        without, seen = podman(), podman("--device", NAME)
        assert seen.returncode == 0, seen.stderr
        groups = "4242" if engine["reads"] >= "0.7.0" else ""
        assert_only_its_device(set(without.stdout.splitlines()), set(seen.stdout.splitlines()), groups)
        assert spec(content=CONTENT)["changed"] is False

        assert spec(content=CONTENT, runtime_versions=NEWEST)["cdi_version"] == "1.1.0"
        refused = podman("--device", NAME)
        assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stderr

    def test_annotations_alone_hide_the_device_from_an_old_podman(self, podman, spec):
        content = {**CONTENT, "devices": [{"name": "front", "containerEdits": {"env": ["INSTRUMENT=1"]}}]}
        written = spec(content=content)
        (engine,) = [engine for engine in written["runtimes"] if engine["name"] == "podman"]
        if engine["reads"] >= "0.6.0":
            pytest.skip(f"podman {engine['version']} reads annotations")
        assert written["cdi_version"] == "0.3.0"
        assert podman("--device", NAME).returncode == 0
        spec(content=content, runtime_versions=NEWEST)
        refused = podman("--device", NAME)
        assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stderr

    def test_fail_names_field_runtime_and_version(self, ansible_module, tmp_path):
        options = {"spec_dir": str(tmp_path / "cdi"), "state_dir": str(tmp_path / "state"), "device_list": ""}
        refused = ansible_module(
            "fleet.cdi.spec",
            failed=True,
            kind=KIND,
            content=CONTENT,
            on_unsupported="fail",
            runtime_versions={"podman": "4.9.3", "docker": "26.1.5"},
            **options,
        )
        for text in (
            "/devices/0/containerEdits/additionalGids: new in CDI 0.7.0, and so nothing for podman 4.9.3",
            "/devices/0/containerEdits/netDevices: new in CDI 1.1.0, and so nothing for podman 4.9.3",
        ):
            assert text in refused["msg"]
        assert "annotations" not in refused["msg"]
        assert not (tmp_path / "cdi").exists() and not (tmp_path / "state").exists()


# What an administrator sets on such a host: CDI is off in docker 26.1 and containerd 1.7 unless asked for.
DOCKER = '{"features": {"cdi": true}}'
# Suite -> containerd's configuration and what each runtime is to read; of sid that is not known for long.
SUITES = {
    "trixie": (
        engines.CONTAINERD_1.replace("restrict_oom", "enable_cdi = true\nrestrict_oom"),
        {"docker": "0.7.0", "podman": "0.8.0", "containerd": "0.7.0"},
    ),
    "sid": (engines.CONTAINERD_2, {}),
}


@pytest.fixture(scope="module", params=[suite for suite in engines.SUITES if suite in SUITES])
def suite(request):
    return request.param


@pytest.fixture(scope="module")
def host(suite, tmp_path_factory):
    """A host with all three runtimes set up."""
    files = {"/etc/docker/daemon.json": DOCKER, "/etc/containerd/config.toml": SUITES[suite][0]}
    tag = engines.image(suite, tmp_path_factory.mktemp("image"))
    with engines.running(tag, tmp_path_factory.mktemp("shared"), files) as inside:
        yield inside


@pytest.fixture(scope="module")
def spec_there(host, ansible_module):
    """Run the module on the container host: by Ansible's local connection, with the shell of the host."""

    def run(**options):
        return ansible_module("fleet.cdi.spec", variables=host.variables, kind=KIND, **options)

    return run


@pytest.fixture(scope="module", params=["fitted", "whole", "absent"])
def state(request, spec_there):
    """The spec on the host: fitted to its runtimes, as if for newer ones, or none."""
    options = {
        "fitted": {"content": CONTENT},
        "whole": {"content": CONTENT, "runtime_versions": NEWEST},
        "absent": {"state": "absent"},
    }
    spec_there(**options[request.param])
    return request.param


@pytest.mark.counterpart("podman", "runc", "mmdebstrap", "busybox-static")
@NEEDS_ROOT
class TestContainerHost:
    def test_the_spec_lacks_only_what_is_beyond_its_readers(self, suite, host, spec_there):
        written = spec_there(content=CONTENT)
        found = {engine["name"]: engine["reads"] for engine in written["runtimes"]}
        assert found == (SUITES[suite][1] or found) and set(found) == set(RUNTIMES)
        assert "0.7.0" <= min(found.values()) <= max(found.values()) < "1.1.0", (
            "there is nothing to show: change CONTENT"
        )
        for engine in written["runtimes"]:
            assert engine["version"] in host.run(engine["path"], "--version")
        assert written["cdi_version"] == "0.7.0"
        document = json.loads(host.run("cat", written["path"]))
        assert document["annotations"] == CONTENT["annotations"]
        assert set(document["devices"][0]["containerEdits"]) == {"env", "deviceNodes", "additionalGids"}

    @pytest.mark.parametrize("runtime", RUNTIMES)
    def test_only_of_a_spec_fitted_to_it_a_runtime_gives_a_container_the_device(self, host, state, runtime):
        without, seen = host.container(runtime), host.container(runtime, NAME)
        if state == "fitted":
            assert (without.returncode, seen.returncode) == (0, 0), seen.stderr
            # docker, 28.5 too, reads additionalGids, and then sets groups of its own.
            groups = "" if runtime == "docker" else "4242"
            assert_only_its_device(set(without.stdout.splitlines()), set(seen.stdout.splitlines()), groups)
        else:
            assert seen.returncode != 0 and "unresolvable CDI devices" in seen.stdout + seen.stderr
