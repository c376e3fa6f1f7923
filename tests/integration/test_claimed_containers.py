# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A claim in real containers: podman gives each exactly what was granted, and nothing after the claim is over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import apart  # tests/harness
import pytest

STATE, SPECS = "/var/lib/cdi", "/var/run/cdi"  # empty and the test's own (tests/harness/apart.py)
PREFIX = "/opt/cdi"
LIST = "busybox find /dev -type c -o -type b | busybox xargs busybox stat -c '%n %t:%T'; busybox env"
ARGS = {
    "tty": ("generic-tty", {"num_system_reserved": 60}),
    "fuse": ("rule", {"profile": "misc", "nodes": ["fuse"], "kind": "test.fleet.cdi/fuse"}),
}

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="writes to /var/run/cdi and runs containers: needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="this machine has no /dev/fuse"),
]


@pytest.fixture(scope="module")
def fleet_cdi(ansible_module):
    """A host that can grant consoles and /dev/fuse: fleet_cdi(*arguments) -> done."""
    listing = {"device_list": apart.DEVICE_LIST}
    ansible_module("fleet.cdi.host_release", **listing)
    for type_, (plugin, args) in ARGS.items():
        ansible_module("fleet.cdi.cdi_plugin", resource_type=type_, name=plugin, plugin=plugin, args=args, **listing)
    entry = {"profile": "misc", "nodes": ["fuse"], "kind": "test.fleet.cdi/fuse", "env": {"FUSE": "{path}"}}
    ansible_module("fleet.cdi.spec", kind="test.fleet.cdi/fuse", devices={"fuse": entry}, device_list="")

    def run(*arguments, status=0):
        done = subprocess.run([f"{PREFIX}/bin/fleet-cdi", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    yield run
    for claim in json.loads(run("claim", "list", "--json"))["claims"]:
        run("claim", "del", claim["id"])
    ansible_module("fleet.cdi.spec", kind="test.fleet.cdi/fuse", state="absent", device_list="")
    for type_, (plugin, _args) in ARGS.items():
        ansible_module("fleet.cdi.cdi_plugin", resource_type=type_, name=plugin, state="absent", **listing)
        shutil.rmtree(f"/etc/cdi/{type_}.d", ignore_errors=True)


def numbers(path):
    """A node as LIST shows it."""
    found = os.stat(path).st_rdev
    return f"{path} {os.major(found):x}:{os.minor(found):x}"


def test_a_container_sees_exactly_its_devices(fleet_cdi, container):
    device = fleet_cdi("claim", "add", "job-42", "tty:1", "fuse:1").strip()
    assert device == "fleet.cdi/claim=job-42"
    nodes = [node["path"] for node in json.loads(fleet_cdi("claim", "list", "--json"))["claims"][0]["nodes"]]
    plain, claimed = container(LIST), container(LIST, "--device", device)
    assert claimed.returncode == 0, claimed.stderr
    more = {line for line in claimed.stdout.splitlines() if line not in plain.stdout.splitlines()}
    assert {line for line in more if not line.startswith("HOSTNAME=")} == {*map(numbers, nodes), "FUSE=/dev/fuse"}
    assert fleet_cdi("claim", "check").startswith("All claims agree with this host")
    fleet_cdi("claim", "del", "job-42")
    refused = container(LIST, "--device", device)
    assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stderr


def test_two_claims_have_two_consoles_and_a_third_is_refused(fleet_cdi, container):
    seen = set()
    for id_ in ("web@1.service", "job/2"):
        device = fleet_cdi("claim", "add", id_, "tty:1").strip()
        done = container("busybox ls /dev", "--device", device)
        assert done.returncode == 0, done.stderr
        seen |= {name for name in done.stdout.split() if name.startswith("tty6")}
    assert len(seen) == 2
    fleet_cdi("claim", "add", "greedy", "tty:9", status=2)
    assert [claim["id"] for claim in json.loads(fleet_cdi("claim", "list", "--json"))["claims"]] == [
        "job/2",
        "web@1.service",
    ]


def test_a_reboot_keeps_the_claim_and_its_console(fleet_cdi, container):
    """This machine's boot id can't change, so the record gets another one; the spec goes, as a reboot empties /run."""
    device = fleet_cdi("claim", "add", "kept", "fuse:1").strip()
    path = f"{STATE}/claims/kept.json"
    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    with open(path, "w", encoding="utf-8") as file:
        record.pop("checksum")  # as an older release wrote it
        json.dump({**record, "boot_id": "another"}, file)
    os.unlink(f"{SPECS}/fleet.cdi-claim_kept.json")
    assert container("true", "--device", device).returncode != 0
    assert "before the last reboot" in fleet_cdi("claim", "check", status=1)
    assert f"changed: {os.path.realpath(SPECS)}/fleet.cdi-claim_kept.json" in fleet_cdi("refresh")
    assert "/dev/fuse" in container("busybox ls /dev/fuse", "--device", device).stdout
    fleet_cdi("claim", "check", status=0)
    fleet_cdi("claim", "del", "kept")


def test_a_build_gets_a_claim_by_the_path_of_its_node(fleet_cdi, tmp_path):
    """buildah, which is in podman, knows no CDI names here (docs/claims.md, "Builds")."""
    device = fleet_cdi("claim", "add", "build", "tty:1").strip()
    (node,) = json.loads(fleet_cdi("claim", "list", "--json"))["claims"][0]["nodes"]
    shutil.copy(shutil.which("busybox"), tmp_path / "busybox")
    look = f'RUN ["/busybox", "test", "-c", "{node["path"]}"]'
    (tmp_path / "Containerfile").write_text(f"FROM scratch\nCOPY busybox /busybox\n{look}\n")

    def built(*options):
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        words = ["podman", "--runtime", "runc", "build", "--network=none", "--no-cache", "--layers=false", *limits]
        done = subprocess.run([*words, *options, str(tmp_path)], capture_output=True, text=True, check=False)
        image = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else []
        subprocess.run(["podman", "rmi", "--force", *image], capture_output=True, check=False)
        return done

    try:
        assert built().returncode != 0
        done = built("--device", node["path"])
        assert done.returncode == 0, done.stderr
        assert built("--device", device).returncode != 0
    finally:
        fleet_cdi("claim", "del", "build")
