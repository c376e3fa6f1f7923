# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of its own on this machine: namespaces in which /run, /dev, /etc, /opt, /var/lib and /var/log are private.

What runs in it, containers too, is in one PID namespace and ends with it. Everything lies at its usual path there, and
nothing of it is seen or left on the machine but cgroups, which `close` removes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

# $1: the node's directory, $2: its own programs. /var/lib is on the disk: the store of grants syncs for real, and
# overlays don't lie on overlays. /etc, /opt and /usr/local are the machine's (but for the node's own programs, where it
# has some), what is written there is not. Directories that tests use are made anew: those of the machine would bring
# its specs, and would be empty if somebody removed them there. The shell ignores SIGCHLD, so it leaves no zombies.
SETUP = """
set -e
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
over() {  # $1: what is below, $2: where it is to be seen, $3: what is written goes here
  mount -t tmpfs -o mode=755 tmpfs "$3"
  mkdir "$3/upper" "$3/work"
  mount -t overlay -o "lowerdir=$1,upperdir=$3/upper,workdir=$3/work" overlay "$2"
}
over /etc /etc "$1/etc"
over /opt /opt "$1/opt"
over /usr/local /usr/local "$1/local"
[ -z "$2" ] || over "$2" /usr/local/bin "$1/bin"
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
for node in null zero full random urandom tty kmsg; do cp -a "/dev/$node" "$1/dev/"; done
mkdir "$1/dev/pts" "$1/dev/shm" "$1/dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
ln -s /proc/self/fd "$1/dev/fd"
mount --move "$1/dev" /dev
mount -t tmpfs -o mode=755 tmpfs /run
rm -rf /etc/cdi /etc/containerd /etc/fleet-cdi /etc/kubernetes /opt/cdi
mkdir -p /var/lib/kubelet /run/cdi /etc/cdi /etc/containerd /etc/fleet-cdi /etc/kubernetes /opt/cdi
mount --make-rshared /
busybox ip link set lo up
echo ready
trap '' CHLD
exec sleep infinity
"""
UNSHARE = [
    "unshare",
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
    "--propagation=private",
]


def wait(what, condition, seconds=60, every=0.05):
    """Wait until the function returns something true, and return it; `what` says what did not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(every)
    return found


class Program:
    """One that runs in a node. `pid` is its number on this machine."""

    def __init__(self, process, log):
        self.process, self.log = process, log
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")  # nsenter forks into the PID namespace

        def child():
            assert process.poll() is None, f"{process.args} ended at once: {self.tail()}"
            return children.read_text().split()

        self.pid = int(wait("a process in the node", child)[0])

    def tail(self, size=3000):
        return self.log.read_text(errors="replace")[-size:]

    def send(self, number):
        os.kill(self.pid, number)

    def stop(self, number=signal.SIGTERM, seconds=30):
        """End it, if it runs; returns its exit status (negative: the signal that ended it)."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            self.process.send_signal(signal.SIGCONT)  # nsenter stops when what it runs is stopped
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGKILL)
                self.process.wait(seconds)
                raise AssertionError(f"{self.process.args} did not end in {seconds} s: {self.tail()}") from None
        return self.process.returncode


class Node:
    """The namespaces, and how to run something in them. `path` leads to what processes there have at a path."""

    def __init__(self, directory, programs=""):
        """`directory`: where its files are; `programs`: what is in its /usr/local/bin."""
        self.directory = directory
        self.name = f"fleet-cdi-e2e-{uuid.uuid4().hex[:8]}"  # of its cgroups
        self.environment = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        for name in ("lib", "log", "etc", "opt", "local", "bin", "dev"):
            (directory / name).mkdir(parents=True)
        self.holder = subprocess.Popen(
            [*UNSHARE, "sh", "-c", SETUP, "sh", str(directory), str(programs)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = self.holder.stdout.readline()
        assert said == "ready\n", f"no node: {said}{self.holder.stdout.read()}"
        inner = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()[0]
        self.enter = ["nsenter", "--target", inner, "--mount", "--net", "--pid", "--"]
        self.root = Path(f"/proc/{inner}/root")
        for hierarchy in hierarchies():
            (hierarchy / self.name).mkdir()

    def path(self, path):
        return self.root / str(path).lstrip("/")

    def start(self, name, command, **environment):
        """Start a daemon; its output goes to <name>.log."""
        log = self.directory / f"{name}.log"
        with log.open("ab") as output:
            return Program(
                subprocess.Popen(
                    [*self.enter, *map(str, command)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**self.environment, **environment},
                ),
                log,
            )

    def attempt(self, *command, **environment):
        return subprocess.run(
            [*self.enter, *map(str, command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**self.environment, **environment},
        )

    def run(self, *command, **environment):
        done = self.attempt(*command, **environment)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def close(self):
        """End every process of the node, then remove its cgroups and files."""
        self.holder.kill()  # takes the first process of the PID namespace along, and that all others
        self.holder.wait()
        self.holder.stdout.close()
        remove_cgroups(self.name)
        shutil.rmtree(self.directory)


def hierarchies():
    """Where cgroups are made: one directory with cgroup v2, one for each controller with v1, both if it is hybrid."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        rows = [line.split() for line in mounts]
    return [Path(row[1]) for row in rows if row[2] in ("cgroup", "cgroup2") and "rw" in row[3].split(",")]


def remove_cgroups(name):
    """Remove a tree of cgroups, whose processes are ending, from each hierarchy."""
    for hierarchy in hierarchies():
        wait(f"the cgroups in {hierarchy} empty", lambda where=hierarchy / name: _removed(where), 20)


def _removed(directory):
    """Whether the tree of cgroups is gone; one whose last process just ended may take a moment."""
    for path, _names, _files in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)
    return not directory.exists()
