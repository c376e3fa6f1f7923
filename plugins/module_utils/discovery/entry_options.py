# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of an entry of the devices settings: their tables, and a host's check of them.

The tables are JSON Schema, so that the controller can check whole settings documents with the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from .. import schema
from ..records import CdiError
from ..schema import END, Wrong
from .profiles import (
    amd,
    block,
    drm,
    fpga,
    infiniband,
    intel,
    intel_accel,
    intel_io,
    intel_mei,
    misc,
    net,
    nvidia,
    nvidia_modes,
    rule,
    sriov,
    tty,
    usb,
    vfio,
    video,
)
from .select import Profile

PROFILES: dict[str, Profile] = {
    "amd": amd.PROFILE,
    "block": block.BLOCK,
    "drm": drm.PROFILE,
    "dsa": intel_io.DSA,
    "fpga": fpga.PROFILE,
    "gaudi": intel_accel.GAUDI,
    "iaa": intel_io.IAA,
    "infiniband": infiniband.PROFILE,
    "intel": intel.PROFILE,
    "intel_mei": intel_mei.PROFILE,
    "misc": misc.PROFILE,
    "net": net.PROFILE,
    "nvidia": nvidia.PROFILE,
    **nvidia_modes.PROFILES,
    "npu": intel_accel.NPU,
    "nvme": block.NVME,
    "qat": intel_io.QAT,
    "rule": rule.PROFILE,
    "sriov": sriov.PROFILE,
    "tty": tty.PROFILE,
    "usb": usb.PROFILE,
    "vfio": vfio.PROFILE,
    "video": video.PROFILE,
}

LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
CLASS = "[A-Za-z][A-Za-z0-9_.-]{0,61}[A-Za-z0-9]"
FIELDS = ("index", "name", "sysname", "pci_address", "path")
FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# No line break: it does not fit into an environment variable of every shell.
TEXT = r"([^{}\n\0]|\{\{|\}\}|\{(" + "|".join(FIELDS) + r")\})*" + END
FIELDS_RULE = "text with no fields but " + ", ".join(f"{{{field}}}" for field in FIELDS)

COMMON: dict[str, dict[str, Any]] = {
    "kind": {
        "type": "string",
        "pattern": rf"^(?=[^/]{{2,253}}/)(?=[A-Za-z]){LABEL}(\.{LABEL})*/{CLASS}{END}",
        "description": "vendor/class, each of two characters or more, as in fleet.cdi/gpu",
    },
    "name_by": {
        "type": "array",
        "items": {"enum": ["index", "pci", "serial", "uuid", "sysname", "type-index"]},
        "minItems": 1,
        "uniqueItems": True,
    },
    "container_path": {"type": "string", "pattern": "^/" + TEXT, "description": "an absolute path, " + FIELDS_RULE},
    "env": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*" + END, "description": "letters, digits and _"},
        "additionalProperties": {"type": "string", "pattern": "^" + TEXT, "description": FIELDS_RULE},
    },
    "required": {"type": "boolean"},
    "all": {"type": "boolean"},
    "none": {"type": "boolean"},
    "symlinks": {"type": "boolean"},
    "additional_gids": {"type": "boolean"},
    "device_numbers": {"type": "boolean"},
    "topology_file": {
        "type": "string",
        "pattern": r"^/[^\n\0]+" + END,
        "description": "an absolute path on the host, as in /etc/fleet-cdi/topology.xml",
    },
}


def entry_schema(profile: str) -> dict[str, Any]:
    """The JSON Schema of an entry of this profile."""
    found = PROFILES[profile]
    return {
        "type": "object",
        "properties": {"profile": {"const": profile}, **COMMON, **found.options},
        "required": ["profile", *found.required],
        "additionalProperties": False,
    }


# What any entry is; its profile says more.
ENTRY = {"type": "object", "required": ["profile"], "properties": {"profile": {"type": "string"}}}


def check(entries: Any) -> None:
    """Raise CdiError for the first thing wrong with the devices settings, naming entry and option."""
    schema.check(entries, {"type": "object"}, "devices")
    for name, entry in entries.items():
        where = f"devices entry {name!r}"
        for wrong in wrong_options(entry):
            raise CdiError(f"{where}: {wrong}")
        if "kind" not in entry:
            gives = f"{where} gives the kind of its devices unless option 'kind' does"
            schema.check(kind_of(name, entry), COMMON["kind"], gives)


def wrong_options(entry: Any, besides: Collection[str] = ()) -> Iterator[Wrong]:
    """Yield the errors in the options of an entry. `besides`: names that may stand where these options do."""
    odd = list(schema.errors(entry, ENTRY))
    if not odd and entry["profile"] not in PROFILES:
        odd = [schema.wrong_name(("profile",), "profile", entry["profile"], sorted(PROFILES))]
    if odd:
        yield from odd
        return
    for path, text in _templates(entry):
        for field in FIELD.findall(text):
            if field and field not in FIELDS:
                yield schema.wrong_name(path, "field", field, FIELDS)
    wanted = entry_schema(entry["profile"])
    yield from schema.errors(
        entry, {**wanted, "properties": {**wanted["properties"], **{name: {} for name in besides}}}
    )


def everything() -> dict[str, dict[str, Any]]:
    """Entries that look for all that can be found without being told more; a host need not have any of it."""
    return {name: {"profile": name, "required": False} for name, one in PROFILES.items() if not one.required}


def kind_of(name: str, entry: dict[str, Any]) -> str:
    """The kind of the devices of an entry: its own, or its profile's."""
    return str(entry.get("kind") or PROFILES[entry["profile"]].kind or f"fleet.cdi/{name}")


def by_kind(entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Group the entries by the kind of their devices, kinds in order. Raises CdiError for a wrong entry."""
    check(entries)
    grouped: dict[str, dict[str, dict[str, Any]]] = {}
    for name, entry in entries.items():
        grouped.setdefault(kind_of(name, entry), {})[name] = entry
    return dict(sorted(grouped.items()))


def common(entry: dict[str, Any], option: str) -> bool:
    """Whether an entry has one of the common options that are off unless the entry or its profile says otherwise."""
    return bool(entry.get(option, PROFILES[entry["profile"]].defaults.get(option, False)))


def expand(template: str, values: dict[str, str]) -> str:
    """`template`, which `check` let pass, with its fields filled in; "{{" stands for a brace."""
    return FIELD.sub(lambda found: values[found[1]] if found[1] else found[0][0], template)


def _templates(entry: dict[str, Any]) -> Iterable[tuple[tuple[str, ...], str]]:
    """Yield (path, text) for each text with fields."""
    env = entry.get("env")
    found: list[tuple[tuple[str, ...], Any]] = [(("container_path",), entry.get("container_path"))]
    found += [(("env", name), text) for name, text in env.items()] if isinstance(env, dict) else []
    return [(path, text) for path, text in found if isinstance(text, str)]
