# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine at work whose power is cut off again and again, while it works on: each cut is a disk to boot from.

A cut stops the CPUs, reads what the machine has said, puts a new overlay over the disk, and lets the CPUs go on. The
disk below the overlay never changes again. It has what the kernel had written, and lacks what was still in memory. This
disk has no cache of its own; one that has may also lose writes out of order.

What the machine has said came byte by byte through a port of its chipset, not through a buffer. So it was true before
the cut.
"""

from __future__ import annotations

import base64
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import controller as controllers
import machine as machines
from look import claims_of, wait_for, wait_idle
from whole import MACHINE, QUICK

# Runs on the machine as root, until it is stopped. It tells when each command begins and how it ended.
ACTS = """\
import itertools, os, subprocess, sys
port = os.open("/dev/port", os.O_WRONLY)
def act(*words):
    say("begin", *words)
    say("failed" if subprocess.run(["fleet-cdi", *words]).returncode else "done", *words)
def say(*words):
    for byte in (" ".join(words) + "\\n").encode():
        os.lseek(port, 0xE9, os.SEEK_SET)
        os.write(port, bytes([byte]))
def claims():
    held = {}
    for number in itertools.count():
        type_ = ("gpu", "disk", "tty")[number % 3]
        if type_ in held:
            act("claim", "del", held[type_])
        held[type_] = f"claim-{number}"
        act("claim", "add", held[type_], f"{type_}:1")
def refreshes():
    while True:
        act("refresh", "--drop")
{"claims": claims, "refresh": refreshes}[sys.argv[1]]()
"""
# Takes the place of the calls by which a program makes sure that its data is on the disk, and does nothing.
LIES = """
int fsync(int f) { return 0; }
int fdatasync(int f) { return 0; }
int syncfs(int f) { return 0; }
int sync_file_range(int f, long long a, long long b, unsigned c) { return 0; }
void sync(void) {}
"""
ENOUGH = 3  # claims before the cut
LIAR = "/usr/local/lib/liar.so"
PORT = "usb-serial,id={0},chardev={0},always-plugged=on,serial=quick"


class Cut(NamedTuple):
    """The end of a machine, as it would have been."""

    during: str  # the name of the workload
    disk: Path
    said: tuple[str, ...]  # the lines of ACTS since the workload began
    plugged: bool  # whether a second serial port was plugged in
    moment: str  # for people


class Scene:
    """A machine at work in a directory of its own."""

    def __init__(self, settings: Path) -> None:
        known = known_machine()
        directory = Path(tempfile.mkdtemp(prefix="fleet-cdi-"))
        self._said = directory / "said"
        more = ["-chardev", f"file,id=said,path={self._said}", "-device", "isa-debugcon,iobase=0xe9,chardev=said"]
        self.machine = machines.Machine({**known, "options": [*known.get("options", ()), *more]}, directory)
        self.settings = settings
        self.cuts: list[Cut] = []
        self._disk = self.machine.overlay
        self._before = 0  # bytes that were said before this workload
        self._port = ""  # the id of the second serial port, while it is plugged in

    def steps(self) -> int:
        """How often the machine has brought something to its disk: the flushes that its kernel asked for."""
        (root,) = (one for one in self.machine.control("query-blockstats") if one["device"] == "root")
        return int(root["stats"]["flush_operations"])

    def play(self, playbook: str, collections: Path = controllers.COLLECTIONS) -> int:
        """Run a playbook to its end, without a cut. Returns its steps. Raises OSError."""
        before = self.steps()
        controllers.Controller(self.machine, self.settings, collections).play(playbook)
        return self.steps() - before

    def cut_in_play(self, playbook: str, moments: list[int], collections: Path = controllers.COLLECTIONS) -> None:
        """Run a playbook and cut after so many of its steps each; at its end, if it has fewer. Raises OSError."""
        controller = controllers.Controller(self.machine, self.settings, collections)
        log = self.machine.directory / "play.log"
        before = self.steps()
        with log.open("w") as file:
            run = controller.start(playbook, stdout=file, stderr=file)
            for moment in moments:
                while self.steps() - before < moment and run.poll() is None:
                    time.sleep(0.05)
                self.cut(playbook, f"after {self.steps() - before} steps" if run.poll() is None else "at its end")
            if run.wait():
                raise OSError(f"{playbook}: {log.read_text()[-6000:]}")

    def act(self, what: str) -> None:
        """Let the machine begin with `what` of ACTS."""
        self._before = self._said.stat().st_size
        self.machine.root("cat > /run/acts.py", ACTS)
        self.machine.root(f"systemd-run --quiet --collect --unit=acts python3 /run/acts.py {what}")
        wait_for(lambda: "done" in self.said(), "the machine does not begin")

    def rest(self) -> None:
        """End what it does, and leave the machine as it was before: claims go, also one that was being made."""
        if self._port:
            self.toggle()
        self.machine.root("systemctl stop acts; fleet-cdi claim gc")
        for claim in claims_of(self.machine):
            self.machine.root(f"fleet-cdi claim del {claim}")
        wait_idle(self.machine)
        # The unit that misses the port has failed, and stays so until its next run.
        self.machine.root("fleet-cdi refresh --drop; systemctl start fleet-cdi-refresh")

    def said(self) -> str:
        """What the machine has said since it began with this workload."""
        return self._said.read_bytes()[self._before :].decode()

    def toggle(self) -> None:
        """Plug the second serial port in, or pull it."""
        if self._port:
            self.machine.unplug(self._port)
            self._port = ""
        else:
            self._port = f"quick-{time.monotonic_ns()}"
            self.machine.control("chardev-add", id=self._port, backend={"type": "null", "data": {}})
            words = PORT.format(self._port).split(",")
            given = dict(word.split("=") for word in words[1:])
            self.machine.control("device_add", driver=words[0], **{**given, "always-plugged": True})

    def cut(self, during: str, moment: str = "") -> None:
        """Keep the disk as a power cut would leave it now. Without `moment`, it is that of what was said last."""
        new = self.machine.directory / f"disk-{len(self.cuts)}.qcow2"
        with machines.Control(self.machine.directory / "qmp") as control:
            control.ask("stop")
            said = tuple(self.said().splitlines())
            control.ask("blockdev-snapshot-sync", device="root", format="qcow2", **{"snapshot-file": str(new)})
            control.ask("cont")
        self.cuts.append(Cut(during, self._disk, said, bool(self._port), moment or said[-1]))
        self._disk = new


def _moments(steps: int, number: int) -> list[int]:
    """So many moments, spread over the steps of a run."""
    return [int(steps * (cut + random.random()) / number) for cut in range(number)]


def provision(scene: Scene, number: int) -> None:
    """A run on a machine from which everything was removed. The first run tells how many steps it takes."""
    steps = scene.play("provision")
    if number:
        scene.play("remove")
        scene.cut_in_play("provision", _moments(steps, number))


def claims(scene: Scene, number: int) -> None:
    """Claims of each type of device are made and given back, one after the other."""
    scene.act("claims")
    for _cut in range(number):
        time.sleep(random.uniform(1, 8))
        scene.cut("claims")
    scene.rest()


def false_claims(scene: Scene) -> None:
    """As `claims`, but no program brings anything to the disk; cut when a claim was just acknowledged.

    Raises OSError without gcc.
    """
    library = scene.machine.directory / "liar.so"
    build = ["gcc", "-w", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
    subprocess.run(build, input=LIES.encode(), check=True)
    text = base64.b64encode(library.read_bytes()).decode()
    scene.machine.root(f"base64 -d >{LIAR}; sync; echo {LIAR} >/etc/ld.so.preload", text)
    scene.act("claims")
    wait_for(lambda: scene.said().count("done claim add") > ENOUGH, "few claims are made")
    scene.cut("claims")  # within a second after the last one
    scene.machine.root("rm /etc/ld.so.preload; sync")
    scene.rest()


def refresh(scene: Scene, number: int) -> None:
    """A refresh after the other, while a serial port comes and goes."""
    scene.act("refresh")
    for _cut in range(number):
        scene.toggle()
        time.sleep(random.uniform(0.5, 8))
        scene.cut("refresh")
    scene.rest()


def upgrade(scene: Scene, number: int) -> None:
    """Playbook `upgrade`, twice, with another release each time. The first run tells how many steps it takes."""
    releases = [scene.machine.directory / f"collections-{number}" for number in range(2)]
    for collections in releases:
        shutil.copytree(controllers.COLLECTIONS, collections)
        with (collections / "ansible_collections/fleet/cdi/plugins/module_utils/release/version.py").open("a") as file:
            file.write(f"# {collections.name}\n")
    steps = scene.play("upgrade", releases[0])
    scene.cut_in_play("upgrade", _moments(steps, number), releases[1])


WORKLOADS: dict[str, Callable[[Scene, int], None]] = {
    "provision": provision,
    "claims": claims,
    "refresh": refresh,
    "upgrade": upgrade,
}


def known_machine() -> dict[str, Any]:
    """The definition of the machine that works, and of its copies."""
    return {**machines.definition(MACHINE), "kernel": list(QUICK)}


def spread(number: int) -> list[tuple[str, int]]:
    """So many cuts over the workloads: (the name of the workload, the number of the cut in it)."""
    return [(list(WORKLOADS)[cut % len(WORKLOADS)], cut // len(WORKLOADS)) for cut in range(number)]


def cut_copy(cut: Cut) -> machines.Machine:
    """A machine that boots from the disk of a cut, with the devices that were there. What it writes is its own."""
    known = known_machine()
    if cut.plugged:
        more = {"chipset": [*known["chipset"], PORT.format("quick")], "options": ["-chardev", "null,id=quick"]}
        known = {**known, **more}
    directory = Path(tempfile.mkdtemp(prefix="fleet-cdi-"))
    base = ["-F", "qcow2", "-b", str(cut.disk)]
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *base, str(directory / "disk.qcow2")], check=True)
    shutil.copy(machines.image_of(known).key, directory / "key")
    return machines.Machine(known, directory)


class Boots:
    """Machines that boot from cuts, in this order: each is switched on while the one before answers questions."""

    def __init__(self, cuts: Iterable[Cut]) -> None:
        self._waiting = list(cuts)
        self._on: dict[int, machines.Machine] = {}  # by the id of its cut

    def take(self, cut: Cut) -> machines.Machine:
        """The machine of this cut, switched on; the caller closes it. Raises OSError."""
        self._switch_on(cut)
        rest = self._waiting[self._waiting.index(cut) + 1 :]
        if rest:
            self._switch_on(rest[0])
        return self._on.pop(id(cut))

    def _switch_on(self, cut: Cut) -> None:
        if id(cut) not in self._on:
            self._on[id(cut)] = found = cut_copy(cut)
            found.start()

    def close(self) -> None:
        """Switch off those that nobody took."""
        for found in self._on.values():
            found.close()


def replayed(said: Iterable[str]) -> tuple[set[str], set[str], set[str]]:
    """(claims that are held, claims that are gone, the claim of a command that did not end), by what was said."""
    held: set[str] = set()
    gone: set[str] = set()
    open_: set[str] = set()
    for line in said:
        how, _claim, what, claim = line.split()[:4]
        held.discard(claim)
        gone.discard(claim)
        open_ = {claim} if how == "begin" else set()
        if how == "done":
            (held if what == "add" else gone).add(claim)
    return held, gone, open_
