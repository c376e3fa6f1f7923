# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module spec writes, at the version that it chooses, is read by podman, dockerd and containerd (by its CRI).

podman of this machine; docker, podman and containerd of Debian trixie in a container host: an image that mmdebstrap
makes from the machine's own mirror, once per recipe. FLEET_CDI_SUITES="trixie sid" tries sid's too, which takes longer.
Each test shows as well that the runtime refuses the same content where nothing was left out.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="runs containers with devices: needs root")
TOOL = Path(__file__).with_name("cri.py")

KIND = "test.fleet.cdi/instrument"
NAME = f"{KIND}=front"
# A real node that no container has by itself; machines without FUSE have at least the other.
NODE = next(path for path in ("/dev/fuse", "/dev/kmsg") if os.path.exists(path))
# Something of every version: 0.5.0 hostPath, 0.6.0 annotations, 0.7.0 additionalGids, 1.1.0 netDevices.
CONTENT = {
    "annotations": {"example.com/calibrated": "yes"},
    "devices": [
        {
            "name": "front",
            "containerEdits": {
                "env": ["INSTRUMENT=/dev/instrument"],
                "deviceNodes": [{"path": "/dev/instrument", "hostPath": NODE}],
                "additionalGids": [4242],
                "netDevices": [{"hostInterfaceName": "instrument0", "name": "eth7"}],
            },
        }
    ],
}
NEWEST = {"podman": "6.0"}  # reads all of it
LOOK = "busybox find /dev -type c -o -type b | busybox xargs busybox stat -c '%n %t:%T'; busybox env; busybox id -G"


def number_of(path):
    number = os.stat(path).st_rdev
    return f"{os.major(number):x}:{os.minor(number):x}"


def assert_only_its_device(without, seen, groups):
    """`without` and `seen`: the lines that LOOK printed without and with the device."""
    nodes = {line for line in seen - without if line.startswith("/dev")}
    assert nodes == {f"/dev/instrument {number_of(NODE)}"}
    assert "INSTRUMENT=/dev/instrument" in seen - without
    assert any(groups in line.split() for line in seen) == bool(groups)


def busybox_root(path):
    """A root directory for containers with a shell in it."""
    (path / "bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), path / "bin/busybox")
    (path / "bin/sh").symlink_to("busybox")
    return path


@pytest.fixture
def podman(container):
    """Run LOOK in a container of this machine's podman, with more options."""
    return functools.partial(container, LOOK)


@pytest.fixture
def spec(ansible_module, tmp_path):
    """Run the module on this machine; whatever it wrote is taken back afterwards."""
    paths = {"directory": "/var/run/cdi", "state_dir": str(tmp_path / "state"), "inventory": ""}

    def run(**options):
        return ansible_module("fleet.cdi.spec", kind=KIND, **paths, **options)

    yield run
    run(state="absent")


@pytest.mark.counterpart("podman", "runc", "busybox-static")
@NEEDS_ROOT
class TestThisMachine:
    """podman as it is installed here; /var/run/cdi is one of its two directories, and gone at reboot."""

    def test_podman_reads_what_is_written_for_it_and_refuses_the_whole(self, podman, spec):
        written = spec(content=CONTENT)
        version = subprocess.run(["podman", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
        (engine,) = [engine for engine in written["runtimes"] if engine["name"] == "podman"]
        assert (engine["version"], engine["path"]) == (version, "/usr/bin/podman")
        if engine["reads"] == "1.1.0":
            pytest.skip(f"podman {version} reads everything that there is")
        assert written["cdi_version"] <= engine["reads"]
        document = json.loads(Path(written["path"]).read_text())
        assert ("annotations" in document) == (engine["reads"] >= "0.6.0")
        assert "netDevices" not in document["devices"][0]["containerEdits"]

        without, seen = podman(), podman("--device", NAME)
        assert seen.returncode == 0, seen.stderr
        groups = "4242" if engine["reads"] >= "0.7.0" else ""
        assert_only_its_device(set(without.stdout.splitlines()), set(seen.stdout.splitlines()), groups)
        assert spec(content=CONTENT)["changed"] is False

        assert spec(content=CONTENT, runtimes=NEWEST)["cdi_version"] == "1.1.0"
        refused = podman("--device", NAME)
        assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stderr

    def test_annotations_alone_hide_the_device_from_an_old_podman(self, podman, spec):
        content = {**CONTENT, "devices": [{"name": "front", "containerEdits": {"env": ["INSTRUMENT=1"]}}]}
        written = spec(content=content)
        (engine,) = [engine for engine in written["runtimes"] if engine["name"] == "podman"]
        if engine["reads"] >= "0.6.0":
            pytest.skip(f"podman {engine['version']} reads annotations")
        assert written["cdi_version"] == "0.3.0"
        assert podman("--device", NAME).returncode == 0
        spec(content=content, runtimes=NEWEST)
        refused = podman("--device", NAME)
        assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stderr

    def test_fail_names_field_runtime_and_version(self, ansible_module, tmp_path):
        options = {"directory": str(tmp_path / "cdi"), "state_dir": str(tmp_path / "state"), "inventory": ""}
        refused = ansible_module(
            "fleet.cdi.spec",
            failed=True,
            kind=KIND,
            content=CONTENT,
            on_unsupported="fail",
            runtimes={"podman": "4.9.3", "docker": "26.1.5"},
            **options,
        )
        for text in (
            "/devices/0/containerEdits/additionalGids: new in CDI 0.7.0, and so nothing for podman 4.9.3",
            "/devices/0/containerEdits/netDevices: new in CDI 1.1.0, and so nothing for podman 4.9.3",
        ):
            assert text in refused["msg"]
        assert "annotations" not in refused["msg"]
        assert not (tmp_path / "cdi").exists() and not (tmp_path / "state").exists()


# The container host. Documentation is left out, and dpkg need not wait for the disk: it makes a throw-away image. No
# systemd: that of sid runs on cgroup v2 only. A mirror may be a snapshot, whose Release file is old.
PACKAGES = [
    "python3",
    "busybox-static",
    "docker.io",
    "docker-cli",
    "containerd",
    "python3-grpcio",
    "podman",
    "runc",
    "crun",
]
RECIPE = ["--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", f"--include={','.join(PACKAGES)}"]
RECIPE += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
RECIPE += ['--aptopt=Acquire::Check-Valid-Until "false"']
REPOSITORY = "localhost/fleet-cdi-runtimes"

# What an administrator sets on such a host: CDI is off in docker 26.1 and containerd 1.7 unless asked for. Without the
# right to raise limits the sandbox can't be protected from the OOM killer; overlays don't lie on overlays.
DOCKER = '{"features": {"cdi": true}}'
CONTAINERD_1 = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
enable_cdi = true
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
# Suite -> containerd's configuration and what each runtime is to read; of sid that is not known for long.
SUITES = {
    "trixie": (CONTAINERD_1, {"docker": "0.7.0", "podman": "0.8.0", "containerd": "0.7.0"}),
    "sid": (CONTAINERD_2, {}),
}


def mirror():
    """The machine's own Debian mirror; none leaves the choice to mmdebstrap."""
    if os.environ.get("FLEET_CDI_DEBIAN_MIRROR"):
        return [os.environ["FLEET_CDI_DEBIAN_MIRROR"]]
    asked = ["apt-get", "indextargets", "--format", "$(SITE) $(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    found = [line.split()[-1] for line in done.stdout.splitlines() if line.split()]
    return [uri for uri in found if "security" not in uri][:1]


@pytest.fixture(scope="module", params=os.environ.get("FLEET_CDI_SUITES", "trixie").split())
def suite(request):
    return request.param


@pytest.fixture(scope="module")
def image(suite, tmp_path_factory):
    """The image of the container host, made unless this recipe has been made before."""
    tag = f"{REPOSITORY}:{suite}-{hashlib.sha256(json.dumps(RECIPE).encode()).hexdigest()[:12]}"
    if subprocess.run(["podman", "image", "exists", tag], check=False).returncode:
        archive = str(tmp_path_factory.mktemp("image") / "root.tar")
        make = ["mmdebstrap", *RECIPE, suite, archive, *mirror()]
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

    def __init__(self, name, shared):
        self.name = name
        self.shared = shared
        self.python = shared / "python"  # an interpreter for Ansible that is the host's
        self.python.write_text(f'#!/bin/sh\nexec podman --log-level=error exec -i {name} /usr/bin/python3 "$@"\n')
        self.python.chmod(0o755)

    def attempt(self, *command, stdin=None):
        start = ["podman", "--log-level=error", "exec", "-i", self.name, *command]
        return subprocess.run(start, input=stdin, capture_output=True, text=True, check=False)

    def run(self, *command, stdin=None):
        done = self.attempt(*command, stdin=stdin)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def wait(self, *command, seconds=60):
        """Wait until the command succeeds."""
        deadline = time.monotonic() + seconds
        while (done := self.attempt(*command)).returncode:
            assert time.monotonic() < deadline, f"{command}: {done.stdout}{done.stderr}"
            time.sleep(0.5)


@pytest.fixture(scope="module")
def host(suite, image, tmp_path_factory):
    """A host with all three runtimes set up, and the same small image in docker and containerd."""
    shared = tmp_path_factory.mktemp("shared")
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
        done = subprocess.run([*start, image, "sleep", "infinity"], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"podman starts no privileged container host here: {done.stderr.strip().splitlines()[-1]}")
        inside = Host(name, shared)
        inside.run("mkdir", "-p", "/etc/docker", "/etc/containerd")
        inside.run("cp", "/dev/stdin", "/etc/docker/daemon.json", stdin=DOCKER)
        inside.run("cp", "/dev/stdin", "/etc/containerd/config.toml", stdin=SUITES[suite][0])
        for daemon, client in (("containerd", ["ctr", "version"]), ("dockerd", ["docker", "info"])):
            subprocess.run(["podman", "--log-level=error", "exec", "--detach", name, daemon], check=True)
            inside.wait(*client)
        change = 'CMD ["/bin/sh", "-c", "busybox sleep 1000"]'  # a CRI sandbox runs what its image says
        inside.run("sh", "-c", f"tar -C {root} -c . | docker import --change '{change}' - tool:1")
        inside.run("sh", "-c", "docker save tool:1 | ctr -n k8s.io images import --no-unpack -")
        yield inside
    finally:
        subprocess.run(["podman", "rm", "--force", "--volumes", "--time=0", name], capture_output=True, check=False)


def with_devices(names):
    return [word for name in names for word in ("--device", name)]


# How each runtime runs LOOK in a container; `{}` is the directory that test and host share.
RUNTIMES = {
    "docker": lambda *names: [
        *["docker", "run", "--rm", "--network=none", *with_devices(names), "tool:1", "/bin/sh", "-c", LOOK]
    ],
    "podman": lambda *names: [
        *[
            "podman",
            "--storage-driver=vfs",
            "--runtime=crun",
            "run",
            "--rm",
            "--network=none",
            "--cgroups=disabled",
            *with_devices(names),
        ],
        *["--rootfs", "{}/root", "/bin/sh", "-c", LOOK],
    ],
    "containerd": lambda *names: ["python3", "{}/cri.py", "docker.io/library/tool:1", LOOK, *names],
}


@pytest.fixture(scope="module")
def spec_there(host, ansible_module):
    """Run the module on the container host: by Ansible's local connection, with the host's interpreter."""
    variables = {"ansible_python_interpreter": str(host.python), "ansible_remote_tmp": str(host.shared / "tmp")}

    def run(**options):
        return ansible_module("fleet.cdi.spec", variables=variables, kind=KIND, **options)

    return run


@pytest.fixture(scope="module", params=["fitted", "whole", "absent"])
def state(request, spec_there):
    """The spec on the host: fitted to its runtimes, as if for newer ones, or none."""
    options = {
        "fitted": {"content": CONTENT},
        "whole": {"content": CONTENT, "runtimes": NEWEST},
        "absent": {"state": "absent"},
    }
    spec_there(**options[request.param])
    return request.param


@pytest.mark.counterpart("podman", "runc", "mmdebstrap", "busybox-static")
@NEEDS_ROOT
class TestContainerHost:
    def test_the_spec_lacks_only_what_is_beyond_its_readers(self, suite, host, spec_there):
        written = spec_there(content=CONTENT)
        found = {engine["name"]: engine["reads"] for engine in written["runtimes"]}
        assert found == (SUITES[suite][1] or found) and set(found) == set(RUNTIMES)
        assert "0.7.0" <= min(found.values()) <= max(found.values()) < "1.1.0", (
            "there is nothing to show: change CONTENT"
        )
        for engine in written["runtimes"]:
            assert engine["version"] in host.run(engine["path"], "--version")
        assert written["cdi_version"] == "0.7.0"
        document = json.loads(host.run("cat", written["path"]))
        assert document["annotations"] == CONTENT["annotations"]
        assert set(document["devices"][0]["containerEdits"]) == {"env", "deviceNodes", "additionalGids"}

    @pytest.mark.parametrize("runtime", RUNTIMES)
    def test_only_of_a_spec_fitted_to_it_a_runtime_gives_a_container_the_device(self, host, state, runtime):
        def words(*names):
            return [word.replace("{}", str(host.shared)) for word in RUNTIMES[runtime](*names)]

        if state == "fitted":
            without, seen = host.run(*words()), host.run(*words(NAME))
            # docker, 28.5 too, reads additionalGids, and then sets groups of its own.
            groups = "" if runtime == "docker" else "4242"
            assert_only_its_device(set(without.splitlines()), set(seen.splitlines()), groups)
        else:
            refused = host.attempt(*words(NAME))
            assert refused.returncode != 0 and "unresolvable CDI devices" in refused.stdout + refused.stderr
