# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman starts containers whose spec names cdi-hook, of an installed release: links, libraries and modes inside.

With runc and with crun, which differ in the state that they give to a hook and in when they make device nodes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from container_output import Output  # tests/harness

KIND = "test.fleet.cdi/card"
NODE = next(path for path in ("/dev/fuse", "/dev/kmsg") if os.path.exists(path))
# A program of this machine that needs a library which a spec can bring: Debian's ls needs libselinux.
PROGRAM, BROUGHT = "/bin/ls", ("libselinux", "libpcre2")
PLACE = "/opt/vendor/lib"
RUNTIMES = {"runc": [], "crun": ["--cgroups=disabled"]}

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "crun", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="writes to /var/run/cdi and runs containers: needs root"),
]


def libraries():
    """The libraries that PROGRAM needs: name -> path."""
    done = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=False)
    return dict(re.findall(r"(\S+\.so\S*) (?:=> (/\S+) )?\(", done.stdout.replace("\t", " ")))


@pytest.fixture(scope="module")
def installed(ansible_module, tmp_path_factory):
    """The prefix of a release on this machine."""
    directory = tmp_path_factory.mktemp("opt")
    directory.chmod(0o755)
    prefix = str(directory / "cdi")
    ansible_module("fleet.cdi.host_release", prefix=prefix)
    yield prefix
    ansible_module("fleet.cdi.host_release", prefix=prefix, state="absent", on_needed="drop")
    assert not os.path.exists(prefix)


@pytest.fixture
def spec():
    """Write a spec; it is gone afterwards."""
    path = Path("/var/run/cdi/test.fleet.cdi-card.json")

    def write(content):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": KIND, **content}))

    yield write
    path.unlink(missing_ok=True)


@pytest.fixture
def image(tmp_path):
    """An image with a shell, and with PROGRAM but not all of its libraries."""
    root = tmp_path / "image"
    (root / "bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    (root / "bin/sh").symlink_to("busybox")
    shutil.copy(PROGRAM, root / "bin/program")
    for name, path in libraries().items():
        source = path or name
        if os.path.exists(source) and not name.startswith(BROUGHT):
            (root / source.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / source.lstrip("/"))
    return root


@pytest.fixture(params=RUNTIMES)
def podman(request, image):
    """Run a shell command in a container: podman(command, *options) -> done."""
    said = Output(image.parent / "said")

    def run(command, *options):
        limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", *RUNTIMES[request.param]]
        start = ["podman", "--runtime", request.param, "run", "--rm", "--network=none", *limits]
        words = [*start, said.volume, *options, "--rootfs", str(image), "/bin/sh", "-c", said.of(command)]
        return said.added(subprocess.run(words, capture_output=True, text=True, check=False))

    yield run
    assert not (image / "etc/ld.so.conf.d/00-fleet-cdi.conf").is_symlink()


def content(prefix, *words, mounts=()):
    hook = {
        "hookName": "createContainer",
        "path": f"{prefix}/bin/cdi-hook",
        "args": ["cdi-hook", "createContainer", *words],
    }
    node = {"path": "/dev/test/card0", "hostPath": NODE}
    return {
        "devices": [{"name": "one", "containerEdits": {"deviceNodes": [node], "mounts": list(mounts), "hooks": [hook]}}]
    }


def test_what_a_spec_asks_for_is_there_before_the_container_starts(podman, spec, installed, image):
    found = {name: path for name, path in libraries().items() if name.startswith(BROUGHT)}
    if not found:
        pytest.skip(f"{PROGRAM} of this machine needs none of {', '.join(BROUGHT)}")
    mounts = [
        {
            "hostPath": os.path.realpath(path),
            "containerPath": f"{PLACE}/{os.path.basename(os.path.realpath(path))}",
            "options": ["ro", "bind"],
        }
        for path in found.values()
    ]
    words = ["--link=card0::/dev/test/first", "--device-link=../card0::/dev/test/by-path/one", f"--folder={PLACE}"]
    words += [
        "--device-link=../card1::/dev/test/by-path/two",
        "--chmod=711:/dev/test",
        "--link=libselinux.so.1::/usr/lib/libse.so",
    ]
    spec(content(installed, *words, mounts=mounts))
    without = podman("/bin/program /")
    assert without.returncode == 127 and "error while loading shared libraries" in without.stderr
    links = ("/dev/test/first", "/dev/test/by-path/one", "/dev/test/by-path/two", "/usr/lib/libse.so")
    look = f"/bin/program / && for link in {' '.join(links)}; do busybox readlink $link; done"
    look += "; busybox stat -c %a /dev/test"
    seen = podman(look, "--device", f"{KIND}=one")
    assert seen.returncode == 0, seen.stderr
    lines = seen.stdout.split()
    assert {"bin", "dev", "opt", "etc"} <= set(lines)
    assert lines[-4:] == ["card0", "../card0", "libselinux.so.1", "711"]
    assert (image / "etc/ld.so.cache").exists()
    again = podman("/bin/program / > /dev/null && busybox stat -c %a /dev/test", "--device", f"{KIND}=one")
    assert again.stdout.split() == ["711"], again.stderr


def test_an_image_that_includes_hundreds_of_missing_files_starts(podman, spec, installed, image):
    """Under crun the hook has the container's limits: 1024 descriptors."""
    (image / "etc").mkdir(exist_ok=True)
    (image / "usr/lib/more").mkdir(parents=True, exist_ok=True)
    lines = [f"include /usr/lib/more/no/{number}.conf\n" for number in range(900)]
    (image / "etc/ld.so.conf").write_text("".join(lines))
    spec(content(installed, "--folder", PLACE))
    done = podman("echo started", "--ulimit=nofile=1024:1024", f"--device={KIND}=one")
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr


def test_a_read_only_container_has_it_too(podman, spec, installed):
    spec(content(installed, "--link=target::/etc/link", f"--folder={PLACE}"))
    seen = podman("busybox readlink /etc/link; busybox touch /etc/file", "--read-only", "--device", f"{KIND}=one")
    assert seen.stdout.split() == ["target"] and "Read-only" in seen.stderr


def test_an_image_that_leads_out_changes_nothing_of_the_host(podman, spec, installed, image, tmp_path):
    (tmp_path / "host").mkdir()
    (image / "usr").mkdir(exist_ok=True)
    for name in ("lib", "share"):
        shutil.rmtree(image / "usr" / name, ignore_errors=True)
    (image / "usr/lib").symlink_to(tmp_path / "host")
    (image / "usr/share").symlink_to(f"/proc/1/root{tmp_path}/host")
    spec(content(installed, "--link=target::/usr/lib/link"))
    seen = podman("busybox readlink /usr/lib/link", "--device", f"{KIND}=one")
    assert seen.stdout.split() == ["target"], seen.stderr
    spec(content(installed, "--link=target::/usr/share/link"))
    refused = podman("true", "--device", f"{KIND}=one")
    assert refused.returncode != 0
    assert not os.listdir(tmp_path / "host")


def test_a_hook_that_can_not_do_it_keeps_the_container_from_starting_and_says_why(podman, spec, installed):
    spec(content(installed, "--link=target::/bin"))
    refused = podman("echo started", "--device", f"{KIND}=one")
    assert refused.returncode != 0 and "started" not in refused.stdout


def test_module_spec_wants_the_hook_to_be_there(ansible_module, installed, tmp_path):
    places = {"kind": KIND, "spec_dir": str(tmp_path / "cdi"), "state_dir": str(tmp_path / "state"), "device_list": ""}
    elsewhere = str(tmp_path / "opt")
    words = {"content": content(elsewhere, "--link=a::/b"), "prefix": elsewhere}
    refused = ansible_module("fleet.cdi.spec", failed=True, **places, **words)
    assert "bin/cdi-hook, and the host has nothing: no container with such a device would start" in refused["msg"]
    assert ansible_module("fleet.cdi.spec", check=True, **places, **words)["changed"]  # with a warning
    assert not (tmp_path / "cdi").exists()
    written = ansible_module("fleet.cdi.spec", **places, content=content(installed, "--link=a::/b"), prefix=installed)
    assert written["changed"] and written["names"] == [f"{KIND}=one"]


@pytest.fixture
def role(tmp_path, ansible_environment):
    """Run an entry point of the role on this machine: role(entry, *words) -> (exit status, changes, output)."""
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {
            "cdi_runtime_hooks_prefix": str(tmp_path / "opt/cdi"),
            "cdi_runtime_hooks_state_dir": str(tmp_path / "state"),
            "cdi_runtime_hooks_spec_dir": str(tmp_path / "cdi"),
        },
    }

    def run(entry="main", *words):
        task = {"name": "Role", "import_role": {"name": "fleet.cdi.cdi_runtime_hooks", "tasks_from": entry}}
        (tmp_path / "play.json").write_text(json.dumps([{**play, "tasks": [task]}]))
        start = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", *words]
        done = subprocess.run(
            [*start, "-e", "ansible_python_interpreter=/usr/bin/python3", str(tmp_path / "play.json")],
            capture_output=True,
            text=True,
            check=False,
            env=ansible_environment,
        )
        changed = re.search(r"changed=([0-9]+)", done.stdout)
        return done.returncode, int(changed[1]) if changed else -1, done.stdout + done.stderr

    return run


def test_the_role_brings_the_hook_and_takes_it_back_when_nobody_needs_it(role, tmp_path):
    hook = tmp_path / "opt/cdi/bin/cdi-hook"
    assert role("main", "--check")[:2] == (0, 1) and not hook.exists()
    assert role()[:2] == (0, 1), role()[2]
    assert subprocess.run([hook, "--version"], check=False).returncode == 0
    (tmp_path / "cdi").mkdir()
    named = {"cdiVersion": "0.5.0", "kind": KIND, **content(str(tmp_path / "opt/cdi"), "--link=a::/b")}
    (tmp_path / "cdi/own.json").write_text(json.dumps(named))
    assert role()[:2] == (0, 0)
    status, _changed, said = role("remove")
    assert status != 0 and "/cdi/own.json: names the hook" in said and hook.exists()
    (tmp_path / "cdi/own.json").unlink()
    missing = json.dumps(named).replace("/opt/cdi/bin/cdi-hook", "/nowhere/hook")
    (tmp_path / "cdi/other.json").write_text(missing)
    status, _changed, said = role()
    assert status != 0 and "name hooks that do not run on this host: " in said and "/nowhere/hook" in said
    (tmp_path / "cdi/other.json").unlink()
    noted = {"applied": [None], "kind": "", "by": "test", "prior": None}
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state/manifest.json").write_text(json.dumps({"version": 1, "files": {"/etc/x": noted}}))
    status, changed, said = role("remove")
    assert (status, changed) == (0, 0) and "is still needed by: /etc/x" in " ".join(said.split()) and hook.exists()
    (tmp_path / "state/manifest.json").unlink()
    assert role("remove")[:2] == (0, 1) and not (tmp_path / "opt").exists()
    assert role("remove")[:2] == (0, 0)
