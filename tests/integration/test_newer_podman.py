# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims with podman 5.4 of Debian trixie: after an upgrade from 4.3, rootless, and with checkpoints by CRIU."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from container_output import Output  # tests/harness
from newer_podman import LIMITS, NewerPodman  # tests/harness

CLI = "/opt/cdi/bin/fleet-cdi"
INVENTORY = "/var/lib/cdi/inventory.json"
CONSOLES = [f"/dev/tty{number}" for number in range(58, 64)]
RUNTIMES = ["runc", "crun"]
NUMBERS = itertools.count()  # of claims; a name that ended is refused until the next boot
FOREVER = "trap 'exit 0' TERM; while :; do busybox sleep 0.1; done"

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "mmdebstrap", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes users and runs containers: needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/tty59"), reason="needs the consoles of a machine"),
]


@pytest.fixture(scope="module")
def newer(ansible_module, tmp_path_factory):
    """podman 5.4, and an executable that grants /dev/tty58 and the consoles behind it."""
    ansible_module("fleet.cdi.host_release", device_list=INVENTORY)
    options = {"resource_type": "tty", "name": "tty", "plugin": "generic-tty", "args": {"num_system_reserved": 57}}
    ansible_module("fleet.cdi.cdi_plugin", device_list=INVENTORY, **options)
    podman = NewerPodman(tmp_path_factory.mktemp("image"))
    yield podman
    podman.close()


def claim(*words, status=0, newer=None):
    """What fleet-cdi claim prints as JSON; with status 2, its error. `newer`: on the machine with the newer podman."""
    start = [CLI, f"--inventory={INVENTORY}", "claim", *words, "--json"]
    start = newer.words(*start) if newer else start
    done = subprocess.run(start, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status == 2 else json.loads(done.stdout)


def states():
    return {one["id"]: one["state"] for one in claim("list")["claims"]}


@pytest.fixture
def one():
    """Make a claim of a console, whose name is used once; what is left is given back."""
    made = []

    def add(*options):
        made.append(f"newer-{os.getpid()}-{next(NUMBERS)}")
        found = claim("add", made[-1], "tty:1", *options)
        return made[-1], found["nodes"][0]["path"]

    yield add
    for name in made:
        claim("del", name, "--force")
    assert os.listdir("/var/lib/cdi/claims") == []


@pytest.fixture
def root(tmp_path):
    """The root directory of a container."""
    (tmp_path / "root/bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), tmp_path / "root/bin/busybox")
    (tmp_path / "root/bin/sh").symlink_to("busybox")
    return tmp_path / "root"


def words(name, root, *options):
    """The words for a container of root after run or create."""
    device = ["--device", f"fleet.cdi/claim={name}"]
    return ["--network=none", *LIMITS, *device, "--name", name, *options, "--rootfs", str(root), "/bin/sh", "-c"]


def test_a_container_survives_the_upgrade_of_podman(newer, one, root):
    """podman 4.3 started it; podman 5.4 stops it, starts it again with its device, and removes it."""
    name, node = one()
    old = ["podman", "--log-level=error", "--runtime=runc"]
    subprocess.run([*old, "run", "--detach", *words(name, root), FOREVER], check=True, capture_output=True)
    podman = ("podman", "--log-level=error", "--runtime=runc")
    try:
        assert newer.run("podman", "--version").startswith("podman version 5.")
        assert states() == {name: "granted"}
        newer.run(*podman, "exec", name, "/bin/busybox", "test", "-c", node)
        newer.run(*podman, "stop", "--time=1", name)
        assert states() == {name: "idle"} and claim("gc", newer=newer)["freed"] == []
        newer.run(*podman, "start", name)
        assert states() == {name: "granted"} and claim("gc", newer=newer)["freed"] == []
        newer.run(*podman, "exec", name, "/bin/busybox", "test", "-c", node)
    finally:
        newer.attempt(*podman, "rm", "--force", "--time=0", name)
    assert states() == {name: "idle"} and claim("gc", newer=newer)["freed"] == [name]


class User:
    """An ordinary user with subordinate user ids. All files of their podman and containers are below `home`."""

    def __init__(self, newer, name, home):
        self.newer, self.name, self.home = newer, name, home
        add = ["useradd", "--no-create-home", "--home-dir", str(home), "--shell", "/bin/sh", name]
        subprocess.run(add, check=True, capture_output=True)
        shutil.chown(home, name)
        newer.learn_users()
        self.said = Output(home / "said")
        self.run("mkdir -m 700 run; mkdir -p root/bin; cp $(command -v busybox) root/bin; ln -s busybox root/bin/sh")

    def attempt(self, command):
        settings = [f"HOME={self.home}", f"XDG_RUNTIME_DIR={self.home}/run", "PATH=/usr/bin:/usr/sbin"]
        become = ["runuser", "-u", self.name, "--", "env", "-i", "-C", str(self.home), *settings]
        return self.newer.attempt(*become, "sh", "-c", command, cgroup2=True)

    def run(self, command):
        done = self.attempt(command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def container(self, command, *options, runtime="runc"):
        words = ["run", "--rm", "--network=none", *LIMITS, self.said.volume, *options, f"--rootfs {self.home}/root"]
        start = f"podman --runtime {runtime} --cgroup-manager=cgroupfs {' '.join(words)}"
        return self.said.added(self.attempt(f"{start} /bin/sh -c '{self.said.of(command)}'"))

    def remove(self):
        self.attempt("podman rm --all --force --time 0; podman system migrate")
        subprocess.run(["userdel", "--force", self.name], check=True, capture_output=True)


@pytest.fixture(scope="module")
def users(newer):
    """Two ordinary users."""
    place = Path(tempfile.mkdtemp(prefix="fleet-cdi-", dir="/var/tmp"))
    place.chmod(0o755)
    made = []
    try:
        for name in (f"newera{os.getpid()}", f"newerb{os.getpid()}"):
            (place / name).mkdir()
            made.append(User(newer, name, place / name))
        yield made
    finally:
        for user in made:
            user.remove()
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_users_container_opens_the_device_of_the_users_claim_alone(one, users, runtime):
    user, other = users
    name, node = one("--for", user.name)
    foreign = next(path for path in CONSOLES if path != node)
    tries = f"(exec 3<>{node}) && echo own; (exec 3<>{foreign}) || echo refused"
    options = ["--device", f"fleet.cdi/claim={name}", "--device", foreign]
    done = user.container(tries, *options, runtime=runtime)
    assert done.stdout.split() == ["own", "refused"], done.stderr
    # podman of the other user works, as if the spec that it can't read was not there
    assert other.container("true", runtime=runtime).returncode == 0
    refused = other.container("true", "--device", f"fleet.cdi/claim={name}", runtime=runtime)
    assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stderr


@pytest.fixture
def checkpointed(newer, one, root):
    """Start a container with a claim, and checkpoint it by CRIU: checkpointed(*options) -> (claim, node, podman).

    With runc alone: CRIU needs the freezer, and crun makes no control groups on some machines.
    """
    checked = newer.attempt("criu", "check")
    if checked.returncode:
        pytest.skip(f"CRIU does not work with this kernel: {checked.stderr.strip().splitlines()[-1]}")
    names = []

    def start(*options):
        name, node = one(*options)
        podman = ("podman", "--log-level=error", "--runtime=runc")
        names.append((podman, name))
        newer.run(*podman, "run", "--detach", *words(name, root), FOREVER)
        done = newer.attempt(*podman, "container", "checkpoint", name)
        if done.returncode:
            logs = "find /var/lib/containers -name dump.log | xargs -r tail -n 25"
            raise AssertionError(done.stderr + newer.run("sh", "-c", logs))
        return name, node, podman

    yield start
    for podman, name in names:
        newer.attempt(*podman, "rm", "--force", "--ignore", "--time=0", name)


def test_a_checkpoint_keeps_the_device(newer, checkpointed):
    name, node, podman = checkpointed()
    assert states() == {name: "idle"} and claim("gc", newer=newer)["freed"] == []
    newer.run(*podman, "container", "restore", name)
    newer.run(*podman, "exec", name, "/bin/busybox", "test", "-c", node)
    assert states() == {name: "granted"} and claim("gc", newer=newer)["freed"] == []
    assert "that use it still run: " in claim("del", name, status=2)


def test_no_container_is_restored_with_a_claim_that_is_over(newer, checkpointed):
    name, _node, podman = checkpointed("--release-on-stop")
    assert claim("gc", newer=newer)["freed"] == [name]
    restored = newer.attempt(*podman, "container", "restore", name)
    assert restored.returncode != 0
