# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where runtimes are, what they are started with, what their daemons answer, and what a kubelet can be told."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import (
    arguments,
    detect,
    installations,
    podman,
    running,
    survey,
    verify,
)
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import CdiReading, InstalledRuntime, Source
from ansible_collections.fleet.cdi.tests.unit import builders

DOCKER_UNIT = """MainPID=0
ActiveState=inactive
KillMode=process
ExecStart={ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd -H fd:// $DOCKER_OPTS ${ONE} ; ignore_errors=no ; }
Environment=ONE=--debug
EnvironmentFiles=%s (ignore_errors=yes)
EnvironmentFiles=/none/there (ignore_errors=yes)
"""


def place(name="docker", numbers=(26, 1, 5), **more):
    return InstalledRuntime(
        name, "system", ".".join(map(str, numbers)), numbers, "0.7.0", "/bin/true", "/none/config", **more
    )


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class TestArguments:
    def test_of_a_unit_that_does_not_run_with_its_environment_files(self, tmp_path):
        defaults = tmp_path / "docker"
        defaults.write_text('# DOCKER_OPTS="--no"\nDOCKER_OPTS="--cdi-spec-dir /opt/cdi --feature=cdi=true"\n')
        unit = arguments.unit_of(["docker.service"], lambda _name: DOCKER_UNIT % defaults)
        words = arguments.of_unit(unit, text_of)
        assert words == ("-H", "fd://", "--cdi-spec-dir", "/opt/cdi", "--feature=cdi=true", "--debug")
        assert arguments.values(words, "--cdi-spec-dir") == ["/opt/cdi"]
        assert arguments.values(words, "--feature") == ["cdi=true"]
        assert (unit.is_active, unit.keeps_processes, unit.pid) == (False, True, 0)

    def test_of_the_process_where_it_runs(self):
        pid = os.getpid()
        unit = arguments.unit_of(["x"], lambda _name: f"MainPID={pid}\nActiveState=active\nExecStart=x\n")
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            expected = tuple(file.read().rstrip("\0").split("\0")[1:])
        assert arguments.of_unit(unit, text_of) == expected

    def test_the_unit_that_runs_counts(self):
        texts = {"a": "ExecStart=x\nActiveState=inactive", "b": "ExecStart=y\nActiveState=active", "c": ""}
        assert arguments.unit_of("ab", texts.get).name == "b"
        assert arguments.unit_of("ca", texts.get).name == "a"
        assert arguments.unit_of("c", texts.get).name == ""


class TestFind:
    @pytest.fixture
    def program(self, tmp_path):
        def make(directory, name, said):
            (tmp_path / directory).mkdir(parents=True, exist_ok=True)
            return builders.program(tmp_path / directory, name, f"echo '{said}'")[0]

        return make

    def test_several_installations_of_one_runtime(self, tmp_path, monkeypatch, program):
        program("usr", "containerd", "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24")
        program("k3s", "containerd", "containerd github.com/k3s-io/containerd v2.1.5-k3s1 abc")
        program("usr", "dockerd", "Docker version 28.5.2, build x")
        kinds = installations.INSTALLATIONS["containerd"]
        monkeypatch.setitem(kinds, "k3s", kinds["k3s"]._replace(programs=(str(tmp_path / "k3s"),)))
        path = f"{tmp_path}/usr:{tmp_path}/k3s"
        found = installations.find_installations(path, show=lambda _unit: "", names=["containerd", "docker"]).places
        ours = [one for one in found if one.program.startswith(str(tmp_path))]
        docker, usual, k3s = ours
        assert (usual.installation, usual.config, usual.generated) == ("system", "/etc/containerd/config.toml", False)
        assert (k3s.installation, k3s.version, k3s.generated) == ("k3s", "v2.1.5-k3s1", True)
        assert k3s.config == "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
        assert k3s.title == "containerd v2.1.5-k3s1 (k3s)"
        assert (docker.config, docker.reads) == ("/etc/docker/daemon.json", "1.0.0")

    def test_the_command_line_names_the_configuration(self, program, tmp_path):
        program("usr", "dockerd", "Docker version 28.5.2, build x")
        unit = "ExecStart={ path=x ; argv[]=x --config-file=/srv/daemon.json ; }\nActiveState=inactive\n"
        found = installations.find_installations(
            str(tmp_path / "usr"), show=lambda _unit: unit, names=["docker"]
        ).places
        assert [one.config for one in found if one.program.startswith(str(tmp_path))] == ["/srv/daemon.json"]

    def test_every_installation_is_one_of_the_modules(self):
        """The choices of module container_runtime's option."""
        names = {name for kinds in installations.INSTALLATIONS.values() for name in kinds}
        assert names == {"system", "snap", "k3s", "rke2", "microk8s"}
        assert all("system" in kinds for kinds in installations.INSTALLATIONS.values())

    def test_every_installation_is_looked_for_whatever_the_path(self):
        programs = {
            path for kinds in installations.INSTALLATIONS.values() for one in kinds.values() for path in one.programs
        }
        assert programs and programs <= {*detect.DIRECTORIES}


@pytest.fixture
def daemon(tmp_path):
    """Listen at a socket and answer the first that connects with these bytes; returns the socket's path."""
    threads, servers = [], []

    def start(answer):
        path = str(tmp_path / f"{len(servers)}.sock")
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(path)
        server.listen()
        servers.append(server)

        def serve():
            connection, _address = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
        return path

    yield start
    for server in servers:
        server.close()


def http(body, status="200 OK"):
    content = body.encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content


INFO = {"CDISpecDirs": ["/etc/cdi"], "LiveRestoreEnabled": False, "ContainersRunning": 3}


class TestRunning:
    @pytest.mark.parametrize(
        ("info", "expected"),
        [
            (INFO, running.RunningDaemon(True, ("/etc/cdi",), 3)),
            ({**INFO, "LiveRestoreEnabled": True}, running.RunningDaemon(True, ("/etc/cdi",), 0)),
            ({**INFO, "CDISpecDirs": []}, running.RunningDaemon(False, (), 3)),
            ({**INFO, "CDISpecDirs": None}, running.RunningDaemon(False, (), 3)),
        ],
    )
    def test_docker(self, daemon, info, expected):
        asked = running.ask(place(socket=daemon(http(json.dumps(info)))))
        assert asked == running.Asked(expected, "", True)

    def test_crio(self, daemon):
        path = daemon(http('[crio]\n[crio.runtime]\ncdi_spec_dirs = ["/a"]\n'))
        asked = running.ask(place("cri-o", (1, 33, 0), socket=path))
        assert asked.running == running.RunningDaemon(True, ("/a",))

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"nonsense\r\n\r\n",
            http("{}", "500 No"),
            http("[]"),
            http("{"),
            http('{"CDISpecDirs": "/ab", "cdiSpecDirs": "/ab"}'),
            http('{"CDISpecDirs": ["/a"], "ContainersRunning": 1e400}'),
            http("[" * 100_000),
            b"\0\0\0\4\0\0\0\0\0",  # HTTP/2: settings, and then nothing more
            b"\0\0\5\0\1\0\0\0\1\0\0\0\0\0",  # an empty message
            b"\0\0\4\3\0\0\0\0\1\0\0\0\0",  # the stream is reset
            b"\0\0\7\0\1\0\0\0\1\0\0\0\0\2\x12\x7f",  # a message that is cut off
        ],
    )
    @pytest.mark.parametrize("name", ["docker", "containerd", "cri-o"])
    def test_an_answer_that_is_none_is_trouble_and_no_more(self, daemon, name, answer):
        asked = running.ask(place(name, (2, 1, 0), socket=daemon(answer)))
        if asked.running is None:
            assert "can't be asked" in asked.trouble and asked.answers
        else:  # an empty document of settings says that there are no directories
            assert asked.running.spec_dirs == ()

    def test_a_daemon_that_does_not_run_is_no_trouble(self, tmp_path):
        stale = str(tmp_path / "stale.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(stale)
        for path in (str(tmp_path / "none.sock"), stale):
            assert running.ask(place(socket=path)) == running.Asked(None)

    def test_pending_is_what_runs_against_what_is_written(self):
        on, off = CdiReading(True, "x", ("/a",)), CdiReading(False, "x", ("/a",))
        runs = {
            "on": running.RunningDaemon(True, ("/a",)),
            "other": running.RunningDaemon(True, ("/b",)),
            "off": running.RunningDaemon(False, ()),
        }
        pending = {name: running.is_pending(running.Asked(one), on) for name, one in runs.items()}
        assert pending == {"on": False, "other": True, "off": True}
        assert not running.is_pending(running.Asked(runs["off"]), off)
        assert not running.is_pending(running.Asked(None), on)


class TestReaders:
    """What delivery of the device plugin asks."""

    def state(self, name, enabled, runs=None, answers=False, reads="1.0.0", error=""):
        reading = None if error else CdiReading(enabled, "x", ("/a",))
        now = None if runs is None else running.RunningDaemon(runs, ("/a",))
        one = place(name, (2, 0, 0))._replace(reads=reads)
        return survey.RuntimeState(one, reading, error, running.Asked(now, "", answers or runs is not None))

    def test_what_runs_counts_and_what_nobody_uses_does_not(self):
        found = survey.readers(
            [
                self.state("docker", True),
                self.state("containerd", True, runs=False),
                self.state("cri-o", True),
            ]
        )
        assert [(one.name, one.reads) for one in found] == [("containerd 2.0.0", False)]
        assert "was not restarted" in found[0].why

    def test_where_none_answers_what_is_written_counts(self):
        found = survey.readers([self.state("containerd", False), self.state("cri-o", True)])
        assert [(one.name, one.reads) for one in found] == [("containerd 2.0.0", False), ("cri-o 2.0.0", True)]
        assert "module fleet.cdi.container_runtime turns it on" in found[0].why and found[1].why == ""

    def test_where_they_look_and_what_they_read(self):
        written, runs = self.state("cri-o", True), self.state("containerd", True, runs=True)
        runs = runs._replace(asked=running.Asked(running.RunningDaemon(True, ("/b",)), "", True))
        assert [one[3:] for one in survey.readers([written])] == [(("/a",), "1.0.0", "1.1.0", False, True)]
        assert [one[3:] for one in survey.readers([runs])] == [(("/b",), "1.0.0", "0.8.0", False, False)]

    def test_why_not(self):
        old, broken = self.state("containerd", False, reads=""), self.state("cri-o", False, error="x: is broken")
        assert [one.why for one in survey.readers([old, broken])] == [
            "containerd 2.0.0 is from before CDI",
            "x: is broken",
        ]

    def test_a_configuration_that_cant_be_read_is_an_error_in_its_state(self, tmp_path):
        (tmp_path / "config").write_text("{")
        (state,) = survey.survey(
            [place()._replace(config=str(tmp_path / "config"))], Source(), lambda _place: running.Asked(None)
        )
        assert state.reading is None and "expected a JSON object" in state.error and not state.enabled


class TestVerify:
    """The program's own word. The real ones are in tests/integration/test_runtime.py."""

    def test_dockerd_is_asked_with_its_command_line(self):
        told = []

        def run(command):
            told.append(command)
            return verify.Said(0, "", "")

        one = place(arguments=("-H", "fd://"))
        verify.verify(one, CdiReading(True, "x", files=("/none/config",)), run)
        verify.verify(one._replace(numbers=(20, 10, 0)), CdiReading(True, "x", files=("/none/config",)), run)
        verify.verify(one, CdiReading(True, "x"), run)
        assert told == [["/bin/true", "--validate", "--config-file", "/none/config", "-H", "fd://"]]

    @pytest.mark.parametrize(
        ("numbers", "out", "fault"),
        [
            ((1, 7, 24), '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\ncdi_spec_dirs = ["/a"]\n', ""),
            ((2, 1, 0), "[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\ncdi_spec_dirs = ['/a']\n", ""),
            ((2, 1, 0), "[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n", "to say CDI off"),
            ((2, 1, 0), "[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['/b']\n", "with directories"),
            ((2, 1, 0), "no toml", "expected TOML"),
        ],
    )
    def test_containerd(self, numbers, out, fault):
        one, reading = place("containerd", numbers), CdiReading(True, "x", ("/a",), files=("/none/config",))
        said = verify.Said(0, out, "")
        with pytest.raises(CdiError, match=fault) if fault else contextlib.nullcontext():
            verify.verify(one, reading, lambda _command: said)

    def test_crio(self):
        one, reading = place("cri-o", (1, 33, 0)), CdiReading(True, "always", ("/a",), "/x/zz-fleet-cdi.conf")
        good = '# comments\n[crio]\n[crio.runtime]\ncdi_spec_dirs = [\n\t"/a",\n]\n'
        verify.verify(one, reading, lambda _command: verify.Said(0, good, ""))
        with pytest.raises(CdiError, match="with directories"):
            verify.verify(one, reading, lambda _command: verify.Said(0, good.replace("/a", "/b"), ""))

    @pytest.mark.parametrize(
        ("arguments", "directory"),
        [((), "/none/config.d"), (("--config-dir", "/opt/crio.d"), "/opt/crio.d"), (("-d", "/a", "-d", "/b"), "/b")],
    )
    def test_crio_reads_the_directory_of_its_command_line(self, arguments, directory):
        told = []

        def run(command):
            told.append(command)
            return verify.Said(0, "", "")

        verify.verify(place("cri-o", (1, 33, 0), arguments=arguments), CdiReading(True, "always"), run)
        assert told == [["/bin/true", "--config", "/none/config", "--config-dir", directory, "config"]]

    @pytest.mark.parametrize("name", ["docker", "containerd", "cri-o", "podman"])
    def test_a_program_that_fails_is_quoted(self, name):
        with pytest.raises(CdiError, match=r"does not take its configuration \(exit status 1\): bad key"):
            verify.verify(
                place(name),
                CdiReading(True, "x", files=("/none/config",)),
                lambda _command: verify.Said(1, "", "bad\nkey"),
            )


class TestCompose:
    """Outputs as the programs of Debian 12 and 13 print them."""

    OLD = "podman version 4.3.1\n['podman', '--version', '']\npodman-composer version  1.0.3\nexit code: 0\n"

    @pytest.mark.parametrize(
        ("text", "release"),
        [
            (OLD, "podman-compose 1.0.3"),
            ("podman version 5.4.2\npodman-compose version 1.3.0\n", "podman-compose 1.3.0"),
            ("podman version 5.4.2\npodman-compose version 1.3.01\n", ""),
            ("podman-compose version 9.9.9\n", ""),
            ("podman version 1.0.3\n", ""),
            ("", ""),
            (None, ""),
        ],
    )
    def test_podman_compose(self, tmp_path, monkeypatch, text, release):
        def ask(_program):
            if text is None:
                raise ValueError("it hangs")
            return text

        monkeypatch.setattr(detect, "DIRECTORIES", ())
        program = tmp_path / "podman-compose"
        program.touch(mode=0o755)
        found = podman.compose_drops(str(tmp_path), (), ask, lambda _path: False)
        assert found == ({str(program): release} if release else {})

    @pytest.mark.parametrize(
        ("name", "numbers", "served", "dropped"),
        [
            ("podman", (4, 3, 1), True, True),
            ("podman", (5, 3, 9), True, True),
            ("podman", (5, 4, 0), True, False),
            ("podman", (4, 3, 1), False, False),
            ("docker", (4, 3, 1), True, False),
        ],
    )
    def test_the_api_of_podman(self, monkeypatch, name, numbers, served, dropped):
        monkeypatch.setattr(detect, "DIRECTORIES", ())
        found = podman.compose_drops("", [place(name, numbers)], exists=lambda path: served and path == podman.API)
        assert found == ({podman.API: f"the API of podman {'.'.join(map(str, numbers))}"} if dropped else {})
