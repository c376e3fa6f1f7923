# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims for ordinary users: rootless podman opens the devices of its user's claim, and nobody else does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from container_output import Output  # tests/harness

CLI = "/opt/cdi/bin/fleet-cdi"
INVENTORY = "/var/lib/cdi/inventory.json"
PLAIN = "test.fleet.cdi/plain=zero"
CONSOLES = [f"/dev/tty{number}" for number in range(58, 64)]
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
OPEN = "exec 3<>{}"
# crun refuses the hybrid cgroups of some machines. In a mount namespace, it gets others.
ONLY_CGROUP2 = "umount -lR /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup"

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "crun", "uidmap", "acl", "strace", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes users and runs containers: needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/tty59"), reason="needs the consoles of a machine"),
]


@pytest.fixture(scope="module", autouse=True)
def consoles(ansible_module):
    """An executable that grants /dev/tty58 and the consoles behind it."""
    ansible_module("fleet.cdi.host_release", device_list=INVENTORY)
    options = {"resource_type": "tty", "name": "tty", "plugin": "generic-tty", "args": {"num_system_reserved": 58}}
    ansible_module("fleet.cdi.cdi_plugin", device_list=INVENTORY, **options)


class User:
    """An ordinary user with subordinate user ids. All files of their podman and containers are below `home`."""

    def __init__(self, name, home):
        self.name, self.home = name, home
        add = ["useradd", "--no-create-home", "--home-dir", str(home), "--shell", "/bin/sh", name]
        subprocess.run(add, check=True, capture_output=True)
        shutil.chown(home, name)
        self.uid = home.stat().st_uid
        self.said = Output(home / "said")
        self.run("mkdir -m 700 run; mkdir -p root/bin; cp $(command -v busybox) root/bin; ln -s busybox root/bin/sh")

    def words(self, command):
        """The words that run a shell command as this user."""
        settings = [f"HOME={self.home}", f"XDG_RUNTIME_DIR={self.home}/run", f"PATH={os.environ['PATH']}"]
        return ["runuser", "-u", self.name, "--", "env", "-i", "-C", str(self.home), *settings, "sh", "-c", command]

    def attempt(self, command):
        return subprocess.run(self.words(command), capture_output=True, text=True, check=False)

    def run(self, command):
        done = self.attempt(command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def container(self, command, *options, runtime="runc", before=""):
        """Run a shell command in a container of this user."""
        words = ["run", "--rm", "--network=none", *LIMITS, self.said.volume, *options, f"--rootfs {self.home}/root"]
        start = f"podman --runtime {runtime} --cgroup-manager=cgroupfs {' '.join(words)}"
        podman = f"{start} /bin/sh -c '{self.said.of(command)}'"
        return self.said.added(self.attempt(podman) if not before else self._apart(podman, before))

    def _apart(self, podman, before):
        """Run podman in a mount namespace of its own, after the shell command `before` of root."""
        self.attempt("podman system migrate")  # ends the process that keeps podman's namespaces
        script = f'{before}; exec runuser -u "$0" -- env -i HOME="$1" XDG_RUNTIME_DIR="$1/run" PATH="$PATH" sh -c "$2"'
        words = ["unshare", "--mount", "sh", "-c", script, self.name, str(self.home), podman]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=self.home)
        self.attempt("podman system migrate")
        return done

    def remove(self):
        self.attempt("podman rm --all --force --time 0; podman system migrate")
        subprocess.run(["userdel", "--force", self.name], check=True, capture_output=True)


@pytest.fixture(scope="module")
def users():
    """Two ordinary users."""
    place = Path(tempfile.mkdtemp(prefix="fleet-cdi-", dir="/var/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        place.chmod(0o755)
        made = []
        for name in (f"fleetcdi{os.getpid()}", f"other{os.getpid()}"):
            (place / name).mkdir()
            made.append(User(name, place / name))
            stack.callback(made[-1].remove)
        yield made


def claim(*words, status=0):
    """What fleet-cdi claim prints as JSON; with status 2, its error."""
    start = [CLI, f"--inventory={INVENTORY}", "claim", *words, "--json"]
    done = subprocess.run(start, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status == 2 else json.loads(done.stdout)


def acl(path):
    return subprocess.run(["getfacl", "-pn", path], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def claimed(users, request):
    """A claim of two consoles for the first user: (user, id, their paths); and back, with the access as before."""
    before = {path: acl(path) for path in CONSOLES}
    id_ = f"rootless-{os.getpid()}-{request.node.name.translate(str.maketrans('[]', '--'))}".strip("-")
    made = claim("add", id_, "tty:2", "--for", users[0].name)
    assert (made["for_user"], made["state"]) == (users[0].name, "granted")
    yield users[0], id_, [node["path"] for node in made["nodes"]]
    claim("del", id_)
    assert {path: acl(path) for path in before} == before
    assert os.listdir("/var/lib/cdi/claims") == []


@pytest.mark.parametrize(("runtime", "before"), [("runc", ""), ("crun", ONLY_CGROUP2)], ids=["runc", "crun"])
def test_the_users_containers_open_their_devices_and_no_others(claimed, runtime, before):
    user, id_, nodes = claimed
    name = f"fleet.cdi/claim={id_}"
    foreign = next(path for path in CONSOLES if path not in nodes)
    tries = "; ".join(f"({OPEN.format(path)}) && echo {path}" for path in [*nodes, foreign])
    done = user.container(tries, "--device", name, "--device", foreign, runtime=runtime, before=before)
    assert done.stdout.split() == nodes, done.stderr
    assert done.stderr.count("Permission denied") == 1
    assert claim("check")["faults"] == []
    assert user.attempt(f"({OPEN.format(foreign)})").returncode != 0


def test_another_user_can_neither_read_the_spec_nor_open_a_device(claimed, users):
    user, id_, nodes = claimed
    other = users[1]
    spec = f"/run/cdi/fleet.cdi-claim_{id_}.json"
    assert user.run(f"cat {spec}") and other.attempt(f"cat {spec}").returncode != 0
    assert user.attempt(f"echo >> {spec}").returncode != 0
    for path in nodes:
        assert user.attempt(f"({OPEN.format(path)})").returncode == 0
        assert "Permission denied" in other.attempt(f"({OPEN.format(path)})").stderr
    # podman of the other user works, as if the spec that it can't read was not there
    device = {"name": "zero", "containerEdits": {"deviceNodes": [{"path": "/dev/zero"}]}}
    plain = {"cdiVersion": "0.3.0", "kind": PLAIN.partition("=")[0], "devices": [device]}
    Path("/etc/cdi/plain.json").write_text(json.dumps(plain), encoding="ascii")
    assert other.container(OPEN.format("/dev/zero"), "--device", PLAIN).returncode == 0
    refused = other.container("true", "--device", f"fleet.cdi/claim={id_}")
    assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stderr


def opener(path, program):
    """Wait until a process of `program` has the node open; return the process."""
    number, deadline = os.stat(path).st_rdev, time.monotonic() + 60
    while time.monotonic() < deadline:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                files = (process / "fd").iterdir() if (process / "exe").readlink().name == program else ()
                if any(file.stat().st_rdev == number for file in files):
                    return int(process.name)
        time.sleep(0.05)
    raise AssertionError(f"{program} has not opened {path}")


def test_del_refuses_while_a_container_of_the_user_has_a_device_open(claimed):
    user, id_, nodes = claimed
    options = ["--detach", "--name", id_, "--device", f"fleet.cdi/claim={id_}"]
    started = user.container(f"{OPEN.format(nodes[0])}; exec busybox sleep 600", *options)
    assert started.returncode == 0, started.stderr
    pid = opener(nodes[0], "busybox")
    assert f"{nodes[0]} is open in pid {pid} (busybox, uid {user.uid})" in claim("del", id_, status=2)
    assert claim("check")["faults"] == []
    assert user.attempt(f"({OPEN.format(nodes[1])})").returncode == 0  # nothing was taken back
    user.run(f"podman rm --force --time 0 {id_}")


def test_del_refuses_while_a_process_with_a_subordinate_id_has_a_device_open(claimed):
    user, id_, nodes = claimed
    # opened by the user, and kept by a subordinate id in a user namespace that this one made
    last = "exec setpriv --reuid 33 --clear-groups unshare --user sleep 600"
    with subprocess.Popen(user.words(f"podman unshare sh -c '{OPEN.format(nodes[0])}; {last}'"), cwd=user.home):
        pid = opener(nodes[0], "sleep")
        try:
            assert os.stat(f"/proc/{pid}").st_uid != user.uid
            assert f"{nodes[0]} is open in pid {pid} (sleep, uid " in claim("del", id_, status=2)
        finally:
            os.kill(pid, signal.SIGKILL)


def test_a_node_that_udev_changed_is_given_again(claimed):
    user, id_, nodes = claimed
    for path in nodes:
        subprocess.run(["setfacl", "-b", path], check=True)  # as the builtin uaccess does
    faults = claim("check", status=1)["faults"]
    assert [fault["fault"].partition(":")[0] for fault in faults] == nodes
    assert claim("restore")["restored"] == [id_]
    assert claim("restore")["restored"] == []
    assert user.attempt(f"({OPEN.format(nodes[0])})").returncode == 0


def test_a_claim_that_is_killed_leaves_no_access(users):
    before = {path: acl(path) for path in CONSOLES}
    words = [CLI, f"--inventory={INVENTORY}", "claim", "add", "killed", "tty:2", "--for", users[0].name]
    seen = set()
    try:
        for call, number in (("setxattr", 1), ("setxattr", 2), ("fsetxattr", 1)):  # two nodes and the spec
            inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
            killed = ["strace", "-qq", "-o", "/dev/null", *inject, *words]
            assert subprocess.run(killed, check=False, capture_output=True).returncode == -signal.SIGKILL
            seen.update(path for path in CONSOLES if acl(path) != before[path])
            assert claim("gc")["freed"] == ["killed"]
            assert {path: acl(path) for path in CONSOLES} == before
            assert os.listdir("/var/lib/cdi/claims") == []
    finally:
        claim("del", "killed")
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("nosuchuser", (), "has no such user"),
        ("root", (), "is root"),
        ("daemon", ("--release-on-stop",), "ends with `fleet-cdi claim del "),
    ],
)
def test_what_can_not_work_is_refused(name, more, why):
    assert why in claim("add", "refused", "tty:1", "--for", name, *more, status=2)
    assert claim("list")["claims"] == []
