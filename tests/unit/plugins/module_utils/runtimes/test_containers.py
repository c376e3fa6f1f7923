# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which containers have which devices, by what engines say of them, and engines that say nothing or nonsense."""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import threading

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.tests.unit import builders

NAMES = {"fleet.cdi/tty=tty13": ("/dev/tty13",), "fleet.cdi/tty=tty1": ("/dev/tty1",)}


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
        (podman(None, ["/dev/tty1"]), ["fleet.cdi/tty=tty1"]),
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
    assert containers.find_containers({}, {"never": lambda: 1 // 0}) == ((), ())


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


def test_containers_of_a_docker_that_does_not_run_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "DOCKER", str(tmp_path / "none.sock"))
    monkeypatch.setattr(containers, "DOCKER_CONTAINERS", str(tmp_path / "kept"))
    monkeypatch.setitem(containers.LISTS, "podman", list)
    assert containers.list_containers() == containers.ListedContainers()
    (tmp_path / "kept").mkdir()
    assert containers.list_containers() == containers.ListedContainers()
    (tmp_path / "kept/one").mkdir()
    ids, (trouble,) = containers.list_containers()
    assert not ids and trouble.startswith("docker:") and f"{tmp_path}/kept has containers" in trouble


def test_a_docker_that_does_not_run_has_no_containers(tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "DOCKER", str(tmp_path / "none.sock"))
    assert containers.find_containers(NAMES, {"docker": containers.ENGINES["docker"]}) == ((), ())
    monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket's name
    with socket.socket(socket.AF_UNIX) as left:
        left.bind("left.sock")
    monkeypatch.setattr(containers, "DOCKER", "left.sock")
    assert containers.find_containers(NAMES, {"docker": containers.ENGINES["docker"]}) == ((), ())
