# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of hosts on the controller: their variables, their JSON Schema and their layers.

Schema and default of what hosts know are in module_utils/converge/host/settings.py, the rest of each variable is in
settings.yml.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import device_plugin_settings
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import settings as host_tables
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host.host_setting import HostSetting
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.schema import END, Schema, shown

COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROLES = ("cdi_host", "cdi_device_plugin", "cdi_runtime_hooks")
PREFIXES = (*(f"{role}_" for role in ROLES), "fleet_cdi_")
DEVICES = "cdi_host_devices"
PLUGINS = "cdi_host_plugins"
RESOURCES = "cdi_device_plugin_resources"

TRUE = (*host_tables.YES, "1", "1.0", "y", "t")  # what the role's argument spec takes for true
WORDS = [form for word in (*host_tables.YES, *host_tables.NO) for form in (word, word.title(), word.upper())]

# What module cdi_host takes from the variables of each role.
TAKEN = {"cdi_host": host_tables.SETTINGS, "cdi_device_plugin": device_plugin_settings.DEVICE_PLUGIN}

ENTRIES = "entries by name, as in {gpus: {profile: drm}}"


class Variable(NamedTuple):
    """A variable of the roles or playbooks."""

    schema: Schema  # of the value that hosts get
    default: Any  # None for an old name
    texts: Mapping[str, Any]  # of settings.yml


class Texts(NamedTuple):
    """What settings.yml has."""

    roles: Mapping[str, Any]  # role -> entry point -> short_description, description
    variables: Mapping[str, Any]


@lru_cache(maxsize=1)
def texts() -> Texts:
    """Return what settings.yml has."""
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".yml", encoding="utf-8") as file:
        return Texts(**yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@lru_cache(maxsize=1)
def all_variables() -> dict[str, Variable]:
    """Return all variables of the roles and playbooks by name."""
    found: dict[str, Variable] = {}
    for name, about in texts().variables.items():
        found[name] = Variable(*_schema_and_default(name, about), about)
    return found


def _schema_and_default(name: str, about: Mapping[str, Any]) -> tuple[Schema, Any]:
    new = about.get("renamed_to")
    if new:
        return {**_schema_and_default(new, texts().variables[new])[0], "deprecated": True}, None
    if "same_as" in about:
        return _schema_and_default(about["same_as"], {})
    if "schema" in about:
        return about["schema"], about["default"]
    role = next(role for role in TAKEN if name.startswith(f"{role}_"))
    setting = TAKEN[role][name[len(role) + 1 :]]
    return (_devices() if name == DEVICES else setting.schema), setting.default


@lru_cache(maxsize=1)
def of_playbooks() -> frozenset[str]:
    """Return the variables in playbooks/*.meta.yml. Each playbook with such a file checks its own variables itself."""
    found: set[str] = set()
    for path in glob.glob(os.path.join(COLLECTION, "playbooks/*.meta.yml")):
        with open(path, encoding="utf-8") as file:
            for entry in yaml.safe_load(file)["argument_specs"].values():
                found.update(entry["options"])
    return frozenset(found)


def layered() -> list[str]:
    """Return the names of the variables that have layers: all lists and mappings."""
    return [name for name, one in all_variables().items() if isinstance(one.default, (list, dict))]


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the variables of a host. It allows variables of others."""
    variables = {name: _variable(one) for name, one in all_variables().items()}
    bases = {name: _layer(variables[name]) for name in layered()}
    ours = "|".join(f"{role}_" for role in ROLES)  # playbooks may have further ones
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of fleet.cdi",
        "type": "object",
        "properties": variables,
        "patternProperties": {f"^{name}_.": layer for name, layer in bases.items()},
        "propertyNames": {
            "anyOf": [
                {"enum": list(variables)},
                {
                    "pattern": f"^({'|'.join(bases)})_.",
                    "description": "a layer of a variable, as in cdi_host_devices_site",
                },
                {"pattern": f"^(?!{ours})", "description": "a variable of others"},
            ]
        },
    }


def _variable(variable: Variable) -> dict[str, Any]:
    """Return the schema of a variable. `-e name=value` on the command line gives text."""
    found = dict(variable.schema)
    if found.get("type") == "boolean":
        found.update({"type": ["boolean", "string"], "pattern": f"^({'|'.join(WORDS)}){END}"})
    if found.get("type") == "integer":
        found.update({"type": ["integer", "string"], "pattern": f"^[0-9]{{1,9}}{END}"})
    return found if variable.default is None else {**found, "default": variable.default}


def _layer(schema: Any) -> Any:
    """Return the schema of a layer, which may lack what another layer has. A condition (`if`) stays."""
    if isinstance(schema, list):
        return [_layer(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if not (key == "required" and isinstance(value, list))}
    return {key: value if key == "if" else _layer(value) for key, value in kept.items()}


def layers(name: str, variables: Iterable[str]) -> list[str]:
    """Return the layers of variable `name` among `variables`: itself first, then by name, the order of their merge."""
    return sorted(one for one in variables if one == name or (one.startswith(f"{name}_") and len(one) > len(name) + 1))


def merge(name: str, documents: Mapping[str, Any], default: Any) -> Any:
    """Return the value of variable `name` with all its layers in `documents` (variable name -> value).

    A layer adds to those before it: items to a list, which has each once, and keys to a mapping. Mappings of the same
    key are merged, at any depth; otherwise the later layer counts, also for a list in a mapping. `default`, a list or a
    mapping, counts if `documents` does not have the variable itself. Raises CdiError for a layer of another type.
    """
    merged = default
    for layer in layers(name, documents):
        value = documents[layer]
        if not isinstance(value, sort(default)):
            raise CdiError(f"{layer}: found {shown(value)}; expected {expected_layer(name, default)}")
        merged = value if layer == name else _added(merged, value)
    return merged


def sort(value: Any) -> Any:
    """Return the types of a layer of the value."""
    return (list, tuple) if isinstance(value, (list, tuple)) else Mapping


def expected_layer(name: str, default: Any) -> str:
    """Return the words after "expected" for a layer of variable `name`."""
    if name == DEVICES:
        return ENTRIES
    return "a list" if isinstance(default, (list, tuple)) else "a mapping"


def host_settings(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of one host as module cdi_host takes them, from its variables (name -> plain data).

    The names lose the prefix of role cdi_host, and layers are merged. With `cdi_host_device_plugin` the variables of
    role cdi_device_plugin are in `device_plugin`. Variables that a host does not have are left out. An old name counts
    unless the new one has another value than its default. Raises CdiError for a layer of another type than its
    variable.
    """
    ours = {name: value for name, value in variables.items() if str(name).startswith(PREFIXES)}
    for old, new in old_names(ours).items():
        if ours.get(new, all_variables()[new].default) == all_variables()[new].default:
            ours[new] = ours[old]
    host, plugin = (_without_prefix(ours, role, names) for role, names in TAKEN.items())
    if wants_device_plugin(ours):
        host[host_tables.SECTION] = plugin
    return host


def wants_device_plugin(variables: Mapping[str, Any]) -> bool:
    """Return True if the variables of a host ask for the device plugin."""
    return str(variables.get("cdi_host_device_plugin", False)).lower() in TRUE


def old_names(variables: Iterable[str]) -> dict[str, str]:
    """Return the old names of variables of role cdi_host among `variables`: old name -> new name."""
    return {old: new for old, new in _renamed().items() if old in variables}


@lru_cache(maxsize=1)
def _renamed() -> dict[str, str]:
    """Return old name -> new name of each renamed variable of role cdi_host."""
    found = texts().variables.items()
    return {
        name: about["renamed_to"] for name, about in found if "renamed_to" in about and name.startswith("cdi_host_")
    }


def _without_prefix(variables: Mapping[str, Any], role: str, names: Mapping[str, HostSetting]) -> dict[str, Any]:
    found = {}
    for short, setting in names.items():
        name = f"{role}_{short}"
        if setting.schema.get("type") in ("object", "array") and layers(name, variables):
            found[short] = merge(name, variables, setting.default)
        elif name in variables:
            found[short] = variables[name]
    return found


def offers_nothing(document: Mapping[str, Any]) -> bool:
    """Return True if the settings of a host ask for no device, neither in specs nor for an executable."""
    return not any(document.get(name) for name in (*layers(DEVICES, document), "cdi_host_plugins"))


def wants_devices(hostvars: Any, host: str) -> bool:
    """Return True if the variables of a host ask for devices in specs."""
    variables = hostvars[host]
    return any(variables.get(name) for name in layers(DEVICES, variables))


def _added(base: Any, more: Any) -> Any:
    if isinstance(base, (list, tuple)):
        return [*base, *(item for item in more if item not in base)]
    return {**base, **{key: _below(base.get(key), value) for key, value in more.items()}}


def _below(base: Any, more: Any) -> Any:
    return _added(base, more) if isinstance(base, Mapping) and isinstance(more, Mapping) else more


def _devices() -> dict[str, Any]:
    """Return the schema of entries by name. The profile of an entry decides which options it has."""
    schemas = {profile: entry_options.entry_schema(profile) for profile in sorted(entry_options.PROFILES)}
    every = sorted({name for entry in schemas.values() for name in entry["properties"]})
    return {
        "type": "object",
        "description": ENTRIES,
        "additionalProperties": {
            "type": "object",
            "description": "an entry, as in {profile: drm}",
            "required": ["profile"],
            "properties": {"profile": {"enum": list(schemas)}},
            "allOf": [
                {"if": {"properties": {"profile": {"const": profile}}, "required": ["profile"]}, "then": entry}
                for profile, entry in schemas.items()
            ]
            + [{"if": {"required": ["profile"]}, "else": {"propertyNames": {"enum": every}}}],
        },
    }
