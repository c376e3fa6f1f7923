# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: the devices that discovery found, for those who hand them out. Private API of fleet.cdi.

A text of JSON in /run. It holds device numbers and paths, which a reboot may change, so one of another boot is refused.
Whoever hands out devices reads it in every call: fields that say nothing are left out.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils.records import (
    CdiError,
    ContainerEdits,
    Device,
    Health,
    Hook,
    Kind,
    Link,
    Mount,
    NetDevice,
    Node,
    as_document,
)

VERSION = 3  # of the document; one more for every change that an older reader would get wrong
OLDEST = 2  # the oldest that is read: it says nothing of network cards
LARGEST = 64 << 20  # bytes of the document: that of a thousand devices has half a megabyte
AGAIN = "run the discovery again (fleet-cdi refresh, or the provision playbook)"


class Inventory(NamedTuple):
    """What is on this host, as far as somebody was told to offer it."""

    devices: tuple[Device, ...]
    kinds: tuple[Kind, ...] = ()
    links: tuple[Link, ...] = ()


def render(found: Inventory, boot_id: str) -> bytes:
    """The document, the same for the same devices: a line for each."""
    parts = [f'"version": {VERSION}', f'"boot_id": {json.dumps(boot_id)}']
    for name, records in zip(Inventory._fields, found):
        lines = ",\n".join(json.dumps(_document(record), sort_keys=True) for record in records)
        parts.append(f'"{name}": [{lines and chr(10) + lines + chr(10)}]')
    return ("{" + ",\n".join(parts) + "}\n").encode("ascii")


def read(path: str, boot_id: str, in_turns: bool = False) -> Inventory:
    """The inventory at `path`. Raises CdiError if it is missing, damaged, newer or of another boot.

    `in_turns`: other threads get their turns meanwhile, which json alone gives them at the end.
    """
    try:
        content = _content(path)
        if len(content) > LARGEST:
            raise CdiError(f"inventory {path}: is larger than {LARGEST >> 20} MiB; {AGAIN}")
        document = json.loads(content, object_hook=_as_it_is if in_turns else None)
    except FileNotFoundError:
        raise CdiError(f"inventory {path}: there is none; {AGAIN}") from None
    except OSError as error:
        raise CdiError(
            f"inventory {path}: can't be read ({error.strerror}); expected a file, readable to you"
        ) from None
    except (ValueError, RecursionError) as error:
        raise CdiError(f"inventory {path}: is damaged ({error}); {AGAIN}") from None
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise CdiError(f"inventory {path}: found version {version} of a newer release, expected {VERSION}; {AGAIN}")
    try:
        if not isinstance(version, int) or version < OLDEST:
            raise ValueError(f"found version {version!r}, expected {VERSION}")
        found = document["boot_id"]
        inventory = Inventory(
            tuple(map(_device, document["devices"])),
            tuple(map(_kind, document["kinds"])),
            tuple(Link(**link) for link in document["links"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CdiError(f"inventory {path}: is damaged ({type(error).__name__}: {error}); {AGAIN}") from None
    if found != boot_id:
        raise CdiError(f"inventory {path}: was written in boot {found!r}, but this is boot {boot_id!r}; {AGAIN}")
    return inventory


def _as_it_is(found: dict[str, Any]) -> dict[str, Any]:
    return found


def _content(path: str) -> bytes:
    """At most LARGEST + 1 bytes of a regular file. Raises OSError.

    Not `files.content`: each call of an executable would import that file for this alone.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read(LARGEST + 1)


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
    """A record without the fields that are as they are by default, in the records that it holds, too."""
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
