# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman of a newer Debian on this machine: with its devices, users, state and containers, as after an upgrade.

Its root directory is that of a container image (engines.py). A process that sleeps keeps a mount namespace in which
this directory is the root, with directories of this machine in it; nsenter starts podman there.

podman of both releases gets an empty storage, which they share: a newer one changes it so that the older one does not
start any more. So this needs a mount namespace of its own (apart.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import apart
import engines
import pytest

# Of this machine, or of the mount namespace of the test.
DIRECTORIES = (
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    "root",
    "var/tmp",
    "var/lib/containers",
    "var/lib/cdi",
    "etc/cdi",
    "opt",
)
STORAGE = ("/var/lib/containers", "/run/containers", "/run/libpod", "/dev/shm")  # the last one has podman's locks
USERS = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/subuid", "/etc/subgid")
# crun refuses the hybrid cgroups of some machines. In one more mount namespace, it gets others.
ONLY_CGROUP2 = 'umount -lR /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec "$@"'
START = """
set -e
for one in {directories}; do mkdir -p "$0/$one"; mount --rbind "/$one" "$0/$one"; done
mkdir -p "$0/old"
cd "$0"
pivot_root . old
umount -l /old
echo ready
exec sleep infinity
"""
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")


class NewerPodman:
    """A running mount namespace with a newer podman."""

    def __init__(self, directory: Path, suite: str = "trixie") -> None:
        if suite not in engines.SUITES:
            pytest.skip(f"FLEET_CDI_SUITES leaves {suite} out")
        if not os.path.ismount(apart.DIRECTORIES[0]):
            raise RuntimeError("this is the mount namespace of the machine; expected one of the test (apart.py)")
        self.name = f"fleet-cdi-{suite}-{os.getpid()}"
        tag = engines.image(suite, directory)
        subprocess.run(["podman", "create", "--name", self.name, tag, "true"], check=True, capture_output=True)
        root = subprocess.run(["podman", "mount", self.name], check=True, capture_output=True, text=True).stdout.strip()
        python = {os.path.realpath(one) for one in (sys.prefix, sys.base_prefix)}  # the hooks of a release run by it
        python |= {os.path.abspath(sys.prefix)}
        directories = [
            *DIRECTORIES,
            *sorted(one.lstrip("/") for one in python if not one.startswith(("/usr", "/root"))),
        ]
        script = START.format(directories=" ".join(directories))
        self.root = directory / "root"
        self.root.mkdir()
        subprocess.run(["mount", "--bind", root, str(self.root)], check=True)
        for path in STORAGE:
            os.makedirs(path, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
        words = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, str(self.root)]
        self.holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout and self.holder.stdout.readline() == "ready\n", "the mount namespace was not made"

    def learn_users(self) -> None:
        """Have the users of this machine there, too."""
        for path in USERS:
            write = self.words("sh", "-c", f"cat > {path}")
            subprocess.run(write, input=Path(path).read_bytes(), check=True)

    def words(self, *command: str, cgroup2: bool = False) -> list[str]:
        """The words that run a command there."""
        if cgroup2:
            command = ("unshare", "--mount", "sh", "-c", ONLY_CGROUP2, "sh", *command)
        return ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", f"--root=/proc/{self.holder.pid}/root", *command]

    def attempt(self, *command: str, cgroup2: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*command, cgroup2=cgroup2), capture_output=True, text=True, check=False, cwd="/"
        )

    def run(self, *command: str) -> str:
        done = self.attempt(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()
        for path in (*reversed(STORAGE), str(self.root)):
            subprocess.run(["umount", "-l", path], check=True)
        for _try in range(20):  # the kernel ends the mount namespace a moment later
            if subprocess.run(["podman", "rm", "--force", self.name], check=False, capture_output=True).returncode == 0:
                return
            time.sleep(0.2)
