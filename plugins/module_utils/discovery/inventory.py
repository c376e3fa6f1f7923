# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: the devices that discovery found, for those who hand them out. Private API of fleet.cdi.

A text of JSON in /run. It holds device numbers and paths, which a reboot may change, so one of another boot is refused.
"""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Health, Node, as_document

VERSION = 1  # of the document; one more for every change that an older reader would get wrong
AGAIN = "run the discovery again (fleet-cdi devices, or the provision playbook)"


def render(devices: tuple[Device, ...], boot_id: str) -> bytes:
    """The document, the same for the same devices."""
    document = {"version": VERSION, "boot_id": boot_id, "devices": as_document(devices)}
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("ascii")


def read(path: str, boot_id: str) -> tuple[Device, ...]:
    """The devices in the inventory at `path`. Raises CdiError if it is missing, damaged, newer or of another boot."""
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except FileNotFoundError:
        raise CdiError(f"inventory {path}: there is none; {AGAIN}") from None
    except OSError as error:
        raise CdiError(
            f"inventory {path}: can't be read ({error.strerror}); expected a file, readable to you"
        ) from None
    except ValueError as error:
        raise CdiError(f"inventory {path}: is damaged ({error}); {AGAIN}") from None
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise CdiError(f"inventory {path}: found version {version} of a newer release, expected {VERSION}; {AGAIN}")
    try:
        if version != VERSION:
            raise ValueError(f"found version {version!r}, expected {VERSION}")
        found, devices = document["boot_id"], tuple(map(_device, document["devices"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CdiError(f"inventory {path}: is damaged ({type(error).__name__}: {error}); {AGAIN}") from None
    if found != boot_id:
        raise CdiError(f"inventory {path}: was written in boot {found!r}, but this is boot {boot_id!r}; {AGAIN}")
    return devices


def boot_id(root: str = "/") -> str:
    """The kernel's id of this boot (proc(5), /proc/sys/kernel/random/boot_id), "" where a root has none."""
    try:
        with open(root.rstrip("/") + "/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return ""


TUPLES = ("names", "env", "symlinks")


def _device(document: dict[str, Any]) -> Device:
    """The record of one device. Raises TypeError for a field too few or too many, as does Node."""
    fields: dict[str, Any] = {key: tuple(value) if key in TUPLES else value for key, value in document.items()}
    fields["nodes"] = tuple(Node(**node) for node in fields["nodes"])
    fields["health"] = Health(**fields["health"])
    return Device(**fields)
