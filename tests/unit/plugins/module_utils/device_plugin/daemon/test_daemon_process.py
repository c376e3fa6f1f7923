# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`fleet-cdi plugin` as a process, beside a kubelet that is another one (tests/contract/kubelet.py)."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.tests.unit.builders import spec

IMPORTS = next(path for path in sys.path if path.endswith("build/pythonpath"))
KUBELET = str(Path(__file__).resolve().parents[5] / "contract/kubelet.py")
GPU, NIC = "acme.com/gpu", "acme.com/nic"
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
sys.exit(main(sys.argv[1:], "test", {"state_dir": "", "inventory": "", "spec_dirs": [], "prefix": ""}))
"""
# One that does not see its configuration change.
BLIND = PROGRAM.replace(
    "sys.exit(",
    """from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.watch import Watch
follow = Watch.follow
Watch.follow = lambda self, key, *rest: None if key == "config" else follow(self, key, *rest)
sys.exit(""",
)
# One whose looks hang, and that has a defect beside.
DEFECTIVE = PROGRAM.replace(
    "sys.exit(",
    """import time
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import daemon, observer
observer.Viewer.look = lambda _self: time.sleep(600)
daemon.LONG = 0.1  # then the status is to say so
daemon.status_document.document = lambda *_given: 1 / 0
sys.exit(""",
)
DEADLINE = 30  # seconds, for what takes one at most


class Host:
    """Directories, a configuration, and the processes that work with them."""

    def __init__(self, short: Path) -> None:
        self.short = short
        self.specs, self.dev = short / "cdi", short / "dev"
        for directory in (self.specs, self.dev):
            directory.mkdir()
        self.config = short / "config.json"
        self.processes: list[subprocess.Popen[Any]] = []
        self.kubelet: Any = None
        self.settings: dict[str, Any] = {
            "version": 1,
            "resources": {GPU: {"health": {"hold_down": 0, "linger": 1}}, NIC: {"health": {"hold_down": 0}}},
            "spec_dirs": [str(self.specs)],
            "plugin_dir": str(short / "p"),
            "registry_dir": str(short / "r"),
            "pod_resources": str(short / "l/kubelet.sock"),
            **{name: str(short / name) for name in ("state_dir", "run_dir", "inventory")},
        }

    def configure(self, **changes: Any) -> None:
        self.settings.update(changes)
        self.write(json.dumps(self.settings))

    def write(self, text: str) -> None:
        beside = self.short / "config.new"
        beside.write_text(text)
        beside.rename(self.config)

    def offer(self, kind: str, *devices: str) -> None:
        """A spec whose devices each have a file for a node: a mount tells them apart as well as a node would."""
        each = {}
        for name in devices:
            (self.dev / name).touch()
            mount = {"hostPath": str(self.dev / name), "containerPath": f"/dev/{name}", "options": ["bind"]}
            each[name] = {"mounts": [mount]}
        beside = self.specs / ".new"
        beside.write_text(json.dumps(spec(each, kind)))
        beside.rename(self.specs / f"{kind.replace('/', '-')}.json")

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, IMPORTS, "plugin", *arguments, "--config", str(self.config)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def start(self, instance: str = "a", program: str = PROGRAM) -> subprocess.Popen[Any]:
        command = [sys.executable, "-c", program, IMPORTS, "plugin", "run", "--config", str(self.config)]
        with open(self.short / f"{instance}.log", "w", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen([*command, "--instance", instance], stderr=log))
        return self.processes[-1]

    def log(self, instance: str = "a") -> str:
        return (self.short / f"{instance}.log").read_text()

    def status(self, instance: str = "a") -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.short / f"run_dir/{instance}.json").read_text())
        except FileNotFoundError:
            return {"resources": {}}
        return found

    def start_kubelet(self) -> None:
        command = [sys.executable, KUBELET, "--dir", str(self.short / "p"), "--set", "wipe_after=0.05"]
        self.kubelet = subprocess.Popen(
            [*command, "--pod-resources", str(self.short / "l/kubelet.sock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.kubelet.stdout.readline()

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        self.kubelet.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.kubelet.stdin.flush()
        found: dict[str, Any] = json.loads(self.kubelet.stdout.readline())
        return found

    def allocatable(self, resource: str, number: int) -> None:
        answer = self.ask("wait", resource=resource, allocatable=number, seconds=DEADLINE)
        assert answer["ok"], (answer, self.log())

    def told(self, what: str) -> list[Any]:
        """What the kubelet noted of this, in order: when, what, of which resource, and what it said."""
        return list(self.ask("events", what=what)["events"])

    def events(self, what: str) -> list[str]:
        """The resources of which the kubelet noted this, in order."""
        return [event[2] for event in self.told(what)]

    def until(self, condition: Callable[[], Any], what: str = "it") -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, f"{what} did not come\n{self.log()}"
            time.sleep(0.02)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        if self.kubelet:
            self.kubelet.stdin.close()
            self.kubelet.wait()


@pytest.fixture
def host() -> Iterator[Host]:
    short = Path(tempfile.mkdtemp(prefix="d"))  # a socket's path has 107 bytes at most
    found = Host(short)
    found.configure()
    try:
        yield found
    finally:
        found.stop()
        shutil.rmtree(short)


def state(host: Host, resource: str, instance: str = "a") -> str:
    return str(host.status(instance)["resources"].get(resource, {}).get("state"))


def test_without_devices_and_kubelet_it_idles_and_ends_cleanly(host: Host) -> None:
    host.configure(resources={})  # whatever there is
    daemon = host.start()
    host.until(lambda: host.status().get("ready"))
    time.sleep(1.2)
    assert daemon.poll() is None
    assert host.status()["resources"] == {}
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(timeout=DEADLINE) == 0
    lines = host.log().splitlines()
    assert not [line for line in lines if "level=warning" in line], "nothing is wrong here"
    assert "event=stopped" in lines[-1]


def test_sighup_alone_has_it_read_its_configuration(host: Host) -> None:
    daemon = host.start(program=BLIND)
    host.until(lambda: "event=started" in host.log())
    host.configure(resources={})
    daemon.send_signal(signal.SIGHUP)
    host.until(lambda: "event=config " in host.log())


def test_options_that_change_are_registered_anew_and_no_other_resource_is(host: Host) -> None:
    host.offer(GPU, "g0")
    host.offer(NIC, "n0")
    host.start_kubelet()
    host.start()
    host.allocatable(GPU, 1)
    host.allocatable(NIC, 1)
    host.configure(resources={GPU: {"pre_start": True}, NIC: {}})
    host.until(lambda: len(host.events("Register")) == 3)
    host.allocatable(GPU, 1)
    assert sorted(host.events("Register")) == [GPU, GPU, NIC]
    endpoints = {event[3].partition('endpoint: "')[2].split('"')[0] for event in host.told("Register")}
    assert len(endpoints) == 3, "a kubelet may remember a name"


def test_a_broken_configuration_leaves_the_one_before_in_force_and_says_so(host: Host) -> None:
    host.offer(GPU, "g0")
    host.start_kubelet()
    host.start()
    host.allocatable(GPU, 1)
    host.until(lambda: state(host, GPU) == "registered")  # the list comes before the answer to Register is read
    before = host.status()["config"]["sha256"]
    host.write('{"version": 1, "resourcse": {}}')
    host.until(lambda: host.status()["config"]["error"])
    assert "resourcse" in host.status()["config"]["error"]
    assert host.status()["config"]["sha256"] == before
    assert state(host, GPU) == "registered"
    assert host.call("status").returncode == 1
    host.configure(grace=20, resources={GPU: {}})
    host.until(lambda: host.status()["config"]["error"] is None)
    assert host.status()["config"]["sha256"] != before
    assert host.events("Register") == [GPU]
    assert host.call("status").returncode == 0


def test_a_configuration_that_vanishes_offers_nothing_new(host: Host) -> None:
    host.configure(resources={GPU: {}})
    host.offer(GPU, "g0")
    host.offer(NIC, "n0")
    host.start_kubelet()
    host.start()
    host.allocatable(GPU, 1)
    host.config.unlink()
    host.until(lambda: host.status()["config"]["error"])
    host.offer(GPU, "g0", "g1")  # it goes on by what it has
    host.allocatable(GPU, 2)
    assert host.events("Register") == [GPU], "the defaults would offer every kind"


def test_a_configuration_that_is_broken_at_the_start_is_waited_for(host: Host) -> None:
    host.offer(GPU, "g0")
    host.configure(version=7)
    daemon = host.start()
    host.until(lambda: "config" in host.status())
    assert "version" in host.status()["config"]["error"]
    assert host.call("status").returncode == 1
    assert daemon.poll() is None
    host.start_kubelet()
    host.configure(version=1)
    host.allocatable(GPU, 1)
    assert host.status()["config"]["error"] is None


def test_status_and_check_say_the_same_of_the_devices(host: Host) -> None:
    host.offer(GPU, "g0", "g1")
    (host.dev / "g1").unlink()
    done = host.call("check", "--json")
    checked = {one["id"]: one["healthy"] for one in json.loads(done.stdout)["resources"][GPU]}
    assert checked == {"g0": True, "g1": False}
    assert not (host.short / "state_dir").exists(), "a look makes nothing"
    host.start_kubelet()
    host.start()
    host.allocatable(GPU, 1)
    done = host.call("status", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    [instance] = document["instances"]
    told = {name: one["healthy"] for name, one in instance["resources"][GPU]["devices"].items()}
    assert told == checked
    assert any("g1 is Unhealthy" in text for text in document["findings"])


def test_a_pod_is_ready_once_the_kubelet_watches_all_that_there_is(host: Host) -> None:
    """An older pod goes by it. NIC, of which there is nothing, and what is wrong with devices keep nobody waiting."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        where = f"127.0.0.1:{found.getsockname()[1]}"

    def asked() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{where}/readyz", timeout=DEADLINE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    host.configure(metrics=where)
    host.offer(GPU, "g0", "g1")
    (host.dev / "g1").unlink()
    host.start()
    host.until(lambda: host.status().get("ready"))
    host.until(lambda: asked() == (503, f"{GPU}: waiting\n"), "not without a kubelet")
    host.start_kubelet()
    host.allocatable(GPU, 1)
    host.until(lambda: asked() == (200, "ok\n"))  # the list comes before the answer to Register is read
    host.write("{")
    host.until(lambda: asked()[0] == 503)
    assert str(host.config) in asked()[1]


def test_a_node_that_has_nothing_of_a_kind_is_well(host: Host) -> None:
    """One configuration is for many nodes."""
    host.offer(GPU, "g0")
    host.start_kubelet()
    host.start()
    host.allocatable(GPU, 1)
    host.until(lambda: state(host, GPU) == "registered")
    done = host.call("status")
    assert (done.returncode, state(host, NIC)) == (0, "idle"), done.stdout
    done = host.call("check")
    assert done.returncode == 0
    assert f"resource {NIC}: no spec that can be read is of kind {NIC}\n" in done.stdout, "a slip is seen here"
    assert json.loads(host.call("check", "--json").stdout)["findings"] == []
    assert host.log().count("event=absent") == 1
    host.offer(NIC, "n0")
    host.allocatable(NIC, 1)
    (host.specs / "acme.com-nic.json").unlink()
    host.until(lambda: host.log().count("event=absent") == 2, "what comes again is said again")


def test_what_pods_held_is_freed_where_the_plugin_is_gone(host: Host) -> None:
    ledger = Ledger(str(host.short / "s"), inventory.boot_id())
    gpu = Device("pci:0000:3b:00.0", "gpu", GPU, ("g0",), ())
    pod_holds.take(ledger, GPU, [pod_holds.Want("g0", gpu)])
    host.config.unlink()
    for freed in (1, 0):
        done = host.call("forget", "--json", "--state-dir", str(host.short / "s"))
        assert (done.returncode, json.loads(done.stdout)) == (0, {"freed": freed})


def test_what_is_run_can_not_be_forgotten(host: Host) -> None:
    host.start()
    host.until(lambda: host.status().get("ready"))
    done = host.call("forget")
    assert done.returncode == 2
    assert "stop it first" in done.stderr


@pytest.mark.parametrize("text", ['{"version": 2}', "[]", '{"version": 1, "resources": {"nodomain": {}}}'])
def test_check_refuses_what_run_would(host: Host, text: str) -> None:
    host.write(text)
    done = host.call("check")
    assert done.returncode == 2
    assert str(host.config) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_defect_ends_the_process_whatever_hangs_in_it(host: Host) -> None:
    """The service manager starts another one only if it ends."""
    host.configure()
    host.offer(GPU, "g0")
    daemon = host.start(program=DEFECTIVE)
    assert daemon.wait(DEADLINE) == 1
    assert "ZeroDivisionError" in host.log()
