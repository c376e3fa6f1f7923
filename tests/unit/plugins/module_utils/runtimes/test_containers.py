# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which containers have which devices, by what engines say of them, and engines that say nothing or nonsense."""

from __future__ import annotations

import http.server
import json
import os
import socket
import socketserver
import subprocess
import threading
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.plugins.module_utils.system import proc
from ansible_collections.fleet.cdi.tests.unit import builders

GPU = ["/dev/nvidia0", "/dev/nvidiactl"]
NAMES = {
    "fleet.cdi/tty=tty13": ("/dev/tty13",),
    "fleet.cdi/tty=tty1": ("/dev/tty1",),
    "nvidia.com/gpu=0": GPU,
    "nvidia.com/gpu=all": GPU,
    "a.com/gpu=0": ("/dev/a0",),
    "a.com/gpu=1": ("/dev/a1",),
    "a.com/gpu=all": ("/dev/a0", "/dev/a1"),
}


def podman(command, nodes=(), state="running"):
    """What podman 4.3 prints of a container."""
    devices = [{"PathOnHost": node, "PathInContainer": node, "CgroupPermissions": ""} for node in nodes]
    config = {"CreateCommand": command} if command is not None else {}
    return {"Name": "web", "Id": "1", "State": {"Status": state}, "Config": config, "HostConfig": {"Devices": devices}}


def docker(requests, nodes=()):
    """What docker 26.1 answers about a container."""
    devices = [{"PathOnHost": node, "PathInContainer": node, "CgroupPermissions": "rwm"} for node in nodes]
    host = {"Devices": devices, "DeviceRequests": requests}
    return {"Name": "/web", "Id": "1", "State": {"Status": "exited"}, "Config": {"Labels": {}}, "HostConfig": host}


@pytest.mark.parametrize(
    ("document", "devices"),
    [
        (podman(["podman", "run", "--device", "fleet.cdi/tty=tty13", "image"]), ["fleet.cdi/tty=tty13"]),
        (podman(["podman", "run", "--device=fleet.cdi/tty=tty13", "image"]), ["fleet.cdi/tty=tty13"]),
        (podman(["podman", "run", "--device=/dev/tty13", "image"], ["/dev/tty13"]), []),
        (podman(["podman", "run", "--device=/dev/tty13:/dev/x:rw", "image"], ["/dev/tty13"]), []),
        (podman(["podman", "run", "--device", "/dev/", "image"], ["/dev/tty13"]), []),
        # [containers] devices = ["fleet.cdi/tty=tty13"] in containers.conf
        (podman(["podman", "run", "image"], ["/dev/tty13"]), ["fleet.cdi/tty=tty13"]),
        (
            podman(["podman", "run", "--device=/dev/tty1", "image"], ["/dev/tty1", "/dev/tty13"]),
            ["fleet.cdi/tty=tty13"],
        ),
        (podman(["podman", "run", "--device=a.com/b=c", "image"], ["/dev/tty13"]), []),  # another name of that node
        (podman(["podman", "run", "--gpus", "all", "image"]), ["nvidia.com/gpu=all"]),
        (podman(["podman", "run", "--gpus=1,0", "image"], ["/dev/nvidia0", "/dev/nvidiactl"]), ["nvidia.com/gpu=0"]),
        (podman(["podman", "run", "--gpus=1", "image"], ["/dev/nvidia0"]), []),
        (podman(["podman", "run", "--device=nvidia.com/gpu=0", "image"], GPU), ["nvidia.com/gpu=0"]),
        (podman(["podman", "run", "--device=/dev/nvidia0", "--device=/dev/tty1", "image"], ["/dev/nvidia0"]), []),
        (podman(["podman", "run", "image"], ["/dev/nvidiactl"]), []),
        (podman(["podman", "run", "image"], GPU), ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]),
        (podman(None, ["/dev/tty1"]), ["fleet.cdi/tty=tty1"]),
        (podman(None, ["/dev/a0"]), ["a.com/gpu=0"]),  # not all, which has /dev/a1 besides
        (podman(None, ["/dev/a0", "/dev/a1"]), ["a.com/gpu=0", "a.com/gpu=1", "a.com/gpu=all"]),
        (podman(None, ["/dev/a0", "/dev/nvidia0"]), ["nvidia.com/gpu=0", "nvidia.com/gpu=all", "a.com/gpu=0"]),
        (podman(None), []),
        (docker([{"Driver": "cdi", "DeviceIDs": ["fleet.cdi/tty=tty13"]}]), ["fleet.cdi/tty=tty13"]),
        (docker([{"Driver": "nvidia", "DeviceIDs": ["0"]}], ["/dev/tty13"]), []),
        (docker(None, ["/dev/tty13"]), []),
        ({"Id": "1"}, []),
    ],
)
def test_devices_of_a_container(document, devices):
    found = containers.find_containers(NAMES, {"one": lambda: [document]})
    assert [list(one.devices) for one in found.containers] == ([devices] if devices else [])
    assert found.trouble == ()


@pytest.mark.parametrize("answer", ["text", 5, [[]], [{"HostConfig": [1]}], [{"Config": {"CreateCommand": 7}}]])
def test_an_engine_that_says_nonsense_is_trouble_and_hides_no_other(answer):
    good = podman(["--device=fleet.cdi/tty=tty13"])
    found = containers.find_containers(NAMES, {"bad": lambda: answer, "good": lambda: [good]})
    assert [one.engine for one in found.containers] == ["good"]
    assert len(found.trouble) == 1 and found.trouble[0].startswith("bad: its containers can't be told: ")


def test_nobody_is_asked_for_no_device():
    assert containers.find_containers({}, {"never": lambda: 1 // 0}) == ((), (), False)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a shell script in podman's place."""

    def put(text):
        monkeypatch.setattr(containers, "PODMAN", tuple(builders.program(tmp_path, "podman", text)))
        return containers.find_containers(NAMES, {"podman": containers.ENGINES["podman"]})

    return put


def test_podman_is_asked_for_all_containers(program):
    document = json.dumps([podman(["--device=fleet.cdi/tty=tty13"])])
    found = program(f"[ $1 = ps ] && echo 1 || echo '{document}'")
    assert [str(one) for one in found.containers] == ["container web (podman, running)"]


def test_a_container_that_is_removed_meanwhile_hides_no_other(program, tmp_path):
    document = json.dumps([podman(["--device=fleet.cdi/tty=tty13"])])
    listing = f"[ -e {tmp_path}/again ] && echo 2 || {{ touch {tmp_path}/again; echo 1 2; }}"
    found = program(
        f"[ $1 = ps ] && {{ {listing}; exit; }}\n[ \"$*\" = 'container inspect 2' ] || exit 125\necho '{document}'"
    )
    assert len(found.containers) == 1 and found.trouble == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo it is broken >&2; exit 125", "exit code 125: it is broken"),
        ("kill -9 $$", "exit code -9"),
        ("[ $1 = ps ] && echo 1 || echo '{'", "Expecting"),
    ],
)
def test_a_broken_podman_is_trouble(program, text, why):
    found = program(text)
    assert found.containers == () and why in found.trouble[0]


def test_a_podman_that_hangs_is_trouble(program, monkeypatch):
    monkeypatch.setattr(containers, "SECONDS", 0)
    found = program("exec sleep 60")
    assert found.containers == () and "did not end within" in found.trouble[0]


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """A docker that answers path -> (status, document)."""
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, document = answers[self.path]
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_words):
            pass

        def address_string(self):
            return ""

    monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket's name
    monkeypatch.setattr(containers, "DOCKER", "docker.sock")
    with socketserver.UnixStreamServer("docker.sock", Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield answers
        server.shutdown()
        thread.join()


def test_docker_is_asked_over_its_socket(daemon):
    daemon["/containers/json?all=1"] = (200, [{"Id": "1"}, {"Id": "2"}])
    daemon["/containers/1/json"] = (200, docker([{"Driver": "cdi", "DeviceIDs": ["fleet.cdi/tty=tty13"]}]))
    daemon["/containers/2/json"] = (404, {"message": "No such container"})
    found = containers.find_containers(NAMES, {"docker": containers.ENGINES["docker"]})
    assert [str(one) for one in found.containers] == ["container web (docker, exited)"] and found.trouble == ()
    daemon["/containers/2/json"] = (500, {"message": "driver failed"})
    found = containers.find_containers(NAMES, {"docker": containers.ENGINES["docker"]})
    assert "answered with status 500" in found.trouble[0]


@pytest.fixture(params=["no socket", "a socket that was left"])
def stopped(request, tmp_path, monkeypatch):
    """A docker that does not run, without containers. Gives its directory."""
    monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket's name
    if request.param != "no socket":
        with socket.socket(socket.AF_UNIX) as left:
            left.bind("docker.sock")
    monkeypatch.setattr(containers, "DOCKER", "docker.sock")
    monkeypatch.setattr(containers, "DOCKER_ROOTS", (str(tmp_path / "kept"),))
    monkeypatch.setattr(containers, "DOCKER_CONFIG", str(tmp_path / "daemon.json"))
    monkeypatch.setattr(containers, "DOCKER_NAMESPACE", f"test-{os.getpid()}")
    monkeypatch.setitem(containers.LISTS, "podman", list)
    monkeypatch.setitem(containers.ENGINES, "podman", list)
    return tmp_path


def troubles():
    """Why docker's containers can't be told, by each question."""
    answers = (containers.find_containers(NAMES), containers.using("docker"), containers.list_containers())
    assert not any(answer[0] for answer in answers)
    return [one.trouble for one in answers]


def test_a_docker_that_does_not_run_may_have_no_containers(stopped):
    assert troubles() == [(), (), ()]
    (stopped / "kept/containers").mkdir(parents=True)
    (stopped / "daemon.json").write_text("[")
    assert troubles() == [(), (), ()]


def keep(folder, id_, host=None, config=None):
    """Make the directory of a container as docker does; `host`: its hostconfig.json."""
    (folder / id_).mkdir(parents=True)
    (folder / id_ / "config.v2.json").write_text(json.dumps(config or {"ID": id_, "Name": f"/name-{id_}"}))
    if host is not None:
        (folder / id_ / "hostconfig.json").write_text(json.dumps(host))


WITH = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["fleet.cdi/tty=tty13"]}], "Devices": None}


@pytest.mark.parametrize("place", ["kept/containers", "kept/100000.100000/containers", "other/containers"])
def test_containers_of_a_docker_that_does_not_run_are_told_by_its_files(stopped, place):
    keep(stopped / place, "0123", WITH)
    keep(stopped / place, "4567", {"DeviceRequests": None})
    keep(stopped / place, "89ab")
    (stopped / place / "a directory that docker would not load").mkdir()
    (stopped / "daemon.json").write_text(json.dumps({"data-root": str(stopped / "other")}))
    (stopped / "again").symlink_to(place.partition("/")[0])
    containers.DOCKER_ROOTS += (str(stopped / "again"),)  # one directory by two names; the fixture puts it back
    answers = (containers.find_containers(NAMES), containers.using("docker"))
    assert [[str(one) for one in answer.containers] for answer in answers] == [
        ["container name-0123 (docker, exited)"]
    ] * 2
    assert answers[0].containers[0].devices == ("fleet.cdi/tty=tty13",)
    listed = containers.list_containers()
    assert listed.ids == {"0123", "4567", "89ab"} and not listed.trouble


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"ID": 5'])
def test_a_file_of_a_docker_that_does_not_run_may_be_damaged(stopped, text):
    keep(stopped / "kept/containers", "0123", WITH)
    (stopped / "kept/containers/0123/config.v2.json").write_text(text)
    assert ["docker: its containers can't be told: " in " ".join(one) for one in troubles()] == [True] * 3
    assert not containers.find_containers(NAMES).may_run


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's processes count: needs root")
def test_containers_that_run_without_docker_are_seen_wherever_it_kept_them(stopped):
    (shim,) = builders.program(stopped, "containerd-shim-runc-v2", "read line")
    with subprocess.Popen([shim, "-namespace", f"test-{os.getpid()}", "-id", "0123"], stdin=-1) as process:
        end = time.monotonic() + 10
        while not any(troubles()) and time.monotonic() < end:
            time.sleep(0.01)
        assert ["its daemon does not run, and its containers do" in " ".join(one) for one in troubles()] == [True] * 3
        assert containers.find_containers(NAMES).may_run
        keep(stopped / "kept/containers", "0123", WITH)
        (found,) = containers.find_containers(NAMES).containers
        assert str(found) == "container name-0123 (docker, running)" and found.runs
        process.stdin.close()
    assert [one.runs for one in containers.find_containers(NAMES).containers] == [False]


@pytest.mark.parametrize(
    ("engine", "name", "words"),
    [
        ("docker", "containerd-shim-runc-v2", ["-namespace", f"test-{os.getpid()}", "-id", "0123"]),
        ("podman", "conmon-of-test", []),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's processes count: needs root")
def test_containers_of_an_engine_in_a_container_are_not_of_this_hosts_engine(stopped, monkeypatch, engine, name, words):
    """docker:dind, and podman in a container: their monitors are in another PID namespace."""
    monkeypatch.setattr(containers, "CONMON", name)
    (monitor,) = builders.program(stopped, name, "echo here; read line")
    inner = ["unshare", "--pid", "--fork", "--kill-child", monitor, *words]
    if subprocess.run([*inner[:4], "true"], check=False, capture_output=True).returncode:
        pytest.skip("no PID namespaces here")
    for command, is_ours in (([monitor, *words], True), (inner, False)):
        with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
            assert process.stdout.readline() == "here\n"
            assert containers.MONITORED[engine]() == is_ours
            process.stdin.close()


def test_a_monitor_that_cannot_be_looked_at_counts_as_of_this_host(monkeypatch):
    monkeypatch.setattr(containers, "CONMON", "conmon-of-test")
    monkeypatch.setattr(proc, "named", lambda _prefix: [1 << 30])
    assert containers.MONITORED["podman"]()
