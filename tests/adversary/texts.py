# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Family `texts`: devices whose strings attack whoever reads them, through discovery into all that shows them.

Each seed makes a tree of sysfs in which USB devices, serial lines, disks, GPUs and network interfaces say hostile
things about themselves, beside one honest device of each kind. Then a refresh runs, and what people and programs see
is collected: specs, inventory, the command line, modules' answers, the device plugin's log and metrics, unit files.

The oracle: no character that does something stands raw in what is shown; every spec is valid; no kind fails; the
honest devices are offered; unit files have the lines that they always have; no error that nobody foresaw.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sys
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from oracle import ESCAPE, LOST, TRACEBACK, Control, Finding, Outcome

from ansible_collections.fleet.cdi.plugins.module_utils.cli import call, main, terminal
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import memory, plan_kind, refresh_all
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit, refresh_unit
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import log, metrics
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

PIECES: tuple[bytes, ...] = (
    *(bytes([code]) for code in (*range(1, 32), 127)),
    *(chr(code).encode() for code in (0x80, 0x85, 0x9B, 0x9D, 0x200B, 0x202E, 0x2028, 0x2066, 0xFEFF, 0xE0041)),
    *(b"\x00", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),  # no UTF-8
    *(b"\x1b[2J", b"\x1b]0;x\x07", b"\x1b[31m", b"\r\nlevel=error event=forged"),
    *(b"\nROOT:x:0:0", b"\n[Service]\nUser=x"),
    *(b"../", b"/etc/shadow", b"%n%s", b"%i", b"$(id)", b"`id`", b"${IFS}", b";", b"|", b"&", b"'", b'"', b"\\"),
    *(b"{{ x }}", b"{0}", b"!!python/object:x", b"&a *a", b"- ", b": ", b"#", b"{", b"}", b"[", b"]", b"',", b'"}'),
    *(b"=", b"all", b"none", b"0", b"1"),
)  # fmt: skip
COLLISIONS = (
    b"0",
    b"1",
    b"2",
    b"honest",
    b"all",
    b"none",
    b"0000:00:01.0",
    b"same",
    b"sa/me",
    b" sa me",
    b"sa-me",
    b"",
)
HONEST = "honest"
# What only looks at what we gave it; doctor asks the machine's own runtimes.
VERBS = (["devices"], ["devices", "--json"], ["specs"], ["specs", "--json"], ["validate"], ["validate", "--json"])

# Kind -> its entry. Names come from all that a device says, and from the host.
KINDS: dict[str, dict[str, Any]] = {
    "a.x/usb": {"profile": "usb", "name_by": ["index", "serial", "uuid"], "all": True},
    "a.x/tty": {"profile": "rule", "match": {"subsystem": "tty"}, "name_by": ["serial", "sysname"], "group_by": "none"},
    "a.x/nvme": {"profile": "nvme", "disks": "*", "name_by": ["uuid", "serial", "index"]},
    "a.x/gpu": {"profile": "drm", "name_by": ["uuid", "index", "pci"], "none": True, "env": {"GPU": "{name}"}},
    "a.x/net": {"profile": "net", "interfaces": "*", "name_by": ["serial", "pci"]},
    "a.x/plain": {"profile": "rule", "match": {"subsystem": "plain"}, "name_by": ["serial"]},
}  # fmt: skip


class Host(NamedTuple):
    """One host of an attack."""

    arena: Path
    honest: dict[str, str]  # kind -> what a spec has to name: a node's path, or an interface

    @property
    def specs(self) -> Path:
        """The spec directory."""
        return self.arena / "etc"


def text_of(rng: random.Random) -> bytes:
    """Something that a device says."""
    what = rng.random()
    if what < 0.3:
        return rng.choice(COLLISIONS)
    if what < 0.35:
        return rng.choice(PIECES) * 65536
    if what < 0.4:
        return rng.randbytes(rng.randrange(300))
    return b"".join(rng.choice((*PIECES, b"x", b"S3R1AL", b" ")) for _piece in range(rng.randrange(1, 12)))


def name_of(rng: random.Random, stem: str) -> str:
    """A name that the kernel gives, as a path of `render` has it: any bytes but "/" and NUL, of 200 at most."""
    said = text_of(rng)[:40] if rng.random() < 0.5 else b""
    odd = "".join(f"%{byte:02X}" for byte in said if byte not in b"/\x00")
    return f"{stem}{odd}"


def tree(rng: random.Random) -> tuple[dict[str, Any], dict[str, str]]:
    """(a tree for `render`, what the honest device of each kind is known by)."""
    devices: dict[str, Any] = {}
    honest: dict[str, str] = {}
    slot = iter(range(1, 200))
    nodes: set[str] = set()
    for name in KINDS:
        count = rng.randrange(1, 5)
        real = rng.randrange(count + 1)
        for number in range(count + 1):
            bus = f"/sys/devices/pci0000:00/0000:00:{next(slot):02x}.0"
            said: dict[str, Any] = (
                {}
                if number == real
                else {key: text_of(rng) for key in ("serial", "uuid", "unique_id", "model", "wwid")}
            )
            said = {key: value for key, value in said.items() if rng.random() < 0.7}
            if number == real:
                said = {"serial": f"{HONEST}-{name[4:]}", "unique_id": f"{HONEST}-{name[4:]}"}
            function: dict[str, Any] = {"vendor": "0x1002", "device": "0x740f", "class": "0x038000"}
            if number != real and rng.random() < 0.3:
                function = {key: text_of(rng) for key in function}
            devices[bus] = {"subsystem": "bus/pci", "driver": "demo", "attributes": function}
            stem = f"{name[4:]}{number}"
            node = (
                stem
                if number == real or rng.random() < 0.7
                else text_of(rng)[:60].replace(b"\x00", b"").decode("utf-8", "surrogateescape")
            )
            if node in nodes:  # the kernel gives no two devices one node
                node = stem
            nodes.add(node)
            known = {"MAJOR": 240 + number, "MINOR": next(slot), "DEVNAME": node}
            if name == "a.x/usb":
                known["DEVNAME"] = f"bus/usb/001/{node}"
                ids = (
                    {"idVendor": "0403", "idProduct": "6001"}
                    if number == real
                    else {"idVendor": text_of(rng), "idProduct": text_of(rng)}
                )
                devices[f"{bus}/usb1/1-{number + 1}"] = {
                    "subsystem": "bus/usb",
                    "uevent": known,
                    "attributes": {**ids, **said},
                }
            elif name == "a.x/net":
                interface = stem if number == real else name_of(rng, stem)
                devices[f"{bus}/net/{interface}"] = {"subsystem": "class/net", "attributes": {"type": "1", **said}}
                honest.setdefault(name, stem) if number == real else None
            else:
                where = {"a.x/tty": "tty", "a.x/nvme": "block", "a.x/gpu": "drm", "a.x/plain": "plain"}[name]
                leaf = {"block": f"nvme{number}n1", "drm": f"card{number}"}.get(where) or (
                    stem if number == real else name_of(rng, stem)
                )
                known["DEVNAME"] = {"block": leaf, "drm": f"dri/{leaf}"}.get(where, known["DEVNAME"])
                above = f"{bus}/nvme/nvme{number}" if where == "block" else bus
                devices[f"{above}/{where}/{leaf}" if where != "block" else f"{above}/{leaf}"] = {
                    "subsystem": f"class/{where}", "uevent": known, "attributes": said,
                }  # fmt: skip
            if number == real and name != "a.x/net":
                honest[name] = f"/dev/{known['DEVNAME']}"
    return {"devices": devices}, honest


def made(seed: int, arena: Path) -> Host:
    """A host with the devices of this seed, that was told to offer them."""
    rng = random.Random(seed)
    found, honest = tree(rng)
    render(found, arena / "tree")
    boot = arena / "tree/proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(inventory.boot_id())
    (arena / "run").mkdir()
    (arena / "state").mkdir()
    with locked_manifest(str(arena / "state")) as manifest:
        for name, entry in KINDS.items():
            wanted = plan_kind.WantedKind(
                name, {name[4:]: {"kind": name, **entry}}, by="adversary", runtimes={"podman": "6.0.0"}
            )
            options = {key: value for key, value in wanted._asdict().items() if key not in ("kind", "content")}
            record = memory.Memory(options, str(arena / "etc"), str(arena / "run/inventory.json"))
            manifest.remember({name: record.document()})
    return Host(arena, honest)


def outputs(host: Host) -> Iterator[tuple[str, Callable[[], str]]]:
    """(what it is, a function that makes what is shown) of everything that shows what devices say."""
    arena = host.arena
    places = Layout(str(arena / "state"), str(arena / "run/inventory.json"), str(arena / "conf"), str(arena / "tree"))

    def refreshed() -> str:
        report = refresh_all.refresh(places)
        stream = io.StringIO()
        written, counted = log.Log(stream), []
        with shown() as (out, err):
            for line in (*report.warnings, *report.failed):
                terminal.complain(line)
                written.warning("refresh", reason=line, device=line)
                counted.append(metrics.Sample("device_fault", {"resource": "a.x/y", "device": line, "reason": line}, 1))
        if report.failed:
            raise Failed("; ".join(report.failed))
        return out() + err() + stream.getvalue() + metrics.Metrics().render(counted)

    def verb(*words: str) -> Callable[[], str]:
        def run() -> str:
            defaults = {"state_dir": str(arena / "state"), "inventory": str(arena / "run/inventory.json"),
                        "spec_dirs": [str(host.specs)], "prefix": str(arena / "opt")}  # fmt: skip
            with shown() as (out, err):
                main.main(words, "adversary", defaults)
            return out() + err()

        return run

    def module() -> str:
        options = {
            "root": str(arena / "tree"),
            "devices": None,
            "gather": ["properties"],
            "state_dir": str(arena / "state"),
        }
        request = io.StringIO(json.dumps({"options": options, "check": False}))
        with mock.patch.object(sys, "stdin", request), shown() as (out, _err):
            call.main("device_info")
        answer = json.loads(out())
        return "".join(f"{line}\n" for line in (*answer["warnings"], answer.get("error", "")))

    yield "refresh", refreshed
    for words in VERBS:
        yield f"fleet-cdi {' '.join(words)}", verb(*words)
    yield "module device_info", module


class Failed(Exception):
    """A kind that could not be offered."""


@contextlib.contextmanager
def shown() -> Iterator[tuple[Callable[[], str], Callable[[], str]]]:
    """stdout and stderr, as bytes would go to a terminal."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", newline="") for _stream in range(2)]

    def said(stream: io.TextIOWrapper) -> str:
        stream.flush()
        buffer: Any = stream.buffer
        return str(buffer.getvalue().decode("utf-8", "surrogateescape"))

    with mock.patch.object(sys, "stdout", streams[0]), mock.patch.object(sys, "stderr", streams[1]):
        yield lambda: said(streams[0]), lambda: said(streams[1])


def raw(lines: str) -> str:
    """The characters of what is shown that do something, by name; newlines end our lines."""
    found = {letter for letter in lines if not letter.isprintable() and letter != "\n"}
    return ", ".join(sorted(f"U+{ord(letter):04X} ({unicodedata.category(letter)})" for letter in found))


def judged(host: Host) -> Iterator[Finding]:
    """What is wrong with the files that were written."""
    for path in sorted(host.specs.glob("*")):
        try:
            codec.decode(path.read_bytes(), str(path))
        except CdiError as error:
            yield Finding(LOST, f"the spec is not valid: {error}")
    for name, known in host.honest.items():
        path = host.specs / f"{name.replace('/', '-')}.json"
        document = json.loads(path.read_bytes()) if path.exists() else {"devices": []}
        devices = [
            json.dumps(one["containerEdits"]) for one in document["devices"] if one["name"] not in ("all", "none")
        ]
        if not any(f'"{known}"' in edits for edits in devices):
            yield Finding(LOST, f"{name}: the honest device, {known}, is not offered")


def plugin_units(unit: device_plugin_unit.PluginUnit) -> bytes:
    """All units of the device plugin."""
    return b"".join(filter(None, device_plugin_unit.plugin_texts(unit).values()))


def units_of(rng: random.Random) -> Iterator[Finding]:
    """Unit files made of hostile settings: refused, or with exactly the lines that they always have."""
    said = "/" + text_of(rng)[:200].decode("utf-8", "replace")
    usual = plugin_units(device_plugin_unit.PluginUnit()).count(b"\n")
    settings: dict[str, Any]
    for name in ("prefix", "config_file", "state_dir", "kubelet_dir"):
        settings = {name: said}
        try:
            made_of = plugin_units(device_plugin_unit.PluginUnit(**settings))
        except CdiError:
            continue
        if made_of.count(b"\n") != usual or raw(made_of.decode()):
            yield Finding(
                ESCAPE, f"the units of the device plugin with {name} {said!r} have other lines: {raw(made_of.decode())}"
            )
    for name in ("prefix", "spec_dir", "state_dir", "device_list"):
        settings = {name: said}
        try:
            texts = refresh_unit.refresh_texts(refresh_unit.RefreshUnit(**settings)).values()
        except CdiError:
            continue
        if [content.count(b"\n") for content in texts] != LINES or any(raw(content.decode()) for content in texts):
            yield Finding(ESCAPE, f"the units and rules of refresh with {name} {said!r} have other lines")


LINES = [content.count(b"\n") for content in refresh_unit.refresh_texts(refresh_unit.RefreshUnit()).values()]


def attack(seed: int, arena: Path) -> Outcome:
    """One host with hostile devices."""
    found: list[Finding] = []
    host = made(seed, arena)
    for what, show in outputs(host):
        try:
            odd = raw(show())
        except Failed as error:
            found.append(Finding(LOST, f"{what}: {error!s:.300}"))
        except CdiError as error:
            found.append(Finding(LOST, f"{what}: {error!s:.300}"))
        except Exception:  # what nobody foresaw is what is looked for
            found.append(Finding(TRACEBACK, f"{what}:\n{traceback.format_exc()}"))
        else:
            found += [Finding(ESCAPE, f"{what} shows {odd} raw")] if odd else []
    found += [*judged(host), *units_of(random.Random(seed))]
    return Outcome(tuple(found))


def control(directory: Path) -> Control:
    """The same where text is shown as it is said: it has to be seen."""
    tried = caught = 0
    with contextlib.ExitStack() as stack:
        for room in (terminal, call, metrics):
            stack.enter_context(
                mock.patch.object(room, "one_line", lambda said: said.encode("utf-8", "replace").decode())
            )
        for seed in range(20):
            arena = directory / str(seed)
            arena.mkdir()
            caught += any(finding.sort == ESCAPE for finding in attack(seed, arena).findings)
            tried += 1
            shutil.rmtree(arena)
    return Control(tried, caught, "code that shows what devices say as they say it")
