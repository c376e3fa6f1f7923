# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host that five kinds of callers share: its devices, its reboots, its programs, and who has which device open.

Its devices are consoles under other names and in a directory of their own, DEV. A reboot gives them other
names and numbers; by their ids they stay the same. The boot id is a file that is mounted over the kernel's.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import pool_path
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec

sys.path.append(str(Path(__file__).resolve().parents[1] / "contract"))

COUNT = 6
DEV = f"/dev/fleet-oracle-{os.getpid()}"
FIRST, LAST = 20, 59  # consoles of this machine, of which a boot has COUNT
TTY = 4  # their major number
TYPE = "accel"
KIND = f"oracle.example/{TYPE}"
RESOURCE = KIND  # as the kubelet names it
STATE, PREFIX = "/var/lib/cdi", "/opt/cdi"  # the test's own (tests/harness/apart.py)
INVENTORY = f"{STATE}/inventory.json"
SPECS = "/var/run/cdi"
CONFIG = {"cdiVersion": "0.0.2", "name": "shared", "type": TYPE, "plugin": "rule", "args": {"occupied": "ignore"}}
SLURM = {**CONFIG, "type": "slurm", "args": {**CONFIG["args"], "owner": "external"}}  # what Slurm may give to jobs
# Enough for `slurmd -G`.
SLURM_CONF = """\
ClusterName=test
SlurmctldHost=host(127.0.0.1)
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
GresTypes=gpu
NodeName=host CPUs=1 Gres={gres}
PartitionName=all Nodes=ALL
"""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MARK = f"FLEET_CDI_USER_{os.getpid()}"  # in the environment of each process that uses devices: its user
# Opens its operands, or all devices that it sees, and keeps them. A child does it, because a leader of a session would
# get a terminal by it.
HOLD = f"""
[ $# = 0 ] && set -- {DEV}/*
(i=3; for n in "$@"; do eval "exec $i<\\$n" || exit 1; i=$((i+1)); done; exec busybox sleep 1000000) &
wait
"""
RUNTIMES = {"runc": (), "crun": ("--cgroups=disabled",)}
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
PATIENCE = 60.0  # seconds

_libc = ctypes.CDLL(None, use_errno=True)


class Violation(AssertionError):
    """The host did what it must never do."""


def until(condition, what):
    """Wait until `condition` gives something true, and return that. Raises Violation."""
    end = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise Violation(f"not within {PATIENCE:g} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def openers(numbers):
    """Return which of the character devices `numbers` are open, by /proc: user -> number -> a process of the user."""
    found = {}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            user = re.search(rb"(?:^|\0)%s=([^\0]*)" % MARK.encode(), Path(f"/proc/{pid}/environ").read_bytes())
            for name in os.listdir(f"/proc/{pid}/fd") if user else ():
                with suppress(OSError):
                    seen = os.stat(f"/proc/{pid}/fd/{name}")
                    if stat.S_ISCHR(seen.st_mode) and seen.st_rdev in numbers:
                        found.setdefault(user[1].decode(), {})[seen.st_rdev] = int(pid)
    return found


class SharedHost:
    """The host, in the mount namespace of the tests."""

    def __init__(self, directory, chance):
        self.directory, self.chance = directory, chance
        self.root = directory / "root"  # of containers
        self.containers, self.processes = [], []
        self.boots = self.marks = 0
        self.plugin = self.kubelet = None

    def open(self):
        """Make the devices, and start what runs on the host."""
        os.makedirs(DEV, exist_ok=True)
        _mount("none", DEV, "tmpfs")
        (self.directory / "boot_id").write_text("")
        _mount(str(self.directory / "boot_id"), BOOT_ID, bind=True)
        (self.root / "bin").mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), self.root / "bin/busybox")
        (self.root / "bin/sh").symlink_to("busybox")
        for config in (CONFIG, SLURM):
            path = Path(f"/etc/cdi/{config['type']}.d/shared.conf")
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(config))
        self._start_kubelet()
        self.boot()
        self.cli("grants", "give", KIND, "kubernetes", "claims", "external")
        self.start_plugin()

    # -- boots -----------------------------------------------------------------------------------

    def boot(self):
        """The devices have other names and numbers, /run is empty, and the specs are as a refresh writes them."""
        self.boots += 1
        (self.directory / "boot_id").write_text(f"{self.boots:08x}-1111-4111-8111-{self.chance.getrandbits(48):012x}\n")
        self.boot_id = inventory.boot_id("/")
        for directory in (DEV, SPECS, str(self.directory / "run")):
            for path in Path(directory).glob("*"):
                path.unlink()
        minors = self.chance.sample(range(FIRST, LAST + 1), COUNT)
        names = self.chance.sample(range(COUNT), COUNT)
        self.path = {f"gpu{gpu}": f"{DEV}/{TYPE}{name}" for gpu, name in enumerate(names)}
        self.number = {path: os.makedev(TTY, minor) for path, minor in zip(self.path.values(), minors)}
        for path, number in self.number.items():
            os.mknod(path, 0o600 | stat.S_IFCHR, number)
        known = tuple(
            Device(
                f"pci:0000:0{gpu[3:]}:00.0",
                "rule",
                KIND,
                (gpu,),
                (Node(path, "c", TTY, os.minor(self.number[path])),),
                uuid=f"GPU-{gpu}",
            )
            for gpu, path in self.path.items()
        )
        content = inventory.render(inventory.Inventory(known), self.boot_id)
        pools = [pool_path(INVENTORY, one["type"], one["plugin"], one["args"]) for one in (CONFIG, SLURM)]
        for path in (INVENTORY, *pools):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).write_bytes(content)
        document = spec({gpu: nodes(path) for gpu, path in self.path.items()}, KIND)
        Path(f"/etc/cdi/{KIND.replace('/', '-')}.json").write_text(json.dumps(document))
        gres = ",".join(f"gpu:{gpu}:1" for gpu in sorted(self.path))
        (self.directory / "slurm.conf").write_text(SLURM_CONF.format(gres=gres))
        lines = [f"NodeName=host Name=gpu Type={gpu} File={path}\n" for gpu, path in sorted(self.path.items())]
        (self.directory / "gres.conf").write_text("".join(lines))

    def gpus(self, paths):
        """Return the devices that have these paths in this boot."""
        names = {path: gpu for gpu, path in self.path.items()}
        return frozenset(names[path] for path in paths)

    def numbers(self, gpus):
        """Return the present numbers of devices."""
        return {self.number[self.path[gpu]] for gpu in gpus}

    # -- programs --------------------------------------------------------------------------------

    def cli(self, *words, refused=False, program=(f"{PREFIX}/bin/fleet-cdi",)):
        """Run fleet-cdi with --json; return its document, None if it refused and may. Raises Violation."""
        done = subprocess.run([*program, *words, "--json"], capture_output=True, text=True, check=False)
        if done.returncode == 2 and refused:
            return None
        if done.returncode not in (0, 1) or not done.stdout:
            raise Violation(f"fleet-cdi {' '.join(words)}: exit status {done.returncode}: {done.stderr}{done.stdout}")
        return json.loads(done.stdout)

    def executable(self, command, request_id, amount=1):
        """Call the executable; return the paths of an ADD, None for a refusal, [] for a DEL. Raises Violation."""
        variables = {"CDI_COMMAND": command, "CDI_VERSION": CONFIG["cdiVersion"], "CDI_REQUEST_ID": request_id}
        if command == "ADD":
            variables["CDI_REQUEST"] = f"{TYPE}:{amount}"
        start = [f"{PREFIX}/bin/rule"]
        done = subprocess.run(
            start, input=json.dumps(CONFIG), env=variables, capture_output=True, text=True, check=False
        )
        reply = json.loads(done.stdout) if done.stdout else {}
        if command == "ADD" and reply.get("error") == 100:
            return None
        if "error" in reply or done.returncode:
            raise Violation(f"{command} {request_id}: {done.stdout}{done.stderr}")
        return reply.get("devices", [])

    def slurm_job(self, context, job, run, gpus, killed=None):
        """Run the script of Prolog and Epilog as slurmd does: its exit status. `killed`: after so many seconds."""
        variables = {
            "SLURM_SCRIPT_CONTEXT": f"{context}_slurmd",
            "SLURM_JOB_ID": str(job),
            "SLURM_JOB_UID": "1000",
            "SLURM_JOB_RESTART_COUNT": str(run),
            "SLURM_JOB_GPUS": ",".join(str(sorted(self.path).index(gpu)) for gpu in sorted(gpus)),
            "SLURM_CONF": str(self.directory / "slurm.conf"),
            "SLURMD_NODENAME": "host",
        }
        with subprocess.Popen([f"{PREFIX}/bin/slurm-job"], env=variables, stderr=subprocess.PIPE, text=True) as script:
            if killed is not None:
                time.sleep(killed)
                script.kill()
            error = script.communicate(timeout=PATIENCE)[1]
        if "Traceback" in error:
            raise Violation(error)
        return script.returncode

    def claims(self):
        """Return the claims, also those that are asked: id -> devices."""
        found = self.cli("claim", "list")["claims"]
        return {claim["id"]: self.gpus(node["path"] for node in claim["nodes"]) for claim in found}

    def offered(self):
        """Return the devices that the kubelet may grant to pods, or has granted."""
        with self.kubelet.books.lock:
            return frozenset(self.kubelet.books.healthy.get(RESOURCE, ()))

    def await_news(self):
        """Wait until the kubelet knows of all that happened before.

        Its list can be as expected from before that. So a device with a new name comes, and goes again.
        """
        self.marks += 1
        mark, path = f"mark{self.marks}", Path("/etc/cdi/mark.json")
        path.with_suffix(".new").write_text(json.dumps(spec({mark: nodes("/dev/null")}, KIND)))
        path.with_suffix(".new").rename(path)
        until(lambda: mark in self.offered(), f"the kubelet knows {mark}")
        path.unlink()
        until(lambda: mark not in self.offered(), f"the kubelet knows that {mark} is gone")

    def ledger_users(self):
        """Return the request-ids in the ledger: to wait for the device plugin, never to judge."""
        return {grant.key.request_id for grant in Ledger(STATE, self.boot_id).grants()}

    def process(self, user, paths):
        """Start a process of a job that opens `paths`."""
        command = ["sh", "-c", HOLD, "sh", *paths]
        self.processes.append(subprocess.Popen(command, env={**os.environ, MARK: user}, start_new_session=True))
        return self.processes[-1]

    def end(self, process, user):
        """Kill a user's process with its children, and wait until they have closed their devices."""
        self.processes.remove(process)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        numbers = {*self.number.values()}
        until(lambda: user not in openers(numbers), f"{user} ends")

    def podman(self, *words, runtime="runc", fails=False):
        """Run podman; return what it says, None if it failed and may. Raises Violation."""
        start = ["podman", "--log-level=error", "--runtime", runtime, *words]
        done = subprocess.run(start, capture_output=True, text=True, check=False)
        if done.returncode and not fails:
            raise Violation(f"podman {' '.join(words)}: {done.stderr.strip()}")
        return None if done.returncode else done.stdout.strip()

    def run(self, user, devices, runtime="runc", *options):
        """Start a container that opens all devices that it sees."""
        self.containers.append(user)
        words = ["run", "--detach", "--network=none", *LIMITS, *RUNTIMES[runtime], "--env", f"{MARK}={user}", *options]
        words += [word for device in devices for word in ("--device", device)]
        self.podman(*words, "--name", user, "--rootfs", str(self.root), "/bin/sh", "-c", HOLD, runtime=runtime)

    def pid(self, user, which="Pid"):
        """Return a process of a container."""
        return int(self.podman("inspect", user, "--format", "{{.State." + which + "}}"))

    def remove(self, user):
        """Remove a container, as often as it takes: podman has to learn that a killed one does not run."""
        until(lambda: self.podman("rm", "--force", "--ignore", "--time=0", user, fails=True) is not None, f"rm {user}")
        self.containers.remove(user)

    # -- kubelet and device plugin -----------------------------------------------------------------

    def _start_kubelet(self):
        from kubelet import Kubelet  # tests/contract
        from personality import NEW

        sockets = {"registry_dir": str(self.directory / "r"), "pod_resources": str(self.directory / "l/k.sock")}
        self.kubelet = Kubelet(str(self.directory / "p"), NEW._replace(wipe_after=0.02), **sockets, dial=1.0, loop=0.1)
        for name in ("p", "r", "l", "run"):
            (self.directory / name).mkdir()
        settings = {
            "version": 1,
            "plugin_dir": str(self.directory / "p"),
            **sockets,
            "spec_dirs": ["/etc/cdi", SPECS],
            "inventory": INVENTORY,
            "state_dir": STATE,
            "run_dir": str(self.directory / "run"),
            "occupied": "ignore",
            "grace": 1,
            "resources": {RESOURCE: {"health": {"hold_down": 0, "linger": 1}}},
        }
        (self.directory / "plugin.json").write_text(json.dumps(settings))
        self.kubelet.start()

    def start_plugin(self):
        """Start the device plugin, as its service does."""
        command = [f"{PREFIX}/bin/fleet-cdi", "plugin", "run", "--config", str(self.directory / "plugin.json")]
        with open(self.directory / "plugin.log", "ab") as log:
            self.plugin = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill_plugin(self):
        """SIGKILL."""
        self.plugin.kill()
        self.plugin.wait()

    def close(self):
        """Leave nothing."""
        for user in [*self.containers]:
            self.remove(user)
        for process in [*self.processes]:
            self.end(process, "")
        if self.plugin:
            self.kill_plugin()
        if self.kubelet:
            self.kubelet.stop()
        _libc.umount2(BOOT_ID.encode(), 2)
        _libc.umount2(DEV.encode(), 2)
        with suppress(OSError):
            os.rmdir(DEV)


def _mount(source, target, kind=None, bind=False):
    flags = 4096 if bind else 0  # MS_BIND
    if _libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")
