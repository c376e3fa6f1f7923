# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of hosts on the controller: their layers, their JSON Schema, and their faults in words.

The variables come from the argument_specs of the roles. The options of an entry of the devices settings, and of a
resource of the device plugin, come from the tables in module_utils. Here they become one schema, so nothing is written
twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Callable, NamedTuple, Optional

import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import table
from ansible_collections.fleet.cdi.plugins.module_utils.schema import (
    ABSOLUTE,
    END,
    PATH,
    did_you_mean,
    expectation,
    shown,
)
from ansible_collections.fleet.cdi.plugins.module_utils.schema import TYPES as STRICT

ROLES = ("cdi_host", "cdi_device_plugin", "cdi_runtime_hooks")
PREFIXES = tuple(f"{role}_" for role in ROLES)
DEVICES = "cdi_host_devices"
LAYER = "cdi_host_devices_"  # with any suffix: a further layer of DEVICES
RESOURCES = "cdi_device_plugin_resources"
BOOLEANS = ("true", "false", "yes", "no", "on", "off")

WORDS = "^(" + "|".join(form for word in BOOLEANS for form in (word, word.title(), word.upper())) + ")" + END

# The types of Ansible's argument_specs as JSON Schema. `-e name=value` on the command line gives text.
TYPES: dict[str, dict[str, Any]] = {
    "bool": {"type": ["boolean", "string"], "pattern": WORDS, "description": "true or false"},
    "int": {
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": r"^[0-9]{1,9}" + END,
        "description": "a whole number, 0 or more",
    },
    "list": {"type": "array", "items": {"type": "string"}, "description": "a list of text"},
    "path": ABSOLUTE,
    "str": {"type": "string"},
}

# The argument of runtimes.detect.named.
VERSIONS: dict[str, Any] = {
    "type": "object",
    "description": "versions of container runtimes by name, as in {podman: 4.9.3}",
    "propertyNames": {"enum": list(table.ENGINES)},
    "additionalProperties": {
        "type": "string",  # 1.30 is a number in YAML, and then 1.3
        "pattern": r"^v?[0-9]{1,6}\.[0-9]{1,6}(?![0-9])",
        "description": "the version of a release as text, as in '1.30'",
    },
}

# The argument of release.host.refuse_unsupported.
DISTRIBUTIONS = {
    "type": "object",
    "description": "lists of VERSION_ID by ID of os-release(5), as in {ol: ['9']}",
    "additionalProperties": {
        "type": "array",
        "description": "a list of VERSION_ID as text, as in ['9']",
        "items": {"type": "string", "description": "a VERSION_ID as text, as in '9'"},
    },
}

# The options of module cdi_plugin, by resource-type and name, in the grammar of protocol.grammar.
PLUGINS = {
    "type": "object",
    "description": "configurations by resource-type and name, as in {gpu/drm: {plugin: drm}}",
    "propertyNames": {
        "pattern": r"^[A-Za-z][A-Za-z0-9]{0,15}/[A-Za-z0-9][A-Za-z0-9_-]{0,63}" + END,
        "description": "a resource-type and a name, as in gpu/drm",
    },
    "additionalProperties": {
        "type": "object",
        "description": "plugin, args, description, cdi_version",
        "properties": {
            "plugin": {
                "type": "string",
                "pattern": r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}" + END,
                "description": "the name of an executable, as in generic-tty",
            },
            "args": {"type": "object"},
            "description": {"type": "string"},
            "cdi_version": {"enum": ["0.0.1", "0.0.2"]},
        },
        "additionalProperties": False,
    },
}

# The input of converge.driver.virtual_functions.
FUNCTIONS = {
    "type": "object",
    "description": 'numbers of virtual functions by device, as in {"0000:3b:00.0": 8}',
    "propertyNames": {
        "pattern": r"^[^/=.\s][^/=\s]*" + END,
        "description": "a PCI address or an interface, as in 0000:3b:00.0 or ens1f0",
    },
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 99999},
}

# The options of module container_runtime, by runtime.
RUNTIME_SETTINGS = {
    "type": "object",
    "description": "settings of container runtimes by name, as in {docker: {restart: when_idle}}",
    "propertyNames": {"enum": list(table.ENGINES)},
    "additionalProperties": {
        "type": "object",
        "description": "state, spec_dirs, installation, config, restart, on_unsupported",
        "properties": {
            "state": {"enum": ["enabled", "disabled", "absent"]},
            "spec_dirs": {"type": "array", "items": TYPES["path"], "minItems": 1},
            "installation": {"enum": ["system", "snap", "k3s", "rke2", "microk8s"]},
            "config": TYPES["path"],
            "restart": {"enum": ["never", "when_idle", "always"]},
            "on_unsupported": {"enum": ["fail", "warn"]},
        },
        "additionalProperties": False,
    },
}

# The fields of the device plugin's configuration.
PLUGIN: dict[str, Any] = configuration.SCHEMA["properties"]

SECTIONS: dict[str, dict[str, Any]] = {
    "cdi_host_runtime_settings": RUNTIME_SETTINGS,
    "cdi_host_runtime_versions": VERSIONS,
    "cdi_host_runtimes": {**VERSIONS, "deprecated": True},
    **{f"{role}_inventory": {**TYPES["path"], "deprecated": True} for role in ROLES},
    "cdi_host_plugins": PLUGINS,
    "cdi_host_virtual_functions": FUNCTIONS,
    **{f"{role}_distributions": DISTRIBUTIONS for role in ROLES},
    RESOURCES: PLUGIN["resources"],
    "cdi_device_plugin_occupied_ignore": PLUGIN["occupied_ignore"],
    "cdi_device_plugin_metrics": PLUGIN["metrics"],
    "cdi_device_plugin_capabilities": device_plugin_unit.CAPABILITIES,
    "cdi_device_plugin_grace": {
        **PLUGIN["grace"],
        "type": ["integer", "string"],
        "pattern": r"^[1-9][0-9]{0,4}" + END,
    },
    **{f"cdi_device_plugin_{name}": PATH for name in ("config", "spec_dir", "state_dir", "inventory")},
}


ENTRIES = "entries by name, as in {gpus: {profile: drm}}"


class Finding(NamedTuple):
    """One fault. `path` leads to it; with `key` its last part is wrong, otherwise the value there."""

    path: tuple[Any, ...]
    text: str
    key: bool = False


def argument_specs() -> dict[str, dict[str, Any]]:
    """Return the variables of the roles by name, from the argument_specs. Entry point `main` comes first."""
    collection = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found: dict[str, dict[str, Any]] = {}
    for role in ROLES:
        with open(os.path.join(collection, f"roles/{role}/meta/argument_specs.yml"), encoding="utf-8") as file:
            specs = yaml.safe_load(file)["argument_specs"]
        for entry_point in sorted(specs, key=lambda name: name != "main"):
            found = {**specs[entry_point]["options"], **found}
    return found


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of all settings of a host: an object of its variables of the roles."""
    variables = {name: _variable(name, spec) for name, spec in argument_specs().items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of fleet.cdi",
        "type": "object",
        "properties": variables,
        "patternProperties": {"^" + LAYER: {"$ref": f"#/properties/{DEVICES}"}},
        "additionalProperties": False,
    }


def _variable(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one variable."""
    if name == DEVICES:
        return _devices()
    made = SECTIONS.get(name) or TYPES[spec["type"]]
    choices = {"enum": spec["choices"]} if "choices" in spec else {}
    return {**made, **choices, **({"default": spec["default"]} if "default" in spec else {})}


def layers(variables: Iterable[str]) -> list[str]:
    """Return those of `variables` that hold entries, in the order of their merge: DEVICES first, then by name."""
    return sorted(name for name in variables if name == DEVICES or name.startswith(LAYER))


def merge(documents: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the entries of all layers in `documents` (variable name -> entries).

    Mappings of the same name are merged, at any depth; otherwise the later layer counts. Raises CdiError for a layer
    that is not a mapping.
    """
    merged: dict[str, Any] = {}
    for name in layers(documents):
        if not isinstance(documents[name], Mapping):
            raise CdiError(f"{name}: found {shown(documents[name])}; expected {ENTRIES}")
        merged = _added(merged, documents[name])
    return merged


def check(documents: Mapping[str, Any]) -> list[Finding]:
    """Return all faults in the settings of one host (plain data, variable name -> value).

    Raises ImportError without jsonschema.
    """
    shapes = [
        Finding((name,), f"found {shown(documents[name])}; expected {ENTRIES}")
        for name in layers(documents)
        if not isinstance(documents[name], Mapping)
    ]
    rest = {name: value for name, value in documents.items() if name not in layers(documents)}
    entries = merge({name: documents[name] for name in layers(documents) if isinstance(documents[name], Mapping)})
    found = [finding for error in _validator().iter_errors({**rest, DEVICES: entries}) for finding in _findings(error)]
    first: dict[tuple[Any, ...], Finding] = {}
    for finding in (*shapes, *found, *_beyond_schema({**rest, DEVICES: entries}, found)):
        first.setdefault(finding.path, finding)
    return sorted(first.values(), key=lambda finding: [str(part) for part in finding.path])


def offers_nothing(document: Mapping[str, Any]) -> bool:
    """Return True if the settings of a host ask for no device, neither in specs nor for an executable."""
    return not any(document.get(name) for name in (*layers(document), "cdi_host_plugins"))


def place(
    path: Sequence[Any], key: bool, documents: Mapping[str, Any], origin: Callable[[Any], str]
) -> tuple[str, str]:
    """Return where the user wrote the value at `path`: (file:line:column or "", variable and path below it).

    `documents` are the variables as Ansible holds them; `origin` returns the place of a key or value. Of several layers
    the one that has most of the path counts, and of equal ones the last, because its value counts.
    """
    candidates = reversed(layers(documents)) if path[0] == DEVICES else [path[0]]
    trails = [_trail(documents, (name, *path[1:])) for name in candidates]
    best = max(trails, key=len)
    whole = len(best) == len(path)
    value = best[-1][1] if whole and not key else None
    steps = [step[0] for step in reversed(best)]
    if not isinstance(value, (Mapping, list, tuple)):  # a fault of a collection is better shown at its name
        steps.insert(0, value)
    where = next(filter(None, map(origin, steps)), "")
    names = [str(best[0][0]) if best else str(path[0]), *map(str, path[1:])]
    return where, ".".join(names)


@lru_cache(maxsize=1)
def _validator() -> Any:
    return validator(schema())


def validator(table: Mapping[str, Any]) -> Any:
    """Return a validator of jsonschema for a table. Its types are as strict as those of module_utils/schema.py."""
    import jsonschema  # the only third-party library here; if it is missing, the filter gives the next step

    def strict(name: str) -> Callable[[Any, Any], bool]:
        return lambda _checker, value: STRICT[name](value)

    draft = jsonschema.Draft202012Validator
    types = draft.TYPE_CHECKER.redefine_many({name: strict(name) for name in ("integer", "number")})
    return jsonschema.validators.extend(draft, type_checker=types)(table)


def _trail(documents: Any, path: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return (key, value) for each step of `path` that exists. The keys are the document's, which know their place."""
    found = []
    for part in path:
        if isinstance(documents, Mapping) and part in documents:
            key = next(key for key in documents if key == part)
        elif isinstance(documents, (list, tuple)) and isinstance(part, int) and part < len(documents):
            key = part
        else:
            break
        documents = documents[part]
        found.append((key, documents))
    return found


def _added(base: Any, more: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(more, Mapping)):
        return more
    return {**base, **{key: _added(base.get(key), value) for key, value in more.items()}}


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


def _findings(error: Any) -> Iterator[Finding]:
    """Yield the faults of one jsonschema error, in words."""
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", ()))
        for name in error.instance:
            if name not in known and not str(name).startswith(LAYER if not path else "\0"):
                what = "variable" if not path else "option"
                role = next((prefix for prefix in PREFIXES if str(name).startswith(prefix)), "") if not path else ""
                some = ", ".join(sorted(one for one in known if one.startswith(role)))
                expected = f"expected one of {some}{did_you_mean(name, known)}"
                yield Finding((*path, name), f"found the unknown {what} {name!r}; {expected}", True)
    elif error.validator == "propertyNames" or "propertyNames" in error.relative_schema_path:
        what = "unknown option" if error.validator == "enum" else "name"
        yield Finding(
            (*path, error.instance), f"found the {what} {error.instance!r}; expected {_expected(error)}", True
        )
    elif error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        yield Finding(path, f"{' and '.join(missing)} is missing; every such entry needs it")
    else:
        known = error.validator_value if error.validator == "enum" else []
        yield Finding(
            path,
            f"found {shown(error.instance)}; expected {_expected(error)}"
            f"{did_you_mean(error.instance, map(str, known))}",
        )


def _expected(error: Any) -> str:
    if error.validator == "enum":
        known = ", ".join(map(str, error.validator_value))
        return f"one of {known}" + (
            did_you_mean(error.instance, error.validator_value) if "propertyNames" in error.relative_schema_path else ""
        )
    return expectation(error.schema)


def _beyond_schema(document: Mapping[str, Any], found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the faults that only the hosts' own checks see in entries and resources that are otherwise correct.

    They check that the name of an entry makes a valid kind, and that a kubelet accepts the name of a resource.
    """
    for name, entry in _right(DEVICES, document, found).items():
        problem = _refusal(name, entry)
        if problem:
            yield Finding((DEVICES, name), problem)
    for wrong in configuration.wrong_resources(_right(RESOURCES, document, found)):
        yield Finding((RESOURCES, *wrong.path), f"{wrong.found}; expected {wrong.expected}", len(wrong.path) == 1)


def _right(variable: str, document: Mapping[str, Any], found: Sequence[Finding]) -> dict[str, Any]:
    """Return the entries of a variable that have no fault."""
    wrong = {finding.path[1:2] for finding in found if finding.path[0] == variable}
    entries = document.get(variable, {})
    return {name: entry for name, entry in entries.items() if (name,) not in wrong} if () not in wrong else {}


def _refusal(name: str, entry: Any) -> Optional[str]:
    try:
        entry_options.check({name: entry})
    except CdiError as error:
        return str(error)
    return None
