# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the device plugin costs and how soon it is back, at the fake kubelet of tests/contract, each in its own process.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. Baselines, all of this run:
memory: a process that imported grpc, sqlite3 and pyudev and did nothing; times: one gRPC call to the plugin over a
connection of its own; Allocate: one durable write in a file and one durable commit of SQLite's, in turns with it, on
the disk of the checkout (build/), and a gRPC call that does nothing, also in turns. The same pause comes before each of
them: a sync just behind another one finds an idle disk, and so misses most of the waits for the I/O of others. "Less an
empty call" is the difference of the two percentiles. A look at all processes follows an Allocate (setting occupied) and
is over before the next call.
device_plugin.py allocate    Allocate alone
RESTARTS=n in the environment: how often the kubelet restarts while memory is watched (1000). 10,000 devices, by which
the memory limits of examples/kubernetes are set, need device nodes: as root alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
IMPORTS = str(CHECKOUT / "build/pythonpath")
sys.path.insert(0, IMPORTS)

import grpc
from measure import Commits, Writes, line, percentile, seconds

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

KUBELET = str(CHECKOUT / "tests/contract/kubelet.py")
PROGRAM = """
import sys
sys.path.insert(0, {imports!r})
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
defaults = {{"state_dir": "", "inventory": "", "spec_dirs": [], "prefix": ""}}
sys.exit(main(["plugin", "run", "--config", {config!r}], "bench", defaults))
"""
BARE = "import grpc, grpc.aio, sqlite3, sys\ntry:\n    import pyudev\nexcept ImportError:\n    pass\nsys.stdin.read()"
RESOURCES = 8
DEVICES = 7  # of each: virtual consoles, of which a host has 63
TIMES = 30
ALLOCATES = 400
PAUSE = 0.005  # seconds before each Allocate, and before each of its baselines
LOOK = 0.1  # seconds for the look at processes that follows an Allocate, in the same process here
RESTARTS = int(os.environ.get("RESTARTS", "1000"))
CROWD = 10_000
FIRST = "bench.example/r0"


def peak(pid: int) -> float:
    """The most MiB that were ever resident of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found, status
    return int(found[1]) / 1024


def memory(pid: int) -> tuple[float, float]:
    """(resident, private) MiB of a process: private is what goes with it and can't be read from a file again."""
    found = {}
    for text in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, amount = text.split()[:2]
        found[name] = int(amount) / 1024
    return found["Rss:"], found["Private_Dirty:"]


class Node:
    """A directory with a daemon of 8 resources, and a kubelet."""

    def __init__(self, directory: str, short: str) -> None:
        self.directory = Path(directory)
        self.specs = self.directory / "cdi"
        self.specs.mkdir()
        self.plugins = f"{short}/p"
        self.config = self.directory / "config.json"
        resources: dict[str, dict[str, Any]] = {f"bench.example/r{number}": {} for number in range(RESOURCES)}
        resources["bench.example/r2"]["occupied"] = "ignore"
        for number, name in enumerate(resources):
            self.offer(name, [f"/dev/tty{number * DEVICES + device + 1}" for device in range(DEVICES)])
        paths = {"plugin_dir": self.plugins, "registry_dir": f"{short}/r", "pod_resources": f"{short}/l/kubelet.sock"}
        paths.update((name, str(self.directory / name)) for name in ("state_dir", "run_dir", "inventory"))
        settings = {"version": 1, "resources": resources, "spec_dirs": [str(self.specs)], **paths}
        self.config.write_text(json.dumps(settings))
        self.log = open(self.directory / "log", "w", encoding="utf-8")  # noqa: SIM115 - for as long as the daemon
        program = PROGRAM.format(imports=IMPORTS, config=str(self.config))
        self.daemon = subprocess.Popen([sys.executable, "-I", "-c", program], stderr=self.log)
        command = [sys.executable, KUBELET, "--dir", self.plugins, "--pod-resources", f"{short}/l/kubelet.sock"]
        self.kubelet = subprocess.Popen(
            [*command, "--set", "wipe_after=0.01"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def offer(self, name: str, nodes: list[str]) -> None:
        """A spec with a device for each node."""
        devices = [
            {"name": f"d{number}", "containerEdits": {"deviceNodes": [{"path": node}]}}
            for number, node in enumerate(nodes)
        ]
        document = json.dumps({"cdiVersion": "0.5.0", "kind": name, "devices": devices})
        beside = self.specs / f".{name.replace('/', '-')}"
        beside.write_text(document)
        beside.rename(self.specs / f"{name.replace('/', '-')}.json")

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """One request to the kubelet."""
        assert self.kubelet.stdin
        self.kubelet.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.kubelet.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.kubelet.stdout
        found: dict[str, Any] = json.loads(self.kubelet.stdout.readline())
        return found

    def wait(self, name: str, number: int) -> float:
        """Seconds from kubelet.sock until so many devices of a resource are allocatable."""
        found = self.ask("wait", resource=name, allocatable=number, seconds=20)
        assert found["ok"], found
        return float(found["after"])

    def all_there(self) -> None:
        """Wait for every resource."""
        for number in range(RESOURCES):
            self.wait(f"bench.example/r{number}", DEVICES)

    def call(self) -> None:
        """One call to the first resource's socket, by a connection of its own."""
        path = next(Path(self.plugins).glob("fleet-cdi-bench.example-r0-*"))
        with grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub(channel).GetDevicePluginOptions(api.v1beta1.Empty(), timeout=10)

    def close(self) -> None:
        """End both."""
        assert self.kubelet.stdin
        self.kubelet.stdin.close()
        self.kubelet.wait()
        self.daemon.terminate()
        self.daemon.wait()
        self.log.close()


def stub(channel: Any) -> Any:
    """The plugin's calls."""
    return api.stub(channel, "v1beta1.DevicePlugin")


def footprint(node: Node) -> None:
    """Memory with all resources registered, beside bare imports."""
    bare = subprocess.Popen([sys.executable, "-I", "-c", BARE], stdin=subprocess.PIPE)
    time.sleep(2)
    resident, private = memory(node.daemon.pid)
    base_resident, base_private = memory(bare.pid)
    bare.communicate()
    line(f"resident, {RESOURCES} resources", "MiB", resident, base_resident)
    line(f"private, {RESOURCES} resources", "MiB", private, base_private)


def cpu(pid: int) -> float:
    """The CPU seconds of a process, with those of threads that have ended (clock_getcpuclockid(3))."""
    return time.clock_gettime(~pid << 3 | 2)


def idle(node: Node) -> None:
    """What the daemon costs while nothing happens."""
    before, pause = cpu(node.daemon.pid), 10.0
    time.sleep(pause)
    line("idle, all registered", "CPU-s/s", (cpu(node.daemon.pid) - before) / pause)


def back(node: Node, call: float) -> None:
    """After a new kubelet.sock, after a dropped stream, after a hot plug."""
    after = []
    for _time in range(TIMES):
        node.ask("restart")
        after.append(max(node.wait(f"bench.example/r{number}", DEVICES) for number in range(RESOURCES)))
        time.sleep(0.1)
    line(f"{RESOURCES} resources allocatable after a new kubelet.sock, p95", "s", percentile(after, 0.95), call)
    dropped = []
    for _time in range(TIMES // 3):
        node.ask("drop", resource=FIRST)
        started = time.monotonic()
        node.wait(FIRST, DEVICES)
        dropped.append(time.monotonic() - started)
        time.sleep(0.3)
    line("allocatable after a dropped stream, p95", "s", percentile(dropped, 0.95), call)
    seen = []
    nodes = [f"/dev/tty{device + 1}" for device in range(DEVICES)]
    for number in range(63 - RESOURCES * DEVICES):
        node.offer(FIRST, [*nodes, *(f"/dev/tty{63 - extra}" for extra in range(number + 1))])
        seen.append(seconds(lambda: node.wait(FIRST, DEVICES + number + 1)))  # noqa: B023 - called at once
    line("hot-plugged device allocatable, longest", "s", max(seen), call)
    node.offer(FIRST, nodes)


def allocate(node: Node, what: str, resource: str, pause: float) -> None:
    """Allocate in turns with an empty call, a durable write and a durable commit; `pause` follows each."""
    writes = Writes(str(node.directory / f"{resource}.baseline"))
    commits = Commits(str(node.directory / f"{resource}.db"))
    path = next(Path(node.plugins).glob(f"fleet-cdi-bench.example-{resource}-*"))
    times: dict[str, list[float]] = {"Allocate": [], "empty call": [], "write": [], "commit": []}
    used = 0.0

    def note(name: str, call: Callable[[], Any]) -> None:
        time.sleep(PAUSE)
        times[name].append(seconds(call))

    with grpc.insecure_channel(f"unix:{path}") as channel:
        plugin = stub(channel)
        for number in range(ALLOCATES):
            request = api.v1beta1.AllocateRequest(container_requests=[{"devices_ids": [f"d{number % DEVICES}"]}])
            before = cpu(node.daemon.pid)
            note("Allocate", partial(plugin.Allocate, request, timeout=10))
            used += cpu(node.daemon.pid) - before
            time.sleep(pause)
            note("write", writes.one)
            note("commit", commits.one)
            note("empty call", partial(plugin.GetDevicePluginOptions, api.v1beta1.Empty(), timeout=10))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        whole, empty, write, commit = (percentile(taken, share) * 1000 for taken in times.values())
        line(f"{what}, {name}, beside one durable write", "ms", whole, write)
        line(f"{what}, {name}, less an empty call, beside one durable write", "ms", whole - empty, write)
        line(f"{what}, {name}, beside one durable commit", "ms", whole, commit)
        line(f"empty call beside {what}, {name}", "ms", empty, write)
    line(f"{what}, CPU of the plugin until it answers", "ms", used / ALLOCATES * 1000)


def allocates(node: Node) -> None:
    """Allocate where a look at processes follows, and where none does."""
    allocate(node, "Allocate", "r1", LOOK)
    allocate(node, "Allocate, occupied: ignore", "r2", 0)


def restarts(node: Node) -> None:
    """Memory after many restarts of the kubelet, beside that after a tenth of them."""
    before = 0.0
    for number in range(RESTARTS):
        node.ask("restart")
        node.wait(FIRST, DEVICES)
        if number + 1 == max(RESTARTS // 10, 1):
            node.all_there()
            before = memory(node.daemon.pid)[0]
    node.all_there()
    line(f"resident after {RESTARTS} restarts of the kubelet", "MiB", memory(node.daemon.pid)[0], before)


def crowd(node: Node) -> None:
    """Memory with many devices in one resource, then with all of them granted and a tenth of them gone."""
    before = memory(node.daemon.pid)

    def note(what: str) -> None:
        for name, value, baseline in zip(("resident", "private"), memory(node.daemon.pid), before):
            line(f"{name}, {what}", "MiB", value, baseline)

    nodes = []
    for number in range(CROWD):
        nodes.append(f"{node.directory}/accel{number}")
        os.mknod(nodes[-1], 0o600 | stat.S_IFCHR, os.makedev(4, number))  # consoles', as far as there are any
    node.offer(FIRST, nodes)
    node.wait(FIRST, CROWD)
    note(f"{CROWD} devices")
    path = next(Path(node.plugins).glob("fleet-cdi-bench.example-r0-*"))
    with grpc.insecure_channel(f"unix:{path}") as channel:
        for start in range(0, CROWD, 500):
            asked = [f"d{number}" for number in range(start, start + 500)]
            request = api.v1beta1.AllocateRequest(container_requests=[{"devices_ids": asked}])
            stub(channel).Allocate(request, timeout=60)
    node.ask("restart")
    node.wait(FIRST, CROWD)
    for gone in nodes[: CROWD // 10]:
        os.unlink(gone)
    node.wait(FIRST, CROWD - CROWD // 10)
    note(f"{CROWD} devices, all granted")
    line(f"resident at most, {CROWD} devices", "MiB", peak(node.daemon.pid), before[0])


def main() -> None:
    """Print all lines."""
    short = tempfile.mkdtemp(prefix="b", dir="/tmp")  # a socket's path has 107 bytes at most
    with tempfile.TemporaryDirectory(dir=CHECKOUT / "build") as directory:
        node = Node(directory, short)
        try:
            node.all_there()
            if sys.argv[1:] == ["allocate"]:
                allocates(node)
                return
            call = percentile([seconds(node.call) for _time in range(TIMES)], 0.5)
            footprint(node)
            idle(node)
            back(node, call)
            allocates(node)
            restarts(node)
            if os.geteuid() == 0:
                crowd(node)
        except AssertionError:
            node.log.flush()
            sys.stderr.write((node.directory / "log").read_text())
            raise
        finally:
            node.close()
            shutil.rmtree(short, ignore_errors=True)


if __name__ == "__main__":
    main()
