# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five kinds of callers share one host through random starts, restarts, kills, reboots and ends.

After each action the oracle asks the kernel, never the ledger: which process has which device open, and which devices a
container sees. At the end everything is given back, and one request gets all devices.

    ACTIONS=1000 SEED=3 pytest tests/integration/test_shared_host.py
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))
pytest.importorskip("grpc", reason="missing packages: python3-grpcio (make test INSTALL=1)")

import shared_host
from shared_host import DEV, INVENTORY, PREFIX, SPECS, STATE, SharedHost, Violation, openers, until
from shared_host_callers import KINDS, Container, HastyContainer, KubernetesPod

ACTIONS = int(os.environ.get("ACTIONS") or 60)
SEED = int(os.environ.get("SEED") or 1)
# What may happen to the host: how often, among 100 actions of which the rest is the callers' own.
HOST_ACTIONS = {"reboot": 3, "collect": 10, "probe": 6, "kill_plugin": 3, "restart_kubelet": 3}
COLLECTOR = (f"{PREFIX}/bin/fleet-cdi",)
MOST = 5  # callers at one time
CONTROL = 60  # actions within which a planted fault must be found

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "crun", "busybox-static", "python3-grpcio", "slurmd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="writes to /var/run/cdi and runs containers: needs root"),
    pytest.mark.skipif(
        not all(os.path.exists(f"/dev/tty{minor}") for minor in (shared_host.FIRST, shared_host.LAST)),
        reason="this machine has no consoles",
    ),
]


def users_of(seen):
    """Turn what openers returned around: number -> users."""
    found = {}
    for user, numbers in seen.items():
        for number in numbers:
            found.setdefault(number, []).append(user)
    return found


class Story:
    """A sequence of actions, drawn from a seed, and what the oracle says after each."""

    def __init__(self, host, chance, kinds=None, often=None, collector=COLLECTOR):
        self.host, self.chance, self.collector = host, chance, collector
        self.kinds = KINDS if kinds is None else kinds
        self.often = HOST_ACTIONS if often is None else often
        self.callers, self.trace, self.made = [], [], 0
        host.free = self.free

    def free(self):
        """Return the devices that no caller was given."""
        return frozenset(self.host.path).difference(*(one.held for one in self.callers))

    def tell(self, *actions):
        """Run these, and look at the host after each. Raises Violation with the trace."""
        for action in actions:
            self.trace.append(f"{len(self.trace)}: ")
            try:
                action()
                self.look()
            except Exception as error:
                raise Violation("\n".join([*self.trace, f"{type(error).__name__}: {error}"])) from error

    def note(self, text):
        self.trace[-1] += text

    def act(self):
        """One action by chance."""
        drawn = self.chance.random() * 100
        for name, often in self.often.items():
            drawn -= often
            if drawn < 0:
                self.note(name)
                getattr(self, name)()
                return
        if (len(self.callers) < MOST and self.chance.random() < 0.5) or not self.callers:
            self.begin()
            return
        caller = self.chance.choice(self.callers)
        action = self.chance.choice(caller.actions())
        self.note(f"{action} {caller.name}")
        getattr(caller, action)()
        self.forget()

    def begin(self):
        """A caller comes. It gets what it asks for exactly if so much is free."""
        self.made += 1
        kind = self.chance.choice(sorted(self.kinds))
        amount = 1 if kind == "dra" else self.chance.choice((1, 1, 1, 2, 3))
        caller = self.kinds[kind](self.host, f"{kind}-{os.getpid()}-{self.made}", self.chance)
        free = self.free()
        if kind == "pod":
            self.offered()
        started = caller.start(amount)
        self.note(f"start {caller.name} for {amount}: {sorted(caller.gpus) if started else 'refused'}")
        if started:
            self.callers.append(caller)
        if started != (amount <= len(free)):
            raise Violation(f"{caller.name}: asked for {amount} with {sorted(free)} free: {started}")
        if started and not (len(caller.gpus) == amount and caller.gpus <= free):
            raise Violation(f"{caller.name}: was given {sorted(caller.gpus)}; free were {sorted(free)}")

    def forget(self):
        """Drop the callers that have nothing any more."""
        self.callers = [one for one in self.callers if one.gpus or one.runs]

    def offered(self):
        """Wait until the kubelet may grant what is free, as its list comes later."""
        self.host.await_news()
        wanted = self.free().union(*(one.gpus for one in self.callers if isinstance(one, KubernetesPod)))
        until(
            lambda: self.host.offered() == wanted,
            lambda: f"the kubelet may grant {sorted(self.host.offered())}; expected {sorted(wanted)}",
        )

    def look(self):
        """The oracle: who runs has open what it was given, exactly; nobody else has it, and no container sees more."""
        wanted = {one.name: self.host.numbers(one.gpus) for one in self.callers if one.runs}
        numbers = {*self.host.number.values()}
        seen = {}

        def agrees():
            seen.clear()
            seen.update(openers(numbers))
            for number, users in sorted(users_of(seen).items()):
                if len(users) > 1:
                    raise Violation(f"{self.name_of(number)} is open in {' and '.join(sorted(users))}")
            return {user: set(found) for user, found in seen.items()} == wanted

        until(agrees, lambda: f"open in /proc: {self.named(seen)}; granted: {self.named(wanted)}")
        for one in self.callers:
            if one.runs and one.contained:
                visible = set(os.listdir(f"/proc/{min(seen[one.name].values())}/root{DEV}"))
                granted = {os.path.basename(self.host.path[gpu]) for gpu in one.gpus}
                if visible != granted:
                    raise Violation(f"{one.name} sees {sorted(visible)}; it was granted {sorted(granted)}")

    def named(self, seen):
        """Numbers as names of devices, for people."""
        return {user: sorted(map(self.name_of, numbers)) for user, numbers in sorted(seen.items())}

    def name_of(self, number):
        """Return the device that has this number now."""
        return next(gpu for gpu, path in self.host.path.items() if self.host.number[path] == number)

    # -- what happens to the host --------------------------------------------------------------------

    def reboot(self):
        for one in self.callers:
            one.crash()
        self.host.kill_plugin()
        self.host.kubelet.stop(graceful=False)
        self.host.boot()
        done = self.host.cli("claim", "restore")
        if done["failed"]:
            raise Violation(f"claim restore: {done['failed']}")
        self.collect()  # a service does that after a boot
        self.host.kubelet.start()
        self.host.start_plugin()
        for one in self.callers:
            one.after_boot()
        self.forget()

    def collect(self):
        """`claim gc` frees the claims whose containers are gone, and no others."""
        over = sorted(one.claim for one in self.callers if one.over())
        found = self.host.cli("claim", "gc", program=self.collector)
        self.note(f": {found['freed']}")
        if sorted(found["freed"]) != over or found["failed"]:
            raise Violation(f"claim gc: {found}; over are {over}")
        for one in self.callers:
            if one.claim in over:
                one.collected()
        self.forget()

    def probe(self):
        """All that is free can be granted, and no more."""
        free = self.free()
        name = f"probe-{len(self.trace)}"
        if self.host.executable("ADD", name, len(free) + 1) is not None:
            raise Violation(f"{len(free) + 1} devices were granted; free were {sorted(free)}")
        if free:
            paths = self.host.executable("ADD", name, len(free))
            if paths is None or self.host.gpus(paths) != free:
                raise Violation(f"free are {sorted(free)}; granted were {paths}")
            self.host.executable("DEL", name)

    def kill_plugin(self):
        self.host.kill_plugin()
        self.host.start_plugin()

    def restart_kubelet(self):
        self.host.kubelet.restart()

    def finish(self):
        """All callers end; then one request gets all devices, and the kubelet may grant all."""
        for one in [*self.callers]:
            self.note(f"end {one.name}; ")
            one.end()
            self.forget()
        self.collect()
        self.probe()
        self.offered()


@pytest.fixture(scope="module", autouse=True)
def release(ansible_module):
    ansible_module("fleet.cdi.host_release", device_list=INVENTORY)
    yield
    ansible_module("fleet.cdi.host_release", state="absent", on_needed="drop")


@pytest.fixture
def host():
    """Make a shared host: host(chance); at the end nothing of it is left."""
    made = []
    directory = Path(tempfile.mkdtemp(prefix="o", dir="/dev/shm"))  # a short path, for sockets

    def make(chance):
        made.append(SharedHost(directory, chance))
        made[-1].open()
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert "Traceback" not in (directory / "plugin.log").read_text()
    left = [path for pattern in ("ledger*", "inventory*", "claims*") for path in Path(STATE).glob(pattern)]
    for path in (*left, *Path(SPECS).glob("*"), *Path("/etc/cdi").glob("*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(directory)


def test_no_device_is_lost_or_used_twice(host):
    chance = random.Random(SEED)
    story = Story(host(chance), chance)
    story.tell(*[story.act] * ACTIONS, story.finish)
    sys.stdout.write("\n".join(story.trace))


HASTY_GC = f"""
import json, os, sys
release = os.path.dirname(os.path.dirname(os.path.realpath("{PREFIX}/bin/fleet-cdi")))
sys.path.insert(0, release)
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
collect_claims.collect_claims.__defaults__ = (collect_claims.ListedContainers,)
paths = {{"state_dir": "{STATE}", "inventory": "{INVENTORY}", "spec_dirs": ["/etc/cdi", "{SPECS}"]}}
sys.exit(main(sys.argv[1:], "test", {{**paths, "prefix": "{PREFIX}"}}))
"""
GC = ("/usr/bin/python3", "-I", "-c", HASTY_GC)
CONTROLS = {
    "a gc that does not ask podman": ({"box": Container}, {"collect": 30}, GC, "claim gc: "),
    "a claim given back while it is used": (
        {"box": HastyContainer, "exe": KINDS["exe"]},
        {},
        COLLECTOR,
        "is open in .* and ",
    ),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_planted_fault_is_found(host, control):
    *planted, said = CONTROLS[control]
    chance = random.Random(SEED)
    story = Story(host(chance), chance, *planted)
    with pytest.raises(Violation, match=said):
        story.tell(*[story.act] * CONTROL)
