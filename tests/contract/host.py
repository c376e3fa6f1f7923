# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host below a directory, and the device plugin as a process on it: what the tests of the contract look at."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional
from zlib import crc32

from books import PATIENCE

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node
from ansible_collections.fleet.cdi.tests.unit import builders

CODE = str(Path(__file__).resolve().parents[2] / "build/pythonpath")
DEBIAN = "/usr/bin/python3"  # with the distribution's grpcio
MAJOR = 240  # of device nodes that no driver serves: "local/experimental use" in the kernel's devices.txt


def numbers(name: str) -> tuple[int, int]:
    """Major and minor of the device node `name`. Other names have other numbers: by these, hardware is told apart."""
    stem, minor = re.fullmatch(r"(\w*?)(\d*)", name).groups()  # type: ignore[union-attr]
    return MAJOR + (0 if stem == "thing" else 1 + crc32(stem.encode()) % 1000), int(minor or 0)


_LAUNCHER = """\
import sys
sys.dont_write_bytecode = False
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
nothing = "/nonexistent"
paths = {"state_dir": nothing, "inventory": nothing, "spec_dirs": [nothing], "prefix": nothing}
sys.exit(main(sys.argv[1:], "test", paths))
"""
# Before it, for a clock that somebody sets: seconds to add, in a file. gRPC makes a deadline of it that its core, which
# asks the kernel, compares with the true one at once: both would jump.
_CLOCK = """\
import sys, time
_true_time = time.time
def _time():
    for_grpc = sys._getframe(1).f_globals["__name__"].startswith("grpc")
    return _true_time() + (0 if for_grpc else float(open({path!r}).read()))
time.time = _time
"""
# Before it, for a constant of the device plugin that is to be another one.
_CONSTANT = """\
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.{room} import {module}
{module}.{name} = {value!r}
"""
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until `condition` gives something true, and return that. Raises AssertionError."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {condition.__doc__ or condition}")
        time.sleep(0.01)


class Host:
    """Its files. What the daemon is told of is all below `base`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.plugins = base / "p"
        self.registry = base / "r"
        self.pods = base / "l" / "kubelet.sock"
        self.specs = base / "specs"
        self.root = base / "root"
        self.config = base / "device-plugin.json"
        for directory in (self.plugins, self.specs, self.root / "dev", self.pods.parent):
            directory.mkdir(parents=True)
        self.numa_nodes("0")
        self._settings: dict[str, Any] = {}
        self.configure()

    def numa_nodes(self, online: str) -> None:
        """What sysfs says of NUMA nodes: "0-1"."""
        path = self.root / "sys/devices/system/node/online"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(online + "\n")

    def configure(self, **changes: Any) -> None:
        """Write the configuration, with these options changed."""
        self._settings = {
            "version": 1,
            "plugin_dir": str(self.plugins),
            "registry_dir": str(self.registry),
            "pod_resources": str(self.pods),
            "spec_dirs": [str(self.specs)],
            "inventory": str(self.base / "inventory.json"),
            "state_dir": str(self.base / "state"),
            "run_dir": str(self.base / "run"),
            "root": str(self.root),
            "grace": 1,
            **self._settings,
            **changes,
        }
        _replace(self.config, json.dumps(self._settings))

    def variant(self, name: str, **changes: Any) -> Path:
        """A configuration beside the first, with these options changed; where it is."""
        path = self.base / name
        _replace(path, json.dumps({**self._settings, **changes}))
        return path

    def resource(self, name: str, **settings: Any) -> None:
        """Configure one resource, and no other."""
        settings.setdefault("health", {"hold_down": 0, "linger": 1})
        self.configure(resources={name: settings})

    def plug(self, *names: str) -> None:
        """Device nodes /dev/<name> appear."""
        for name in names:
            path = self.root / "dev" / name
            if path.exists():
                continue
            try:
                os.mknod(path, 0o600 | 0o020000, os.makedev(*numbers(name)))
            except PermissionError:  # not root: one that there is, under another name
                path.symlink_to("/dev/null")

    def unplug(self, *names: str) -> None:
        """They are gone."""
        for name in names:
            (self.root / "dev" / name).unlink()

    def spec(self, kind: str, devices: Mapping[str, Sequence[str]], file: str = "a.json", **more: Any) -> None:
        """A spec: device name -> its nodes below /dev."""
        each = {name: builders.nodes(*(f"/dev/{node}" for node in nodes)) for name, nodes in devices.items()}
        document = builders.spec(each, kind, **more)
        _replace(self.specs / file, json.dumps(document))

    def devices(self, count: int, kind: str = "vendor.com/thing", first: int = 0) -> list[str]:
        """So many devices of a kind, d0 and so on, with a node each; their names."""
        names = [f"d{number}" for number in range(first, first + count)]
        stem = kind.rpartition("/")[2]
        self.plug(*(f"{stem}{name[1:]}" for name in names))
        self.spec(kind, {name: [f"{stem}{name[1:]}"] for name in names}, file=f"{kind.replace('/', '-')}.json")
        return names

    def inventory(self, numa: Mapping[str, Optional[int]], kind: str = "vendor.com/thing", profile: str = "") -> None:
        """What discovery knows: device name -> its NUMA node; with a `profile` they are partitions of one card."""
        stem = kind.rpartition("/")[2]
        found = tuple(
            Device(
                f"pci:0000:0{name[1:]}:00.0",
                "rule",
                kind,
                (name,),
                (Node(f"/dev/{stem}{name[1:]}", "c", *numbers(f"{stem}{name[1:]}")),),
                numa_node=node,
                part_of=("pci:0000:ff:00.0",) if profile else (),
                partition=profile,
            )
            for name, node in numa.items()
        )
        path = self.root / "proc/sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a-boot\n")
        (self.base / "inventory.json").write_bytes(inventory.render(inventory.Inventory(found), "a-boot"))


class Plugin:
    """`fleet-cdi plugin run` as a process."""

    def __init__(
        self,
        host: Host,
        instance: str = "",
        python: str = sys.executable,
        wrapper: Sequence[str] = (),
        clock: Optional[Path] = None,
        config: Optional[Path] = None,
        constants: Mapping[str, float] = MappingProxyType({}),  # "kubelet.registration.HEAD_START" -> value
    ) -> None:
        self.host = host
        code = (_CLOCK.format(path=str(clock)) if clock else "") + _LAUNCHER
        for path, value in constants.items():
            room, module, name = path.split(".")
            code = _CONSTANT.format(room=room, module=module, name=name, value=value) + code
        self._errors = host.base / f"log{len(list(host.base.glob('log*')))}"
        command = [*wrapper, python, "-c", code, "plugin", "run", "--config", str(config or host.config)]
        with open(self._errors, "wb") as errors:
            self.process = subprocess.Popen(
                [*command, *(["--instance", instance] if instance else [])],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                stdout=errors,
                env={**os.environ, "PYTHONPATH": CODE},
            )

    @property
    def text(self) -> str:
        """All that it wrote."""
        return self._errors.read_text()

    def lines(self, event: str = "", **fields: str) -> list[dict[str, str]]:
        """The lines of the log with this event and these fields."""
        found = []
        for line in self.text.splitlines():
            one = {key: json.loads(value) if value[:1] == '"' else value for key, value in _FIELD.findall(line)}
            if (not event or one.get("event") == event) and fields.items() <= one.items():
                found.append(one)
        return found

    def said(self, event: str, **fields: str) -> list[dict[str, str]]:
        """Wait for such a line."""
        try:
            found: list[dict[str, str]] = until(lambda: self.lines(event, **fields))
        except AssertionError:
            raise AssertionError(f"no event={event} {fields} in:\n{self.text}") from None
        return found

    @property
    def runs(self) -> bool:
        """Whether it lives."""
        return self.process.poll() is None

    def hang_up(self) -> None:
        """SIGHUP: read the configuration again."""
        self.process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        if self.runs:
            self.process.terminate()
        return self.process.wait(PATIENCE)


def command(host: Host, *arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Another call of `fleet-cdi plugin` on the same host."""
    return subprocess.run(
        [python, "-c", _LAUNCHER, "plugin", *arguments, "--config", str(host.config)],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": CODE},
        timeout=PATIENCE,
    )


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    os.replace(temporary, path)
