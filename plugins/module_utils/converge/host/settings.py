# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of one host as data: the variables of role cdi_host without their prefix.

`device_plugin` has the variables of role cdi_device_plugin without theirs, and is missing on a host without the device
plugin. Where both roles have a variable of one name (prefix, state_dir), that of cdi_host counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ... import documents, schema
from ...layout import USUAL
from ...records import CdiError
from ...runtimes import table
from ...schema import ABSOLUTE, END, PATH
from ..services.refresh_fields import FEATURE_FILE, KERNEL_MODULE, METRICS_FILE
from .host_setting import BOOL, COUNT, HostSetting

DIGITS = 18  # of a number that is written as text; Python reads no integer of thousands

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
            "spec_dirs": {"type": "array", "items": ABSOLUTE, "minItems": 1},
            "installation": {"enum": ["system", "snap", "k3s", "rke2", "microk8s"]},
            "config": ABSOLUTE,
            "restart": {"enum": ["never", "when_idle", "always"]},
            "on_unsupported": {"enum": ["fail", "warn"]},
        },
        "additionalProperties": False,
    },
}

CONVERGE_INTERVAL = {"type": "integer", "minimum": 60, "description": "a whole number of seconds, 60 or more"}
INTERVAL = {"type": "integer", "minimum": 10, "description": "a whole number of seconds, 10 or more"}
MODULES = {"type": "array", "items": KERNEL_MODULE, "description": "a list of names of kernel modules"}
OBJECT = {"type": "object"}
ON_HELD = {"enum": ["keep", "fail", "drop"]}

SETTINGS: dict[str, HostSetting] = {
    "devices": HostSetting(OBJECT, {}),
    "spec_dir": HostSetting(PATH, USUAL.spec_dir),
    "state_dir": HostSetting(PATH, USUAL.state_dir),
    "device_list": HostSetting(PATH, USUAL.inventory),
    "prefix": HostSetting(PATH, USUAL.prefix),
    "distributions": HostSetting(DISTRIBUTIONS, {}),
    "python": HostSetting(ABSOLUTE, "/usr/bin/python3"),
    "command_link": HostSetting(BOOL, True),
    "install_packages": HostSetting(BOOL, True),
    "force": HostSetting(BOOL, False),
    "on_foreign_kind": HostSetting({"enum": ["use", "fail", "replace"]}, "use"),
    "on_held": HostSetting(ON_HELD, "keep"),
    "on_unsupported": HostSetting({"enum": ["drop", "fail"]}, "drop"),
    "runtime_versions": HostSetting(VERSIONS, {}),
    "runtime_settings": HostSetting(RUNTIME_SETTINGS, {}),
    "runtime_restart": HostSetting({"enum": ["never", "when_idle", "always"]}, "never"),
    "runtime_on_unsupported": HostSetting({"enum": ["fail", "warn"]}, "fail"),
    "prune": HostSetting(BOOL, True),
    "refresh": HostSetting(BOOL, True),
    "refresh_timeout": HostSetting(COUNT, 60),
    "refresh_grace": HostSetting(COUNT, 600),
    "refresh_interval": HostSetting(INTERVAL, 300),
    "claims_idle": HostSetting(COUNT, 600),
    "metrics_file": HostSetting(METRICS_FILE, ""),
    "feature_file": HostSetting(FEATURE_FILE, ""),
    "converge_file": HostSetting(FEATURE_FILE, ""),
    "converge_interval": HostSetting(CONVERGE_INTERVAL, 3600),
    "driver_timeout": HostSetting(COUNT, 0),
    "load_modules": HostSetting(MODULES, []),
    "make_nodes": HostSetting(BOOL, False),
    "virtual_functions": HostSetting(FUNCTIONS, {}),
    "plugins": HostSetting(PLUGINS, {}),
}

SECTION = "device_plugin"
OF_ONE_RUN = ("force", "on_held", "install_packages")  # what a person decides for one run, not for all that follow
OF_REMOVAL = ("prefix", "state_dir", "device_list", "force", "python")  # all that counts when everything is taken back
YES, NO = ("true", "yes", "on"), ("false", "no", "off")


def read_settings(document: Any, where: str = "settings") -> dict[str, Any]:
    """Return all settings of a host: those of `document`, and the defaults of the others.

    `device_plugin` is None without the section. Text counts where YAML and `ansible-playbook -e` leave it: "true" as
    true, "60" as 60. Raises CdiError for the first fault; the message begins with `where` and the path of the field.
    """
    if not isinstance(document, Mapping):
        raise CdiError(
            f"{where}: found {schema.shown(document)}; expected a mapping of settings, as in {{devices: {{}}}}"
        )
    rest = {name: value for name, value in document.items() if name != SECTION}
    plugin = _read_plugin(document[SECTION], f"{where}: {SECTION}") if SECTION in document else None
    return {**_read(rest, SETTINGS, where), SECTION: plugin}


def settings_file(settings: Mapping[str, Any]) -> bytes:
    """Return the file of these settings for `fleet-cdi converge`: JSON, without defaults and decisions for one run."""
    document = _chosen(settings, SETTINGS)
    if settings[SECTION] is not None:
        from . import device_plugin_settings  # here: see _read_plugin

        document[SECTION] = _chosen(settings[SECTION], device_plugin_settings.DEVICE_PLUGIN)
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def _chosen(values: Mapping[str, Any], table_of: Mapping[str, HostSetting]) -> dict[str, Any]:
    kept = (name for name in table_of if name not in OF_ONE_RUN and name in values)
    return {name: values[name] for name in kept if values[name] != table_of[name].default}


def parse_settings(content: bytes, where: str) -> Any:
    """Return the document in a file of settings: JSON if it begins with a brace, otherwise YAML.

    Raises CdiError for a file that is neither, and for YAML that its readers understand differently.
    """
    if content.lstrip().startswith(b"{"):
        return documents.parse(content, where)
    from ...spec.text import json_subset, yaml_subset  # here: only `fleet-cdi converge` needs them

    try:
        return yaml_subset.load_yaml(content.decode("utf-8-sig"), where)
    except UnicodeDecodeError as error:
        why = f"the byte {error.object[error.start]:#04x} at {error.start} is not UTF-8"
    except json_subset.Malformed as error:
        _rule, found, expected = error.args
        why = f"found {found}; expected {expected}"
    raise CdiError(f"{where}: is not a YAML document ({why}); correct it")


def _read_plugin(document: Any, where: str) -> dict[str, Any]:
    from . import device_plugin_settings  # here: few hosts have the device plugin, and it takes a fifth of a run

    return _read(document, device_plugin_settings.DEVICE_PLUGIN, where)


def _read(document: Any, table_of: Mapping[str, HostSetting], where: str) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise CdiError(f"{where}: found {schema.shown(document)}; expected a mapping")
    typed = {
        name: _typed(value, table_of[name].schema) if name in table_of else value for name, value in document.items()
    }
    properties = {name: one.schema for name, one in table_of.items()}
    schema.check(typed, {"type": "object", "properties": properties, "additionalProperties": False}, where)
    return {**{name: one.default for name, one in table_of.items()}, **typed}


def _typed(value: Any, wanted: schema.Schema) -> Any:
    """Return `value`, or what it means if it is the text of a boolean or number, or a path with `~`."""
    if not isinstance(value, str):
        return value
    if wanted is BOOL and value.lower() in (*YES, *NO):
        return value.lower() in YES
    if wanted.get("type") == "integer" and value.isascii() and value.isdecimal() and len(value) <= DIGITS:
        return int(value)
    is_path = (wanted is ABSOLUTE or wanted is PATH) and "\0" not in value
    return os.path.expanduser(os.path.expandvars(value)) if is_path else value
