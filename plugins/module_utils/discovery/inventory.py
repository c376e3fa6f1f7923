# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: the devices that discovery found, for those who hand them out.

A text of JSON in /run. It holds device numbers and paths, which a reboot may change, so one of another boot is refused.
Every grant reads it, so empty fields are left out. Where thousands of devices are
alike, the document also has their ids, paths and places as three texts (`groups`). A reader can choose among them and
parse only the lines that it chose (`sketch`). Readers that do not know the texts read all lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, Optional

from .. import documents
from ..records import CdiError, ContainerEdits, Device, Health, Hook, Kind, Link, Mount, NetDevice, Node, as_document

VERSION = 3  # of the document; one more for every change that an older reader would get wrong
OLDEST = 2  # the oldest that is read: it says nothing of network cards
LARGEST = 64 << 20  # bytes of the document: that of a thousand devices has half a megabyte
AGAIN = "run the discovery again (fleet-cdi refresh, or the provision playbook)"


FEWEST = 64  # devices that are alike, for which it pays to name them

GROUPS, DEVICES, AFTER = (
    b',\n"groups": [',
    b',\n"devices": [\n',
    b'\n],\n"kinds": [',
)  # no text in JSON has a line break
BLANK = " "  # between the ids of a group: JSON need not escape it, so a text of 10,000 ids is parsed in no time
DIGITS = 8  # of a place: hexadecimal digits of the offset of a line behind DEVICES


class Inventory(NamedTuple):
    """The devices of this host that the settings select."""

    devices: Sequence[Device]
    kinds: tuple[Kind, ...] = ()
    links: tuple[Link, ...] = ()


class Alike(NamedTuple):
    """Devices that only ids, names and nodes tell apart: nobody's part, without parts, capacity or links."""

    ids: Sequence[str]
    paths: str  # of their nodes, as many for each device, with BLANK between them
    at: str  # the place of each device, DIGITS each

    def place(self, index: int) -> int:
        """Return the place of the device with this index in `ids`."""
        return int(self.at[index * DIGITS : (index + 1) * DIGITS], 16)

    @property
    def node_count(self) -> int:
        """Return the number of `paths`."""
        return self.paths.count(BLANK) + 1 if self.paths else 0

    def nodes(self) -> list[str]:
        """Return `paths` as a list."""
        return self.paths.split(BLANK) if self.paths else []


class Sketch(NamedTuple):
    """An inventory of which only `others` is parsed: the devices that are in no group of `alike`."""

    content: bytes
    start: int  # of the first device in `content`
    alike: tuple[Alike, ...]
    others: tuple[tuple[int, Device], ...]  # place, device
    kinds: tuple[Kind, ...]
    links: tuple[Link, ...]

    def device(self, place: int) -> Device:
        """Return the device at a place. Raises CdiError."""
        try:
            return _device(json.loads(_line(self.content, self.start + place)))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise CdiError(f"inventory: the device at {place} is damaged ({error}); {AGAIN}") from None


def render(found: Inventory, boot_id: str, sketched: bool = False) -> bytes:
    """The document, the same for the same devices: a line for each. `sketched`: so that `sketch` can read it."""
    parts = [f'"version": {VERSION}', f'"boot_id": {json.dumps(boot_id)}']
    lines = {
        name: [json.dumps(_document(record), sort_keys=True) for record in records]
        for name, records in zip(Inventory._fields, found)
    }
    groups = _alike(found) if sketched else []
    if groups:
        ends = accumulate(len(line) + 2 for line in lines["devices"])  # in ASCII, each with a comma and a line break
        at = [f"{place:0{DIGITS}x}" for place in (0, *ends)]
        grouped = {line for group in groups for line in group}
        texts = [
            {
                "ids": BLANK.join(found.devices[line].id for line in group),
                "paths": BLANK.join(node.path for line in group for node in found.devices[line].nodes),
                "at": "".join(at[line] for line in group),
            }
            for group in groups
        ]
        parts.append(f'"groups": {json.dumps(texts)}')
        others = (at[line] for line in range(len(found.devices)) if line not in grouped)
        parts.append(f'"others": {json.dumps("".join(others))}')
    parts += [
        f'"{name}": [' + (f"\n{joined}\n" if (joined := ",\n".join(some)) else "") + "]" for name, some in lines.items()
    ]
    return ("{" + ",\n".join(parts) + "}\n").encode("ascii")


def _alike(found: Inventory) -> list[list[int]]:
    """The lines of the groups of at least FEWEST. None where a device is there twice, by two profiles."""
    tied = {end for link in found.links for end in (link.a, link.b)}
    tied.update(name for one in found.devices for name in (*one.part_of, *one.consists_of))
    groups: dict[str, list[int]] = {}
    for line, one in enumerate(found.devices):
        ties = one.part_of or one.consists_of or one.capacity or one.net_devices or one.pci_address
        names = (one.id, *[node.path for node in one.nodes])
        if not ties and one.id not in tied and one.health.is_usable and not any(BLANK in name for name in names):
            rest = one._replace(id="", names=(), nodes=(), symlinks=(), properties={})
            groups.setdefault(f"{len(one.nodes)} {rest}", []).append(line)
    if len({one.id for one in found.devices}) < len(found.devices):
        return []
    return [group for group in groups.values() if len(group) >= FEWEST]


def sketch(path: str, boot_id: str) -> Optional[Sketch]:
    """The inventory at `path` in this form; None where nothing is alike in it. Raises CdiError, not for all damage."""
    try:
        content = documents.content(path, LARGEST) or b""
    except CdiError:
        return None  # `read` says why
    begin, end = content.find(DEVICES), content.rfind(AFTER)
    if content.find(GROUPS, 0, max(begin, 0)) < 0 or end < begin:
        return None
    try:
        first = json.loads(content[:begin] + b"}")
        last = json.loads(b'{"kinds": [' + content[end + len(AFTER) :])
        if not OLDEST <= first["version"] <= VERSION or first["boot_id"] != boot_id:
            return None
        alike = tuple(Alike(group["ids"].split(BLANK), group["paths"], group["at"]) for group in first["groups"])
        if not all(map(_agrees, alike)):
            return None
        start, at = begin + len(DEVICES), first["others"]
        others = [int(at[digit : digit + DIGITS], 16) for digit in range(0, len(at), DIGITS)]
        devices = tuple((place, _device(json.loads(_line(content, start + place)))) for place in others)
        return Sketch(content, start, alike, devices, *_rest(last))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _agrees(group: Alike) -> bool:
    """Tell if the texts of a group have the same devices."""
    return len(group.at) == DIGITS * len(group.ids) and not group.node_count % len(group.ids)


def _line(content: bytes, start: int) -> bytes:
    """Return the line that begins at `start`, without the comma behind it."""
    return content[start : content.find(b"\n", start)].rstrip(b",")


def _rest(document: dict[str, Any]) -> tuple[tuple[Kind, ...], tuple[Link, ...]]:
    return tuple(map(_kind, document["kinds"])), tuple(map(_link, document["links"]))


def read(path: str, boot_id: str, in_turns: bool = False) -> Inventory:
    """The inventory at `path`. Raises CdiError if it is missing, damaged, newer or of another boot, as CallFailed
    if the system does not let us read it.

    `in_turns`: other threads get their turns meanwhile, which json alone gives them at the end.
    """
    try:
        content = documents.content(path, LARGEST)
    except CdiError as error:
        raise type(error)(f"inventory {error}") from None
    if content is None:
        raise CdiError(f"inventory {path}: does not exist; {AGAIN}")
    try:
        document = json.loads(content, object_hook=_as_it_is if in_turns else None)
    except (ValueError, RecursionError) as error:
        raise CdiError(f"inventory {path}: is damaged ({error}); {AGAIN}") from None
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise CdiError(f"inventory {path}: found version {version} of a newer release, expected {VERSION}; {AGAIN}")
    try:
        if not isinstance(version, int) or version < OLDEST:
            raise ValueError(f"found version {version!r}, expected {VERSION}")
        found = document["boot_id"]
        inventory = Inventory(tuple(map(_device, document["devices"])), *_rest(document))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CdiError(f"inventory {path}: is damaged ({documents.misfit(error)}); {AGAIN}") from None
    if found != boot_id:
        raise CdiError(f"inventory {path}: was written in boot {found!r}, but this is boot {boot_id!r}; {AGAIN}")
    return inventory


def is_rendered(content: bytes) -> bool:
    """Return True if these bytes have the form of an inventory or of a pool, of whichever boot and release."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"version", "boot_id", *Inventory._fields} <= document.keys()


def _as_it_is(found: dict[str, Any]) -> dict[str, Any]:
    return found


def boot_id(root: str = "/") -> str:
    """The kernel's id of this boot (proc(5), /proc/sys/kernel/random/boot_id), "" where a root has none."""
    try:
        with open(root.rstrip("/") + "/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return ""


# Fields that hold records -> of which type.
RECORDS = {"nodes": Node, "mounts": Mount, "hooks": Hook, "net_devices": NetDevice}


def _document(record: Any) -> dict[str, Any]:
    """Return a record without the fields that have their default, also in the records that it holds."""
    defaults = record._field_defaults
    document: dict[str, Any] = {}
    for key, value in zip(record._fields, record):
        if key in defaults and value == defaults[key]:
            continue
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            document[key] = _document(value)
        elif key in RECORDS:
            document[key] = [_document(item) for item in value]
        else:
            document[key] = as_document(value)
    return document


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _mapping(of: Callable[[Any], Any], value: Any) -> dict[str, Any]:
    return {key: of(item) for key, item in value.items()}


def _record(of: Any, document: dict[str, Any]) -> Any:
    """Return the record of type `of`. Raises ValueError for what nobody wrote so, AttributeError for no mapping."""
    fields = {}
    for key, value in document.items():
        try:
            fields[key] = FIELDS.get(key, _text)(value)
        except (AttributeError, TypeError):
            raise ValueError(f"{key}: found a value of another type") from None
    try:
        return of(**fields)
    except TypeError:
        raise ValueError("a field is missing, or is unknown") from None


def _records(of: Any, value: Any) -> tuple[Any, ...]:
    return tuple(_record(of, item) for item in _list(value))


# Field of a record -> what makes its value of that in JSON, or raises TypeError. All other fields are texts.
FIELDS: dict[str, Callable[[Any], Any]] = {
    **{key: partial(_records, of) for key, of in RECORDS.items()},
    **dict.fromkeys(("names", "env", "options", "args", "none"), _texts),
    **dict.fromkeys(("part_of", "consists_of", "pcie_path", "symlinks"), _texts),
    **dict.fromkeys(("major", "minor", "numa_node", "parallel", "bandwidth"), _number),
    **dict.fromkeys(("all", "device_numbers"), _flag),
    "additional_gids": lambda value: tuple(map(_number, _list(value))),
    "capacity": partial(_mapping, _number),
    "properties": partial(_mapping, _text),
    "health": partial(_record, Health),
    "edits": partial(_record, ContainerEdits),
}

_device = partial(_record, Device)
_kind = partial(_record, Kind)
_link = partial(_record, Link)
