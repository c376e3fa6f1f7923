# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: the devices that discovery found, for those who hand them out.

A text of JSON in /run. It holds device numbers and paths, which a reboot may change, so one of another boot is refused.
Every grant reads it, so empty fields are left out. Where thousands of devices are
alike, the document names them in `alike` as well, so that a reader can choose among them and read the lines of those
alone that it chose (`sketch`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from .. import documents
from ..records import CdiError, ContainerEdits, Device, Health, Hook, Kind, Link, Mount, NetDevice, Node, as_document

VERSION = 3  # of the document; one more for every change that an older reader would get wrong
OLDEST = 2  # the oldest that is read: it says nothing of network cards
LARGEST = 64 << 20  # bytes of the document: that of a thousand devices has half a megabyte
AGAIN = "run the discovery again (fleet-cdi refresh, or the provision playbook)"


FEWEST = 64  # devices that are alike, for which it pays to name them

DEVICES, AFTER = b',\n"devices": [\n', b'\n],\n"kinds": ['  # no text in JSON has a line break


class Inventory(NamedTuple):
    """The devices of this host that the settings select."""

    devices: Sequence[Device]
    kinds: tuple[Kind, ...] = ()
    links: tuple[Link, ...] = ()


class Alike(NamedTuple):
    """Devices that only ids, names and nodes tell apart: nobody's part, without parts, capacity or links."""

    ids: Sequence[str]
    paths: Sequence[str]  # of their nodes, as many for each device
    at: Sequence[int]  # which line of the document is whose


class Sketch(NamedTuple):
    """An inventory of which only `others` is read: the devices that are in no group of `alike`."""

    lines: Sequence[bytes]
    alike: tuple[Alike, ...]
    others: tuple[tuple[int, Device], ...]  # line, device
    kinds: tuple[Kind, ...]
    links: tuple[Link, ...]

    def device(self, line: int) -> Device:
        """The device in one line. Raises CdiError."""
        try:
            return _device(json.loads(self.lines[line]))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise CdiError(f"inventory: device {line} is damaged ({error}); {AGAIN}") from None


def render(found: Inventory, boot_id: str, sketched: bool = False) -> bytes:
    """The document, the same for the same devices: a line for each. `sketched`: so that `sketch` can read it."""
    parts = [f'"version": {VERSION}', f'"boot_id": {json.dumps(boot_id)}']
    alike = _alike(found) if sketched else []
    if alike:
        parts.append(f'"alike": {json.dumps([group._asdict() for group in alike])}')
    for name, records in zip(Inventory._fields, found):
        lines = ",\n".join(json.dumps(_document(record), sort_keys=True) for record in records)
        parts.append(f'"{name}": [{lines and chr(10) + lines + chr(10)}]')
    return ("{" + ",\n".join(parts) + "}\n").encode("ascii")


def _alike(found: Inventory) -> list[Alike]:
    """The groups of at least FEWEST. None where a device is there twice, by two profiles."""
    tied = {end for link in found.links for end in (link.a, link.b)}
    tied.update(name for one in found.devices for name in (*one.part_of, *one.consists_of))
    groups: dict[str, Alike] = {}
    for line, one in enumerate(found.devices):
        ties = one.part_of or one.consists_of or one.capacity or one.net_devices or one.pci_address
        if not ties and one.id not in tied and one.health.is_usable:
            rest = one._replace(id="", names=(), nodes=(), symlinks=(), properties={})
            group = groups.setdefault(f"{len(one.nodes)} {rest}", Alike([], [], []))
            for whole, more in zip(group, ([one.id], [node.path for node in one.nodes], [line])):
                whole.extend(more)  # type: ignore[attr-defined]  # mypy joins lists of different types to object
    if len({one.id for one in found.devices}) < len(found.devices):
        return []
    return [group for group in groups.values() if len(group.ids) >= FEWEST]


def sketch(path: str, boot_id: str) -> Optional[Sketch]:
    """The inventory at `path` in this form; None where nothing is alike in it. Raises CdiError, not for all damage."""
    try:
        content = documents.content(path, LARGEST) or b""
    except CdiError:
        return None  # `read` says why
    head, _devices, rest = content.partition(DEVICES)
    body, _after, tail = rest.partition(AFTER)
    if b'\n"alike": [' not in head or not tail:
        return None
    try:
        first = json.loads(head + b"}")
        last = json.loads(b'{"kinds": [' + tail)
        if not OLDEST <= first["version"] <= VERSION or first["boot_id"] != boot_id:
            return None
        lines = body.split(b",\n")
        alike = tuple(Alike(**group) for group in first["alike"])
        named = {line for group in alike for line in group.at}
        if any(len(group.ids) != len(group.at) or len(group.paths) % len(group.ids) for group in alike):
            return None
        others = tuple((line, _device(json.loads(text))) for line, text in enumerate(lines) if line not in named)
        return Sketch(lines, alike, others, *_rest(last))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _rest(document: dict[str, Any]) -> tuple[tuple[Kind, ...], tuple[Link, ...]]:
    return tuple(map(_kind, document["kinds"])), tuple(Link(**link) for link in document["links"])


def read(path: str, boot_id: str, in_turns: bool = False) -> Inventory:
    """The inventory at `path`. Raises CdiError if it is missing, damaged, newer or of another boot.

    `in_turns`: other threads get their turns meanwhile, which json alone gives them at the end.
    """
    try:
        content = documents.content(path, LARGEST)
    except CdiError as error:
        raise CdiError(f"inventory {error}") from None
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
        raise CdiError(f"inventory {path}: is damaged ({type(error).__name__}: {error}); {AGAIN}") from None
    if found != boot_id:
        raise CdiError(f"inventory {path}: was written in boot {found!r}, but this is boot {boot_id!r}; {AGAIN}")
    return inventory


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


def _fields(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record that holds lists, as its type takes them. Raises TypeError for a field too few or many."""
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in document.items()}
    for key in RECORDS.keys() & fields.keys():
        record = RECORDS[key]
        fields[key] = tuple(record(**_fields(item)) for item in fields[key])
    return fields


def _device(document: dict[str, Any]) -> Device:
    fields = _fields(document)
    fields["health"] = Health(**fields.get("health", {"state": "unknown"}))
    return Device(**fields)


def _kind(document: dict[str, Any]) -> Kind:
    fields = _fields(document)
    fields["edits"] = ContainerEdits(**_fields(fields.get("edits", {})))
    return Kind(**fields)
