# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container hosts with real container runtimes, for tests: Debian's docker, podman and containerd in a container.

An image is made by mmdebstrap from the machine's own mirror, once per suite and recipe. No systemd: that of sid runs on
cgroup v2 only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

import pytest

TOOL = Path(__file__).resolve().parents[1] / "integration/cri.py"
Done = subprocess.CompletedProcess[str]

SUITES = os.environ.get("FLEET_CDI_SUITES", "trixie").split()
REPOSITORY = "localhost/fleet-cdi-runtimes"
IMAGE = "tool:1"  # what containers are made of, in docker and in containerd

PACKAGES = ["python3", "busybox-static", "docker.io", "docker-cli", "docker-compose", "containerd", "python3-grpcio"]
PACKAGES += ["podman", "runc", "crun", "uidmap", "criu", "libcriu2", "iptables"]
# Of bookworm, docker.io has the client, the compose knows no CDI, and no package has the library of criu.
WITHOUT = {"bookworm": ("docker-cli", "docker-compose", "libcriu2")}

# A real node that no container has by itself; machines without FUSE have at least the other.
NODE = next(path for path in ("/dev/fuse", "/dev/kmsg") if os.path.exists(path))
LOOK = "busybox find /dev -type c -o -type b | busybox xargs busybox stat -c '%n %t:%T'; busybox env; busybox id -G"

# Without the right to raise limits the sandbox can't be protected from the OOM killer; overlays don't lie on overlays.
CONTAINERD_1 = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "docker.io/library/tool:1"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"""
CONTAINERD_2 = """
version = 3
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "docker.io/library/tool:1"
"""
CONTAINERD = {"sid": CONTAINERD_2}  # of other suites CONTAINERD_1


def recipe(suite: str) -> list[str]:
    """The options of mmdebstrap. Documentation is left out, and dpkg need not wait for the disk: it makes a throw-away
    image. A mirror may be a snapshot, whose Release file is old."""
    packages = ",".join(package for package in PACKAGES if package not in WITHOUT.get(suite, ()))
    made = ["--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", f"--include={packages}"]
    made += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    return [*made, '--aptopt=Acquire::Check-Valid-Until "false"']


def mirror() -> list[str]:
    """The machine's own Debian mirror; none leaves the choice to mmdebstrap."""
    if os.environ.get("FLEET_CDI_DEBIAN_MIRROR"):
        return [os.environ["FLEET_CDI_DEBIAN_MIRROR"]]
    asked = ["apt-get", "indextargets", "--format", "$(SITE) $(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    found = [line.split()[-1] for line in done.stdout.splitlines() if line.split()]
    return [uri for uri in found if "security" not in uri][:1]


def image(suite: str, directory: Path) -> str:
    """The image of the container host, made (by way of `directory`) unless this recipe has been made before."""
    made = recipe(suite)
    tag = f"{REPOSITORY}:{suite}-{hashlib.sha256(json.dumps(made).encode()).hexdigest()[:12]}"
    if subprocess.run(["podman", "image", "exists", tag], check=False).returncode:
        archive = str(directory / "root.tar")
        make = ["mmdebstrap", *made, suite, archive, *mirror()]
        done = subprocess.run(make, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mmdebstrap made no image of {suite}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        subprocess.run(["podman", "import", "--quiet", archive, tag], capture_output=True, check=True)
        os.unlink(archive)
    asked = ["podman", "images", "--format", "{{.Repository}}:{{.Tag}}", REPOSITORY]
    there = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    older = [name for name in there if name.startswith(f"{REPOSITORY}:{suite}-") and name != tag]
    if older:
        subprocess.run(["podman", "rmi", *older], capture_output=True, check=False)  # one in use stays
    return tag


class Host:
    """A running container host. `shared` is a directory that lies at the same path in it and on this machine."""

    def __init__(self, name: str, shared: Path) -> None:
        self.name = name
        self.shared = shared
        self.shell = shared / "shell"  # a shell for Ansible that is the host's
        self.shell.write_text(f'#!/bin/sh\nexec podman --log-level=error exec -i {name} /bin/sh "$@"\n')
        self.shell.chmod(0o755)

    @property
    def variables(self) -> dict[str, str]:
        """For Ansible: its local connection runs all commands with this host's shell."""
        return {
            "ansible_shell_executable": str(self.shell),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_remote_tmp": str(self.shared / "tmp"),
        }

    def attempt(self, *command: str, stdin: Optional[str] = None) -> Done:
        start = ["podman", "--log-level=error", "exec", "-i", self.name, *command]
        return subprocess.run(start, input=stdin, capture_output=True, text=True, check=False)

    def run(self, *command: str, stdin: Optional[str] = None) -> str:
        done = self.attempt(*command, stdin=stdin)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def write(self, path: str, content: str) -> None:
        self.run("sh", "-c", f"mkdir -p $(dirname {path}) && cat > {path}", stdin=content)

    def start(self, *command: str) -> None:
        """Leave a daemon running."""
        subprocess.run(["podman", "--log-level=error", "exec", "--detach", self.name, *command], check=True)

    def wait(self, *command: str, seconds: float = 60) -> None:
        """Wait until the command succeeds."""
        deadline = time.monotonic() + seconds
        while (done := self.attempt(*command)).returncode:
            assert time.monotonic() < deadline, f"{command}: {done.stdout}{done.stderr}"
            time.sleep(0.5)

    def container(self, runtime: str, *devices: str) -> Done:
        """Run LOOK in a container of the runtime; what came of it."""
        words = [word.replace("{}", str(self.shared)) for word in RUNTIMES[runtime](*devices)]
        return self.attempt(*words)


@contextlib.contextmanager
def running(tag: str, shared: Path, files: Mapping[str, str]) -> Iterator[Host]:
    """A host of the image `tag`, with these files (path -> content), its daemons running, and one small image in
    both."""
    shared.chmod(0o755)
    root = busybox_root(shared / "root")
    shutil.copy(TOOL, shared / "cri.py")
    info = subprocess.run(["podman", "info", "--format", "json"], capture_output=True, text=True, check=True)
    cgroups = json.loads(info.stdout)["host"]["cgroupVersion"]
    name = f"fleet-cdi-runtimes-{uuid.uuid4().hex[:8]}"
    start = ["podman", "--log-level=error", *([] if cgroups == "v2" else ["--runtime", "runc"]), "run", "--detach"]
    # Lower limits than the defaults, which only CAP_SYS_RESOURCE may set. What is inside of the host needs cgroups.
    start += ["--name", name, "--network=none", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
    start += [
        "--privileged",
        "--cgroupns=host",
        "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw",
        f"--volume={shared}:{shared}",
    ]
    try:
        done = subprocess.run([*start, tag, "sleep", "infinity"], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"podman starts no privileged container host here: {done.stderr.strip().splitlines()[-1]}")
        inside = Host(name, shared)
        for path, content in files.items():
            inside.write(path, content)
        for daemon, client in (("containerd", ["ctr", "version"]), ("dockerd", ["docker", "info"])):
            inside.start(daemon)
            inside.wait(*client)
        change = 'CMD ["/bin/sh", "-c", "busybox sleep 1000"]'  # a CRI sandbox runs what its image says
        inside.run("sh", "-c", f"tar -C {root} -c . | docker import --change '{change}' - {IMAGE}")
        inside.run("sh", "-c", f"docker save {IMAGE} | ctr -n k8s.io images import --no-unpack -")
        yield inside
    finally:
        subprocess.run(["podman", "rm", "--force", "--volumes", "--time=0", name], capture_output=True, check=False)


def busybox_root(path: Path) -> Path:
    """A root directory for containers with a shell in it."""
    (path / "bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", path / "bin/busybox")
    (path / "bin/sh").symlink_to("busybox")
    return path


def number_of(path: str) -> str:
    """The device number of a node, as LOOK prints it."""
    number = os.stat(path).st_rdev
    return f"{os.major(number):x}:{os.minor(number):x}"


def with_devices(names: Sequence[str]) -> list[str]:
    """The options of a command line."""
    return [word for name in names for word in ("--device", name)]


# How each runtime runs LOOK in a container; `{}` is the directory that test and host share.
RUNTIMES: dict[str, Callable[..., list[str]]] = {
    "docker": lambda *names: [
        *["docker", "run", "--rm", "--network=none", *with_devices(names), IMAGE, "/bin/sh", "-c", LOOK]
    ],
    "podman": lambda *names: [
        *["podman", "--storage-driver=vfs", "--runtime=crun", "run", "--rm", "--network=none", "--cgroups=disabled"],
        *[*with_devices(names), "--rootfs", "{}/root", "/bin/sh", "-c", LOOK],
    ],
    "containerd": lambda *names: ["python3", "{}/cri.py", f"docker.io/library/{IMAGE}", LOOK, *names],
}
