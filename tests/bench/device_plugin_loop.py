# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the device plugin's event loop answers nobody, with 60,000 devices, at the fake kubelet of tests/contract.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. A case is what happens to the
daemon; the value is the longest time between two turns of a task that sleeps for a millisecond in its loop, in CPU
milliseconds of the whole process, as other processes of the machine are none of the daemon's doing. The baseline is the
same with 7 devices. The first case is the control: no daemon, and a thread that counts and so wants Python's lock.
"callback": the longest that the loop itself worked in one go; the rest of a block is other threads that have Python's
lock. EXPLAIN=1 in the environment names the longest callbacks on stderr, and where each thread is when a block lasts
40 ms of the clock.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "build/pythonpath"))

from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.daemon import LIBRARIES, SWITCH, Daemon
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import Log
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory, render
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node

KUBELET = str(CHECKOUT / "tests/contract/kubelet.py")
KIND = "bench.example/gpu"
FEW, MANY = 7, int(os.environ.get("DEVICES", "60000"))
MAJOR = 240  # "local/experimental use" in the kernel's devices.txt
METRICS = "127.0.0.1:19400"
EXPLAIN = bool(os.environ.get("EXPLAIN"))


class Blocks:
    """The longest block since `begin`."""

    def __init__(self) -> None:
        self.longest = self.callback = 0.0
        self._real = asyncio.events.Handle._run
        self._what: list[tuple[float, str]] = []

        def timed(handle: asyncio.Handle) -> None:  # a bound method would not be given the handle
            self._timed(handle)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign,assignment]
        gc.callbacks.append(self._collected)
        self._collecting = 0.0

    def begin(self) -> None:
        """Forget what was."""
        self.longest = self.callback = 0.0
        self._what.clear()

    async def tick(self) -> None:
        """Run beside the daemon."""
        while True:
            before = time.process_time()
            if EXPLAIN:
                faulthandler.dump_traceback_later(0.04)  # from a thread that does without Python's lock
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, 1000 * (time.process_time() - before))

    def explain(self) -> None:
        """The longest callbacks, and what the garbage collector took."""
        for milliseconds, what in sorted(self._what, reverse=True)[:5]:
            sys.stderr.write(f"    {milliseconds:.1f} ms {what}\n")

    def _timed(self, handle: asyncio.Handle) -> None:
        before = time.thread_time()
        try:
            self._real(handle)
        finally:
            took = 1000 * (time.thread_time() - before)
            self.callback = max(self.callback, took)
            if EXPLAIN and took > 5:
                callback = getattr(handle, "_callback", None)
                self._what.append((took, _name(getattr(callback, "__self__", callback))))

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collecting = now
        elif EXPLAIN and now - self._collecting > 0.005:
            self._what.append((1000 * (now - self._collecting), f"garbage collection {info}"))


def _name(what: Any) -> str:
    if isinstance(what, asyncio.Task):
        inner: Any = what.get_coro()
        while getattr(inner, "cr_await", None) is not None and hasattr(inner.cr_await, "cr_code"):
            inner = inner.cr_await
        return f"{what.get_coro().__qualname__} in {getattr(inner, '__qualname__', inner)}"  # type: ignore[union-attr]
    return str(getattr(what, "__qualname__", type(what)))


class Result(NamedTuple):
    """Of one case, in milliseconds."""

    block: float
    callback: float


class Host:
    """A host with so many devices below a directory, of a number that no driver serves. Needs root."""

    def __init__(self, directory: Path, short: str, number: int) -> None:
        self.number = number
        self.directory = directory
        self.plugins = f"{short}/p"
        self.dev = directory / "root/dev"
        self.dev.mkdir(parents=True)
        (directory / "cdi").mkdir()
        devices, known = [], []
        for index in range(number):
            self.make(index)
            uuid = f"GPU-{index:08x}-1111-2222-3333-444444444444"
            edits = {"deviceNodes": [{"path": f"/dev/x{index}"}]}
            devices += [{"name": name, "containerEdits": edits} for name in (str(index), uuid)]
            node = Node(f"/dev/x{index}", "c", MAJOR, index)
            known.append(
                Device(f"pci:{index:04x}:00:00.0", "nvidia", KIND, (str(index), uuid), (node,), numa_node=index % 2)
            )
        spec = {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}
        less = {**spec, "devices": devices[2:]}
        self._texts = json.dumps(spec).encode(), json.dumps(less).encode()  # a text would be encoded in the loop
        self.write()
        boot = directory / "root/proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text("a-boot\n")
        (directory / "inventory.json").write_bytes(render(Inventory(tuple(known)), "a-boot"))
        names = ("state_dir", "run_dir", "root")
        paths = {name: str(directory / name.partition("_")[0]) for name in names}
        settings = {
            **paths,
            "version": 1,
            "resources": {KIND: {"health": {"hold_down": 0}}},
            "spec_dirs": [str(directory / "cdi")],
            "inventory": str(directory / "inventory.json"),
            "plugin_dir": self.plugins,
            "registry_dir": f"{short}/r",
            "pod_resources": f"{short}/l/kubelet.sock",
            "metrics": METRICS,
            "grace": 1,
        }
        self.config = directory / "config.json"
        self.config.write_text(json.dumps(settings))
        self.short = short

    def make(self, index: int) -> None:
        """The node of one device."""
        os.mknod(self.dev / f"x{index}", 0o020600, os.makedev(MAJOR, index))

    def write(self, less: bool = False) -> None:
        """The spec anew, perhaps without the first device."""
        beside = self.directory / "new"
        beside.write_bytes(self._texts[less])
        beside.rename(self.directory / "cdi/gpus.json")


class Kubelet:
    """The fake one, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """One request."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write((json.dumps({"do": do, **request}) + "\n").encode())
        found: dict[str, Any] = json.loads(await self._process.stdout.readline())
        assert found.get("ok", "started" in found), str(found)[:500]
        return found

    async def wait(self, number: int) -> None:
        """Until so many are allocatable."""
        await self.ask("wait", resource=KIND, allocatable=number, seconds=300)


async def _metrics() -> None:
    reader, writer = await asyncio.open_connection(*METRICS.split(":"), limit=1 << 26)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert b"fleet_cdi_plugin_devices" in await reader.read()
    writer.close()


async def _control() -> None:
    end = time.monotonic() + 5

    def count() -> None:
        while time.monotonic() < end:
            pass

    threading.Thread(target=count).start()
    await asyncio.sleep(5)


async def _cases(host: Host) -> dict[str, Result]:
    """What happens, one after the other."""
    blocks, found = Blocks(), {}
    with open(host.directory / "log", "w", encoding="utf-8") as log:
        daemon = Daemon(str(host.config), "bench", Log(log))
        command = [KUBELET, "--dir", host.plugins, "--pod-resources", f"{host.short}/l/kubelet.sock"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "--set",
            "wipe_after=0.01",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
        )
        kubelet, number = Kubelet(process), host.number
        assert process.stdout
        await process.stdout.readline()
        tasks: list[asyncio.Future[None]] = []

        async def start() -> None:
            tasks.append(asyncio.ensure_future(daemon.run()))
            await kubelet.wait(number)

        async def lose() -> None:
            (host.dev / "x0").unlink()
            await kubelet.wait(number - 1)
            host.make(0)
            await kubelet.wait(number)

        async def lose_all() -> None:
            host.dev.rename(host.dev.with_name("gone"))
            await kubelet.wait(0)
            await _metrics()
            host.dev.with_name("gone").rename(host.dev)
            await kubelet.wait(number)

        async def change() -> None:
            await asyncio.to_thread(host.write, less=True)
            await kubelet.wait(number - 1)
            await asyncio.to_thread(host.write)
            await kubelet.wait(number)

        async def restart() -> None:
            await kubelet.ask("restart")
            await kubelet.wait(number)

        async def pods(each: int) -> None:
            await kubelet.ask("admit", pod=f"pod{each}", resources={KIND: each})
            await asyncio.sleep(1)
            await kubelet.ask("delete", pod=f"pod{each}")

        async def rest() -> None:
            await asyncio.sleep(12)

        cases: dict[str, Callable[[], Awaitable[None]]] = {
            "no daemon, a thread that counts": _control,
            "start": start,
            "nothing happens": rest,
            "a device node goes and comes": lose,
            "all device nodes go and come": lose_all,
            "the spec changes": change,
            "the kubelet restarts": restart,
            "a pod with 1 device": lambda: pods(1),
            "a pod with a sixtieth of all": lambda: pods(max(number // 60, 1)),
            "GET /metrics": _metrics,
        }
        ticking = asyncio.ensure_future(blocks.tick())
        try:
            for name, case in cases.items():
                await asyncio.sleep(2)
                blocks.begin()
                await case()
                await asyncio.sleep(0.5)
                found[name] = Result(blocks.longest, blocks.callback)
                if EXPLAIN:
                    sys.stderr.write(f"{name}: {blocks.longest:.0f} ms\n")
                    blocks.explain()
        except AssertionError:
            log.flush()
            sys.stderr.write((host.directory / "log").read_text())
            raise
        finally:
            ticking.cancel()
            daemon.end.set()
            await asyncio.wait(tasks, timeout=20)
            assert process.stdin
            process.stdin.close()
            await process.wait()
    return found


def _of(number: int) -> dict[str, Result]:
    short = tempfile.mkdtemp(prefix="b", dir="/tmp")  # a socket's path has 107 bytes at most
    with tempfile.TemporaryDirectory(dir=CHECKOUT / "build") as directory:
        try:
            return asyncio.run(_cases(Host(Path(directory), short, number)))
        finally:
            shutil.rmtree(short, ignore_errors=True)


def main() -> None:
    """A line for each case."""
    for name in LIBRARIES:  # as daemon.run does
        import_module(name)
    sys.setswitchinterval(SWITCH)
    few, many = _of(FEW), _of(MANY)
    for name, result in many.items():
        for what, value, baseline in zip(Result._fields, result, few[name]):
            line(f"{name}, {MANY} devices, longest {what}", "ms of CPU", value, baseline)


if __name__ == "__main__":
    main()
