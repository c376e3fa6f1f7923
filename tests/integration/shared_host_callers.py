# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The five kinds of callers that get devices of a shared host and use them: what each does, and what it then has.

`gpus` are the devices that a caller was told that it has, until it was told that they are given back. `runs` says if
its process must have exactly these devices open now.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from shared_host import RESOURCE, RUNTIMES, SPECS, TYPE, Violation, until

from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec

DRIVER = "k8s.gpu.example.com/gpu"  # kubernetes-sigs/dra-example-driver


class Caller(ABC):
    """One user of devices. `actions` are the names of what it may do now."""

    contained = False  # in a container, which sees no other device than its own

    def __init__(self, host, name, chance):
        self.host, self.name, self.chance = host, name, chance
        self.claim = name
        self.gpus = frozenset()
        self.runs = False

    @property
    def held(self):
        """The devices that nobody else may get."""
        return self.gpus

    @abstractmethod
    def start(self, amount):
        """Ask for devices and use them; False if that was refused."""

    def actions(self):
        return ["end"]

    @abstractmethod
    def end(self):
        """Stop, and give everything back."""

    @abstractmethod
    def crash(self):
        """End as by a loss of power; the devices stay held."""

    def after_boot(self):
        """What its side does after a reboot. The claims are restored."""
        self.end()

    def over(self):
        """Whether a gc frees its claim, which has the name `claim`."""
        return False


class Executable(Caller):
    """Calls ADD and DEL of the executable, and runs a process with what it gets."""

    process = None

    def start(self, amount):
        paths = self.host.executable("ADD", self.name, amount)
        if paths is None:
            return False
        self.gpus = self.host.gpus(paths)
        self.process = self.host.process(self.name, paths)
        self.runs = True
        return True

    def actions(self):
        return ["end", "end", "again"]

    def again(self):
        """A repeated ADD has the same answer."""
        paths = self.host.executable("ADD", self.name, len(self.gpus))
        if paths is None or self.host.gpus(paths) != self.gpus:
            raise Violation(f"{self.name}: ADD again: {paths}; it has {sorted(self.gpus)}")

    def end(self):
        self.crash()
        self.host.executable("DEL", self.name)
        self.gpus = frozenset()

    def crash(self):
        if self.process:
            self.host.end(self.process, self.name)
        self.process, self.runs = None, False

    def after_boot(self):
        """It asks again and goes on: the same devices, by their present names."""
        self.again()
        self.process = self.host.process(self.name, [self.host.path[gpu] for gpu in sorted(self.gpus)])
        self.runs = True


class Job(Executable):
    """A job of Slurm: its prolog makes a claim, a process runs in it, and its epilog ends the claim.

    The test is slurmd here: it runs the shipped script with the variables of slurmd. test_slurm.py has a real slurmd.
    """

    def start(self, amount):
        self.job, self.run, self.of_earlier_boot = int(self.name.rpartition("-")[2]), 0, False
        self.claim = f"slurm-{self.job}"
        free = sorted(self.host.free())
        if len(free) < amount:
            if self.chance.random() < 0.2:
                self.refused(self.chance.sample(sorted(self.host.path), amount))
            return False
        self.gpus = frozenset(self.chance.sample(free, amount))
        if self.chance.random() < 0.25:
            self.host.slurm_job("prolog", self.job, self.run, self.gpus, killed=self.chance.uniform(0.0, 0.3))
            if self.chance.random() < 0.5:
                self.script("epilog")
                self.gone("the prolog was killed")
        self.begin()
        return True

    def refused(self, gpus):
        """Slurm chose devices of which others have some: the prolog fails, and the epilog leaves nothing."""
        if self.host.slurm_job("prolog", self.job, self.run, gpus) == 0:
            raise Violation(f"{self.name}: has {sorted(gpus)}; free are {sorted(self.host.free())}")
        self.host.slurm_job("epilog", self.job, self.run, gpus)
        self.gone("the prolog failed")

    def actions(self):
        return ["end", "end", "again", "requeue"]

    def begin(self):
        self.again()
        self.process = self.host.process(self.name, [self.host.path[gpu] for gpu in sorted(self.gpus)])
        self.runs = True

    def script(self, context, run=None):
        """Run the prolog or epilog, which must succeed."""
        status = self.host.slurm_job(context, self.job, self.run if run is None else run, self.gpus)
        if status:
            raise Violation(f"{self.name}: {context}: exit status {status}")

    def claimed(self):
        """The devices of its claim, None without one."""
        return self.host.claims().get(self.claim)

    def gone(self, why):
        if self.claimed() is not None:
            raise Violation(f"{self.name}: {why}, and its claim stays after the epilog")

    def again(self):
        """The prolog, also a repeated one, claims what Slurm chose."""
        self.script("prolog")
        if self.claimed() != self.gpus:
            raise Violation(f"{self.name}: has the claim {self.claimed()}; Slurm chose {sorted(self.gpus)}")

    def requeue(self):
        """Slurm runs the job anew, with other devices. The epilog of the earlier run may come late."""
        Executable.crash(self)
        late = self.chance.random() < 0.5
        if not late:
            self.script("epilog")
        self.run += 1
        self.gpus = frozenset(self.chance.sample(sorted(self.host.free() | self.gpus), len(self.gpus)))
        self.begin()
        if late:
            self.script("epilog", self.run - 1)

    def end(self):
        Executable.crash(self)
        if self.claimed() != self.gpus:
            raise Violation(f"{self.name}: has the claim {self.claimed()} before its end; expected {sorted(self.gpus)}")
        self.script("epilog")
        self.gone("it ended")
        self.gpus = frozenset()

    def crash(self):
        super().crash()
        self.of_earlier_boot = True

    def over(self):
        """A job does not survive a reboot."""
        return self.of_earlier_boot

    def collected(self):
        self.gpus = frozenset()

    def after_boot(self):
        raise Violation(f"{self.name}: its claim outlived the boot")


class Container(Caller):
    """A podman container with a claim."""

    contained = True

    def start(self, amount):
        self.runtime = self.chance.choice(sorted(RUNTIMES))
        self.always = self.chance.random() < 0.25
        self.release_on_stop = not self.always and self.chance.random() < 0.2
        self.exists = self.lost = False  # lost: its conmon was killed
        options = ["--release-on-stop"] if self.release_on_stop else []
        found = self.host.cli("claim", "add", self.name, f"{TYPE}:{amount}", *options, refused=True)
        if found is None:
            return False
        self.gpus = self.host.gpus(node["path"] for node in found["nodes"])
        restart = ["--restart=always"] if self.always else []
        self.host.run(self.name, [f"fleet.cdi/claim={self.name}"], self.runtime, *restart)
        self.exists = self.runs = True
        return True

    def actions(self):
        if self.lost:
            return ["remove", "end"]
        if not self.exists:
            return ["end"]  # or a gc comes first
        if not self.runs:
            return ["start_again", "start_again", "remove", "end"]
        return ["stop", "restart", "kill", "kill_conmon", "remove", "end"]

    def podman(self, *words, **options):
        return self.host.podman(*words, runtime=self.runtime, **options)

    def stop(self):
        self.podman("stop", "--time=0", self.name)
        self.runs = False

    def start_again(self):
        self.podman("start", self.name)
        self.runs = True

    def restart(self):
        self.podman("restart", "--time=0", self.name)

    def kill(self):
        """SIGKILL of its first process."""
        before = self.host.pid(self.name)
        os.kill(before, signal.SIGKILL)
        if self.always:
            until(lambda: self.host.pid(self.name) not in (0, before), f"{self.name} is restarted")
        else:
            self.podman("wait", self.name)
            self.runs = False

    def kill_conmon(self):
        """SIGKILL of conmon and then of the container: podman takes it for a running one."""
        init, conmon = self.host.pid(self.name), self.host.pid(self.name, "ConmonPid")
        os.kill(conmon, signal.SIGKILL)
        os.kill(init, signal.SIGKILL)
        until(lambda: not os.path.exists(f"/proc/{init}/root/bin"), f"{self.name} ends")
        self.runs, self.lost = False, True

    def remove(self):
        """The container goes; its claim stays until a gc."""
        self.host.remove(self.name)
        self.runs = self.exists = self.lost = False

    def over(self):
        return bool(self.gpus) and not self.runs and (self.release_on_stop or not self.exists)

    def collected(self):
        """A gc freed its claim."""
        self.gpus = frozenset()
        if self.exists:
            self.remove()

    def end(self):
        if self.exists:
            self.remove()
        if not self.host.cli("claim", "del", self.name)["changed"]:
            raise Violation(f"{self.name}: its claim is gone before its end")
        self.gpus = frozenset()

    def crash(self):
        if self.runs:
            self.stop()

    def after_boot(self):
        if self.exists and not self.lost and self.chance.random() < 0.8:
            self.start_again()


class HastyContainer(Container):
    """A control: gives its claim back while the container runs."""

    given_back = False

    @property
    def held(self):
        return frozenset() if self.given_back else self.gpus

    def actions(self):
        return ["give_back"]

    def give_back(self):
        self.host.cli("claim", "del", self.name, "--force")
        self.given_back = True


class NodeContainer(Caller):
    """A container that podman runs in the place of a node's container runtime."""

    contained = True

    def actions(self):
        return ["end", "restart"]

    def restart(self):
        self.host.podman("restart", "--time=0", self.name)

    def crash(self):
        self.host.podman("stop", "--time=0", self.name)
        self.runs = False


class KubernetesPod(NodeContainer):
    """A pod with an extended resource, which the kubelet chooses."""

    def start(self, amount):
        from admission import Rejected  # tests/contract

        try:
            names = self.host.kubelet.run(self.name, **{RESOURCE: amount})["cdi_devices"]
        except Rejected:
            return False
        self.gpus = frozenset(name.partition("=")[2] for name in names)
        self.host.run(self.name, names, "runc")
        self.runs = True
        return True

    def end(self):
        self.host.remove(self.name)
        self.runs = False
        if self.name in self.host.kubelet.pods:  # not after a crash
            self.host.kubelet.delete(self.name)
        until(lambda: not self.gpus & self.host.ledger_users(), f"the devices of {self.name} are free")
        self.gpus = frozenset()

    def crash(self):
        super().crash()
        self.host.kubelet.delete(self.name)


class DraClaim(NodeContainer):
    """A claim of a foreign DRA driver: it writes a spec for a device that it took itself, and asks nobody."""

    def start(self, amount):
        assert amount == 1
        self.uid = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        self.spec = Path(SPECS, f"{DRIVER.replace('/', '-')}_{self.uid}.json")
        free = sorted(self.host.free())
        if not free:
            return False
        self.gpus = frozenset(self.chance.sample(free, 1))
        (gpu,) = self.gpus
        device = f"{self.uid}-{gpu}"
        text = json.dumps(spec({device: nodes(self.host.path[gpu])}, DRIVER))
        self.spec.with_suffix(".new").write_text(text)
        self.spec.with_suffix(".new").rename(self.spec)
        until(lambda: f"uid:{self.uid}" in self.host.ledger_users(), f"the ledger knows {self.name}")
        self.host.run(self.name, [f"{DRIVER}={device}"], "runc")
        self.runs = True
        return True

    def end(self):
        self.host.remove(self.name)
        self.runs = False
        with suppress(FileNotFoundError):
            self.spec.unlink()
        until(lambda: f"uid:{self.uid}" not in self.host.ledger_users(), f"the device of {self.name} is free")
        self.gpus = frozenset()


KINDS = {"exe": Executable, "job": Job, "box": Container, "pod": KubernetesPod, "dra": DraClaim}
