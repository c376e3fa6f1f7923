# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims while real containers start, stop, restart, are killed and removed: kept while they may be used, then freed.

The devices are consoles, granted by the executable of docs/writing-an-executable.md; the hook is that of a release.

    CROWD=50 pytest tests/integration/test_claim_lifetime.py -k crowd
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

NODES = ("/dev/tty61", "/dev/tty62")
CROWD = int(os.environ.get("CROWD") or 8)  # containers that start at once
CROWD_NODES = tuple(f"/dev/tty{minor}" for minor in range(20, 20 + CROWD // 2))
PAGE = Path(__file__).parents[2] / "docs/writing-an-executable.md"
CLI = "/opt/cdi/bin/fleet-cdi"
FOREVER = "trap 'exit 0' TERM; while :; do busybox sleep 0.1; done"
RUNTIMES = {"runc": [], "crun": ["--cgroups=disabled"]}
NUMBERS = itertools.count()  # of claims; a name that ended is refused until the next boot

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "crun", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="writes to /var/run/cdi and runs containers: needs root"),
    pytest.mark.skipif(not all(map(os.path.exists, NODES)), reason="needs the consoles tty61 and tty62"),
]


@pytest.fixture(scope="module", autouse=True)
def executable(ansible_module):
    """A release, and the executable of the guide for NODES."""
    ansible_module("fleet.cdi.host_release")
    text = re.search(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    program = Path("/opt/cdi/bin/serial")
    program.write_text(text.replace("/var/lib/serial-grants", "/var/lib/cdi/serial-grants"), encoding="utf-8")
    program.chmod(0o755)
    config = {
        "cdiVersion": "0.0.1",
        "name": "x",
        "type": "serial",
        "plugin": "serial",
        "args": {"nodes": " ".join((*NODES, *CROWD_NODES))},
    }
    Path("/etc/cdi/serial.d").mkdir()
    Path("/etc/cdi/serial.d/lab.conf").write_text(json.dumps(config), encoding="utf-8")
    yield
    shutil.rmtree("/etc/cdi/serial.d")
    program.unlink()
    ansible_module("fleet.cdi.host_release", state="absent", on_needed="drop")


class Podman:
    """podman with one runtime, and containers that are removed at the end."""

    def __init__(self, runtime, root):
        self.runtime, self.root, self.names = runtime, root, []
        self.program = ("podman", "--log-level=error", "--runtime", runtime)

    def attempt(self, *words):
        return subprocess.run([*self.program, *words], capture_output=True, text=True, check=False)

    def __call__(self, *words):
        done = self.attempt(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def remove(self, *names):
        """Remove containers. podman refuses one whose process ended a moment ago, until it has learned that."""
        end = time.monotonic() + 30
        while (done := self.attempt("rm", "--force", "--ignore", "--time=0", *names)).returncode:
            assert time.monotonic() < end, done.stderr
            time.sleep(0.1)

    def forget(self, *ids):
        """Remove what the runtime keeps of containers. Their conmon does that, and it was killed."""
        for id_ in ids:
            subprocess.run([self.runtime, "delete", "--force", id_], capture_output=True, check=True)

    def words(self, name, claim, *options):
        """The words for a container after run or create."""
        self.names.append(name)
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", *RUNTIMES[self.runtime]]
        device = ["--device", f"fleet.cdi/claim={claim}"]
        return [
            "--network=none",
            *limits,
            *device,
            "--name",
            name,
            *options,
            "--rootfs",
            str(self.root),
            "/bin/sh",
            "-c",
        ]

    def pid(self, name, which="Pid"):
        return int(self("inspect", name, "--format", "{{.State." + which + "}}"))


@pytest.fixture(params=RUNTIMES)
def podman(request, tmp_path):
    (tmp_path / "root/bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), tmp_path / "root/bin/busybox")
    (tmp_path / "root/bin/sh").symlink_to("busybox")
    podman = Podman(request.param, tmp_path / "root")
    yield podman
    for name in podman.names:
        podman.remove(name)


def claim(*words, failed=False):
    """What fleet-cdi claim prints as JSON; with `failed`, its error."""
    start = [CLI, "--inventory=/var/lib/cdi/inventory.json", "claim", *words, "--json"]  # beside it: names that ended
    done = subprocess.run(start, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == failed, done.stdout + done.stderr
    return done.stderr if failed else json.loads(done.stdout)


def states():
    return {one["id"]: one["state"] for one in claim("list")["claims"]}


def freed():
    return claim("gc")["freed"]


@pytest.fixture
def one():
    """Make a claim of a console, whose name is used once; what is left is given back."""
    made = []

    def add(*options):
        made.append(f"test-{os.getpid()}-{next(NUMBERS)}")
        claim("add", made[-1], "serial:1", *options)
        return made[-1]

    yield add
    for name in made:
        claim("del", name, "--force")
    assert Path("/var/lib/cdi/serial-grants").read_text(encoding="ascii") == ""
    assert [path.name for path in Path("/var/lib/cdi/claims").iterdir()] == []


def test_a_container_has_its_device_again_after_a_stop(podman, one):
    name = one()
    podman("run", "--detach", *podman.words(name, name, "--stop-timeout=2"), FOREVER)
    assert states() == {name: "granted"} and freed() == []
    assert "that use it still run: " in claim("del", name, failed=True)
    podman("exec", name, "/bin/busybox", "test", "-c", NODES[0])
    for before, after in (("stop", "start"), ("kill", "start"), (None, "restart")):
        if before:
            podman(before, name)
            podman("wait", name)
            assert states() == {name: "idle"}
            assert freed() == []  # it may start again
        podman(after, name)
        assert states() == {name: "granted"} and freed() == []
        podman("exec", name, "/bin/busybox", "test", "-c", NODES[0])
    if podman.runtime == "runc":  # crun pauses by cgroups, which it does not use here
        podman("pause", name)
    assert states() == {name: "granted"}
    podman.remove(name)
    assert states() == {name: "idle"} and freed() == [name]
    assert states() == {}


def test_the_last_of_two_containers_frees_it(podman, one):
    name = one()
    for container in (f"{name}-a", f"{name}-b"):
        podman("run", "--detach", *podman.words(container, name), FOREVER)
    podman.remove(f"{name}-a")
    assert states() == {name: "granted"} and freed() == []
    podman.remove(f"{name}-b")
    assert freed() == [name]


def test_release_on_stop(podman, one):
    name = one("--release-on-stop")
    assert freed() == []  # not used yet
    podman("run", "--rm", *podman.words(name, name), f"busybox test -c {NODES[0]}")
    assert freed() == [name]


def test_one_that_restarts_all_the_time_is_never_taken_for_gone(podman, one):
    name = one()
    podman("run", "--detach", *podman.words(name, name, "--restart=always"), "busybox sleep 0.2")
    seen, end = [], time.monotonic() + 120
    while len(seen) < 10 or "granted" not in seen:
        assert time.monotonic() < end, seen
        assert freed() == []
        seen.append(states()[name])
    podman.remove(name)
    assert freed() == [name]


def test_killed_without_a_word(podman, one):
    """conmon is killed: no poststop hook runs any more, and podman takes the container for a running one."""
    name = one()
    id_ = podman("run", "--detach", *podman.words(name, name), FOREVER)
    init = podman.pid(name)
    os.kill(podman.pid(name, "ConmonPid"), signal.SIGKILL)
    assert states() == {name: "granted"} and freed() == []
    assert "still run: " + id_ in claim("del", name, "--check", failed=True)
    os.kill(init, signal.SIGKILL)
    end = time.monotonic() + 10
    while states() != {name: "idle"} and time.monotonic() < end:
        time.sleep(0.1)
    assert states() == {name: "idle"}
    assert freed() == []  # podman has it
    podman.remove(name)
    podman.forget(id_)
    assert claim("gc", "--check")["freed"] == [name] and states() == {name: "idle"}
    assert freed() == [name]


def test_no_container_starts_with_a_claim_that_is_over(podman, one):
    name = one()
    podman("create", *podman.words(name, name), FOREVER)
    spec = Path(f"/var/run/cdi/fleet.cdi-claim_{name}.json")
    kept = spec.read_bytes()
    assert claim("del", name)["changed"]
    assert podman.attempt("start", name).returncode != 0  # podman does not know the name any more
    spec.write_bytes(kept)  # as if it had read the spec just before
    done = podman.attempt("start", name)
    assert done.returncode != 0
    if podman.runtime == "runc":  # crun does not show what a hook says
        assert "is closed or missing, so the claim is over" in done.stderr, done.stderr
    assert "ended in this boot" in claim("add", name, "serial:1", failed=True)
    claim("add", name, "serial:1", "--reuse")
    assert podman.attempt("create", *podman.words(f"{name}-new", name), FOREVER).returncode == 0
    podman("start", f"{name}-new")
    assert states() == {name: "granted"}


def test_one_whose_start_fails_leaves_no_use(podman, one):
    """runc runs poststop hooks then, and crun does not."""
    name = one()
    done = podman.attempt("run", *podman.words(name, name)[:-2], "/nowhere")
    assert done.returncode != 0
    assert states() == {name: "idle"}
    podman.remove(name)
    assert freed() == [name]


def test_a_crowd_starts_at_once_and_is_killed_at_once(podman, one):
    """Half of the containers have a claim each, the others share one."""
    shared, own = one(), [one() for _container in range(CROWD // 2)]
    claim_of = {f"{name}-own": name for name in own} | {f"{shared}-{count}": shared for count in range(CROWD // 2)}
    starts = [
        subprocess.Popen(
            [*podman.program, "run", "--detach", *podman.words(container, name), "busybox sleep 1000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for container, name in claim_of.items()
    ]
    users = {name: set() for name in claim_of.values()}
    for start, name in zip(starts, claim_of.values()):
        container, error = start.communicate()
        assert start.returncode == 0, error
        users[name].add(container.strip())
    noted = {one["id"]: f"/var/lib/cdi/claims/{one['id']}.{one['token']}.users" for one in claim("list")["claims"]}
    assert {name: set(os.listdir(path)) for name, path in noted.items()} == users
    assert set(states().values()) == {"granted"} and freed() == []
    pids = podman("inspect", *claim_of, "--format", "{{.State.ConmonPid}} {{.State.Pid}}").split()
    for pid in map(int, pids):
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 60
    while set(states().values()) != {"idle"} and time.monotonic() < end:
        time.sleep(0.1)
    assert freed() == []  # podman has them
    podman.remove(*claim_of)
    podman.forget(*set().union(*users.values()))
    assert set(freed()) == {shared, *own}
