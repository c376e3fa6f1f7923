# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host behind a real sshd, without a network or a container: Debian's sshd, sudo, su and doas in a directory.

ssh reaches it by ProxyCommand, which runs `sshd -i` in the directory. It shares processes, devices and the kernel with
this machine. Each sshd has a mount namespace of its own, so nothing stays mounted.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import engines

BUILT = Path(__file__).resolve().parents[2] / "build/ssh-host"
SUITE = "trixie"
PACKAGES = "python3,openssh-server,sudo,opendoas"
# Who comes in, and how they become root.
USERS = {
    "free": "sudo without a password, and doas without one",
    "asks": "sudo and doas with a password",
    "terminal": "sudo without a password, on a terminal alone",
}
PASSWORD = "secret"
SUDOERS = "free ALL=(ALL) NOPASSWD: ALL\nasks ALL=(ALL) ALL\nDefaults lecture=always\n"
SUDOERS += "terminal ALL=(ALL) NOPASSWD: ALL\nDefaults:terminal requiretty\n"
DOAS = "permit nopass free\npermit asks\n"
# sshd prints the banner before it asks who comes, and the message of the day on a terminal.
BANNER, MOTD = "Authorized use only. {}\n", "Welcome to {host}!\n"
SSHD = """\
HostKey /etc/ssh/host_key
PermitRootLogin yes
PrintMotd yes
Banner /etc/ssh/banner
UsePAM no
StrictModes no
Subsystem sftp internal-sftp
"""
ENTER = """
root=$1; shift
mount --bind "$root" "$root"
for name in proc sys dev; do mount --rbind "/$name" "$root/$name"; done
mkdir -p "$root/run/sshd"
exec chroot "$root" /usr/sbin/sshd -i -e -f /etc/ssh/fleet
"""
# The shell tells at the end of a connection what its processes took: sshd, sudo and all that they started.
PROXY = """\
#!/bin/sh
trap '' HUP
unshare --mount --propagation=private sh -euc '{enter}' sh {root} 2>/dev/null
times >{times}/$$  # in a pipe it would tell of a subshell
"""


class SshHost:
    """The host in a directory. `more` are lines for its sshd."""

    def __init__(self, directory: Path, more: str = "") -> None:
        self.root, self.key = directory / "root", directory / "key"
        shutil.copytree(bootstrapped(), self.root, symlinks=True, ignore=shutil.ignore_patterns("dev", "proc", "sys"))
        for name in ("dev", "proc", "sys"):
            (self.root / name).mkdir(exist_ok=True)
        for path in (self.key, self.root / "etc/ssh/host_key"):
            path.unlink(missing_ok=True)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        self.write("etc/ssh/fleet", SSHD + more)
        self.write("etc/ssh/banner", BANNER)
        self.write("etc/motd", MOTD)
        self.write("etc/sudoers.d/fleet", SUDOERS, 0o440)
        self.write("etc/doas.conf", DOAS, 0o400)
        passwords = [f"{name}:{PASSWORD}" for name in ("root", *USERS)]
        for name in USERS:
            self.run("useradd", "--create-home", "--shell", "/bin/bash", name)
        self.run("chpasswd", stdin="\n".join(passwords))
        for name in ("root", *USERS):
            home = self.root / ("root" if name == "root" else f"home/{name}")
            (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
            (home / ".ssh/authorized_keys").write_text(self.key.with_suffix(".pub").read_text())
            self.run("chown", "-R", f"{name}:", f"/{home.relative_to(self.root)}/.ssh")
        self.proxy = directory / "proxy"
        self.times = directory / "times"
        self.times.mkdir()
        self.proxy.write_text(PROXY.format(enter=ENTER, root=self.root, times=self.times))
        self.proxy.chmod(0o755)

    def write(self, path: str, content: str, mode: int = 0o644) -> None:
        """Write a file of the host."""
        (self.root / path).write_text(content)
        (self.root / path).chmod(mode)

    def spent(self) -> float:
        """Return the processor time of all connections that have ended, in seconds."""
        found = 0.0
        for path in self.times.iterdir():
            for word in path.read_text(encoding="ascii").split():  # "0m1.25s", of the shell and of the others (POSIX)
                minutes, seconds = word[:-1].split("m")
                found += 60 * int(minutes) + float(seconds)
        return found

    def run(self, *command: str, stdin: str = "") -> str:
        """Run a command as root on the host."""
        done = subprocess.run(
            ["chroot", str(self.root), *command], input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"{command}: {done.stderr}")
        return done.stdout

    def variables(self, user: str, method: str = "sudo", **more: Any) -> dict[str, Any]:
        """Return the variables with which Ansible comes in as `user` and becomes root."""
        return {
            "ansible_connection": "ssh",
            "ansible_host": "fleet-test-host",
            "ansible_user": user,
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": f"-o ProxyCommand={self.proxy} -o StrictHostKeyChecking=no "
            "-o UserKnownHostsFile=/dev/null -o ControlPersist=5s -F none",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_become": user != "root",
            "ansible_become_method": method,
            "ansible_become_password": PASSWORD,
            **more,
        }


def bootstrapped() -> Path:
    """Return the directory of the packages, made unless this recipe has been made before. Raises OSError."""
    made = ["--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", f"--include={PACKAGES}"]
    made += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    made += ['--aptopt=Acquire::Check-Valid-Until "false"', SUITE]
    place = BUILT / hashlib.sha256(json.dumps(made).encode()).hexdigest()[:12]
    if not place.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        part = place.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            # In a mount namespace of its own: nothing of the host is mounted in what is removed if it fails.
            ["unshare", "--mount", "--propagation=private", "mmdebstrap", *made, str(part), *engines.mirror()],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(part, ignore_errors=True)
            raise OSError(f"mmdebstrap made no host: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        part.rename(place)
    return place
