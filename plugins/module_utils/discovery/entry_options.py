# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of an entry of the devices settings: their tables, and a host's check of them. Private API of fleet.cdi.

The tables are JSON Schema (draft 2020-12), so that the controller can check whole settings documents with the same
rules. A host has no jsonschema: `check` applies the keywords that the tables use, and says what is wrong in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from ..records import CdiError
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

END = r"$(?!\n)"  # "$" alone lets a final line break through in Python, and \Z is no JSON Schema
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
        "description": "vendor/class, as in fleet.cdi/gpu",
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


def check(entries: Any) -> None:
    """Raise CdiError for the first thing wrong with the devices settings, naming entry and option."""
    _is(entries, {"type": "object"}, "devices")
    for name, entry in entries.items():
        where = f"devices entry {name!r}"
        _is(entry, {"type": "object", "required": ["profile"], "properties": {"profile": {"type": "string"}}}, where)
        if entry["profile"] not in PROFILES:
            raise _unknown(where, "profile", entry["profile"], PROFILES)
        for option, text in _templates(entry):
            for field in FIELD.findall(text):
                if field and field not in FIELDS:
                    raise _unknown(f"{where}, option {option!r}", "field", field, FIELDS)
        _is(entry, entry_schema(entry["profile"]), where)
        _is(kind_of(name, entry), COMMON["kind"], f"{where} gives the kind of its devices unless option 'kind' does")


def everything() -> dict[str, dict[str, Any]]:
    """Entries that look for all that can be found without being told more; a host need not have any of it."""
    return {name: {"profile": name, "required": False} for name, one in PROFILES.items() if not one.required}


def kind_of(name: str, entry: dict[str, Any]) -> str:
    """The kind of the devices of an entry: its own, or its profile's."""
    return str(entry.get("kind") or PROFILES[entry["profile"]].kind or f"fleet.cdi/{name}")


def common(entry: dict[str, Any], option: str) -> bool:
    """Whether an entry has one of the common options that are off unless the entry or its profile says otherwise."""
    return bool(entry.get(option, PROFILES[entry["profile"]].defaults.get(option, False)))


def expand(template: str, values: dict[str, str]) -> str:
    """`template`, which `check` let pass, with its fields filled in; "{{" stands for a brace."""
    return FIELD.sub(lambda found: values[found[1]] if found[1] else found[0][0], template)


def _templates(entry: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """(option, text) of what is a text with fields."""
    env = entry.get("env")
    found = [("container_path", entry.get("container_path"))]
    found += [(f"env.{name}", text) for name, text in env.items()] if isinstance(env, dict) else []
    return [(option, text) for option, text in found if isinstance(text, str)]


TYPES: dict[str, Any] = {"string": str, "boolean": bool, "integer": int, "array": (list, tuple), "object": dict}


def _has_type(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


# A type of JSON Schema, and a keyword that limits it, in words.
WORDS = {
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
LIMITS = {
    "minimum": "of {} or more",
    "maximum": "of {} or less",
    "minItems": "with {} or more items",
    "minProperties": "with {} or more entries",
    "uniqueItems": "without any item twice",
    "pattern": "that matches {}",
}
# What a value is, the first that fits.
SORTS = (
    (bool, "a boolean"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a text"),
    (Mapping, "a mapping"),
    ((list, tuple), "a list"),
)
LONGEST = 60  # letters of a value that a message shows


def expectation(schema: Mapping[str, Any]) -> str:
    """What a part of JSON Schema asks for, as a message says it after "expected"."""
    if "description" in schema:
        return str(schema["description"])
    if "enum" in schema or "const" in schema:
        known = schema.get("enum", [schema.get("const")])
        return ("one of " if len(known) > 1 else "") + ", ".join(map(str, known))
    types = schema.get("type", [])
    words = [WORDS[name] for name in ([types] if isinstance(types, str) else types)]
    limits = {key: text for key, text in LIMITS.items() if key in schema}
    if {"minimum", "maximum"} <= limits.keys():
        limits = {**limits, "minimum": "from {}", "maximum": "to {}"}
    return " ".join([" or ".join(words) or "a value", *(text.format(schema[key]) for key, text in limits.items())])


def shown(value: Any) -> str:
    """A value and its sort, as a message says it after "found"."""
    if value is None:
        return "nothing"
    text = repr(value)
    sort = next((word for types, word in SORTS if isinstance(value, types)), "a " + type(value).__name__)
    return f"{text if len(text) <= LONGEST else text[: LONGEST - 3] + '...'} ({sort})"


def _is(value: Any, schema: dict[str, Any], where: str) -> None:
    """Raise CdiError unless `value` is what the part of JSON Schema in `schema` says."""
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_has_type(value, name) for name in types):
        raise CdiError(f"{where}: found {shown(value)}; expected {expectation(schema)}")
    if any(keyword in CHECKS and not CHECKS[keyword](value, limit) for keyword, limit in schema.items()):
        raise CdiError(f"{where}: found {value!r}; expected {expectation(schema)}")
    if isinstance(value, (list, tuple)):
        for item in value:
            _is(item, schema.get("items", {}), where)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for key in schema.get("required", ()):
            if key not in value:
                raise CdiError(f"{where}: option {key!r} is missing; every such entry needs it")
        for key, item in value.items():
            inner = f"{where}, option {key!r}" if ", option " not in where else f"{where[:-1]}.{key}'"
            _is(key, schema.get("propertyNames", {}), inner)
            rest = schema.get("additionalProperties", True)
            if key in properties or isinstance(rest, dict):
                _is(item, properties.get(key, rest), inner)
            elif not rest:
                raise _unknown(where, "option", str(key), properties)


CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "enum": lambda value, limit: value in limit,
    "const": lambda value, limit: bool(value == limit),
    "pattern": lambda value, limit: not isinstance(value, str) or re.search(limit, value) is not None,
    "minimum": lambda value, limit: not isinstance(value, int) or value >= limit,
    "maximum": lambda value, limit: not isinstance(value, int) or value <= limit,
    "minItems": lambda value, limit: not isinstance(value, (list, tuple)) or len(value) >= limit,
    "minProperties": lambda value, limit: not isinstance(value, dict) or len(value) >= limit,
    "uniqueItems": lambda value, _true: not isinstance(value, (list, tuple)) or len({*map(repr, value)}) == len(value),
}


def _unknown(where: str, what: str, found: str, known: Iterable[str]) -> CdiError:
    import difflib  # only where there is an error to explain: it costs more than the check

    near = difflib.get_close_matches(found, list(known), 1, 0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return CdiError(f"{where}: found the unknown {what} {found!r}; expected one of {', '.join(sorted(known))}{hint}")
