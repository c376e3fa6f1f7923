# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman (with runc) gives a container what the module spec wrote: real nodes of this machine, and nothing else."""

from __future__ import annotations

import os
import subprocess

import pytest
import yaml

# podman before 5.5 reads /etc/cdi and /var/run/cdi only. The latter is gone at reboot, whatever happens to this test.
DIRECTORY = "/var/run/cdi"

CASES = yaml.safe_load("""
- name: a terminal, found by discovery
  kind: test.fleet.cdi/tty
  devices: {consoles: {profile: tty, num_system_reserved: 12, kind: test.fleet.cdi/tty}}
  request: test.fleet.cdi/tty=tty23
  nodes: {/dev/tty23: /dev/tty23}
- name: /dev/fuse, found by discovery, with a variable
  kind: test.fleet.cdi/misc
  devices: {files: {profile: misc, nodes: [fuse], kind: test.fleet.cdi/misc, env: {FUSE_NODE: "{path}"}}}
  request: test.fleet.cdi/misc=fuse
  nodes: {/dev/fuse: /dev/fuse}
  env: [FUSE_NODE=/dev/fuse]
- name: a node under another path in the container, from explicit content
  kind: test.fleet.cdi/modem
  content:
    devices:
      - name: front
        containerEdits:
          env: [MODEM=/dev/modem]
          deviceNodes: [{path: /dev/modem, hostPath: /dev/tty24}]
  request: test.fleet.cdi/modem=front
  nodes: {/dev/modem: /dev/tty24}
  env: [MODEM=/dev/modem]
""")

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="writes to /var/run/cdi and runs containers: needs root"),
]


@pytest.fixture
def podman(container):
    """Run a shell command in a container: podman(command, *options) -> lines of its output."""

    def run(command, *options):
        done = container(command, *options)
        assert done.returncode == 0, done.stderr
        return set(done.stdout.splitlines())

    return run


@pytest.fixture
def spec(ansible_module, tmp_path):
    """Run the module spec; whatever it wrote is taken back afterwards."""
    paths = {
        "spec_dir": DIRECTORY,
        "state_dir": str(tmp_path / "state"),
        "device_list": str(tmp_path / "inventory.json"),
    }
    kinds = set()

    def run(**options):
        kinds.add(options["kind"])
        return ansible_module("fleet.cdi.spec", **paths, **options)

    yield run
    for kind in kinds:
        ansible_module("fleet.cdi.spec", **paths, kind=kind, state="absent")


NODES = "busybox find /dev -type c -o -type b | busybox xargs busybox stat -c '%n %t:%T'"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_container_sees_exactly_its_device(podman, spec, case):
    missing = [node for node in case["nodes"].values() if not os.path.exists(node)]
    if missing:
        pytest.skip(f"this machine has no {', '.join(missing)}")
    done = spec(**{key: case[key] for key in ("kind", "devices", "content") if key in case})
    assert done["changed"] and case["request"] in done["names"]

    without, seen = podman(NODES), podman(NODES, "--device", case["request"])
    expected = set()
    for inside, outside in case["nodes"].items():
        number = os.stat(outside).st_rdev
        expected.add(f"{inside} {os.major(number):x}:{os.minor(number):x}")
    assert seen - without == expected
    assert set(case.get("env", [])) <= podman("busybox env", "--device", case["request"])


def test_after_absent_podman_finds_no_such_device(spec, tmp_path):
    case = CASES[2]
    spec(kind=case["kind"], content=case["content"])
    spec(kind=case["kind"], state="absent")
    refused = subprocess.run(
        ["podman", "run", "--rm", "--network=none", "--device", case["request"], "--rootfs", str(tmp_path), "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stderr


def test_a_spec_that_podman_would_not_use_is_refused(spec, ansible_module, tmp_path):
    """The same name in /etc/cdi and /var/run/cdi: podman uses the latter (measured), so the former is refused."""
    case = CASES[2]
    spec(kind=case["kind"], content=case["content"])
    refused = ansible_module(
        "fleet.cdi.spec",
        spec_dir="/etc/cdi",
        state_dir=str(tmp_path / "another-state"),
        device_list="",
        kind=case["kind"],
        content=case["content"],
        failed=True,
    )
    assert "would have no effect" in refused["msg"]
    info = ansible_module("fleet.cdi.spec_info", state_dir=str(tmp_path / "state"))
    assert [file["managed"] for file in info["specs"] if file["kind"] == case["kind"]] == [True]
    assert info["devices"][case["request"]] == f"{DIRECTORY}/test.fleet.cdi-modem.json"
