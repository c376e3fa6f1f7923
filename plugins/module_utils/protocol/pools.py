# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool of a configuration: the devices that it may grant.

`fleet-cdi refresh` discovers them by the entry from `entry_of`, and writes them to `pool_path` as an inventory
document. The executable reads that file and discovers nothing. Both use this file, so their paths can't differ.
"""

from __future__ import annotations

import json
from binascii import crc32
from collections.abc import Mapping
from typing import Any, Optional

from . import errors
from .errors import ProtocolError
from .messages import Config, config, shown

# Plugin -> the discovery profile of its devices. `rule` takes any profile: its args are a whole devices entry.
PROFILES = {"drm": "drm", "generic-tty": "tty", "rule": "rule", "sriov": "sriov"}

# Plugin -> option in the proposal's text -> its name in the proposal's example and in discovery (docs/executables.md).
ALIASES = {"drm": {"want_device_types": "want_device_nodes"}}

# Args for the executable itself; they don't change the devices of the pool.
OWN = ("setup", "teardown", "time_limit", "delegate", "shared", "owner", "picked", "occupied", "occupied_ignore")

CHAIN = "CDI_CHAIN"  # variable: the plugins that led to a call, first to last, comma separated

# Plugins in a chain. A longer one is a mistake: the proposal's own example has two.
DEEPEST = 4


def entry_of(config: Config) -> Optional[dict[str, Any]]:
    """Return the devices entry of a configuration, or None for a plugin that is not ours.

    Discovery checks the options, and names the wrong one. Raises ProtocolError 107 for an option under both of its
    names.
    """
    profile = PROFILES.get(config.plugin)
    if profile is None:
        return None
    options = _without_own(config.args)
    for alias, name in ALIASES.get(config.plugin, {}).items():
        if alias in options and name in options:
            raise ProtocolError(
                errors.CONTENT, f"config: args has {alias} and {name}, which mean the same; expected one of them"
            )
        if alias in options:
            options[name] = options.pop(alias)
    if config.plugin != "rule":
        options.pop("profile", None)
    return {"profile": profile, "required": False, **options}


def pool_path(inventory: str, resource_type: str, plugin: str, args: Mapping[str, Any]) -> str:
    """Return the file of the devices of a configuration, in the folder beside `inventory`.

    /run/cdi-inventory.json -> /run/cdi-inventory.d/gpu.drm.1c291ca3.json
    """
    folder = inventory[: -len(".json")] if inventory.endswith(".json") else inventory
    canonical = json.dumps(_without_own(args), sort_keys=True, separators=(",", ":"))
    return f"{folder}.d/{resource_type}.{plugin}.{crc32(canonical.encode('ascii')):08x}.json"


def chain(first: Config) -> tuple[Config, ...]:
    """Return the configuration and those that it delegates to, in order (docs/chain-loading.md).

    Raises ProtocolError 107 for an invalid delegate, for a chain with the same plugin twice, and for a chain that is
    too long.
    """
    found = [first]
    while "delegate" in found[-1].args:
        above, inner = found[-1], found[-1].args["delegate"]
        if not isinstance(inner, dict):
            raise ProtocolError(
                errors.CONTENT, "config: args.delegate is not a struct; expected one with 'plugin' and 'args'"
            )
        unknown = sorted({*inner} - {"name", "plugin", "args"})
        if unknown:
            raise ProtocolError(
                errors.CONTENT,
                f"config: args.delegate has the unknown field {unknown[0]!r}; expected plugin, args, name",
            )
        below = config({"name": above.name, **inner, "cdiVersion": above.version, "type": above.type})
        if below.plugin in [one.plugin for one in found]:
            raise ProtocolError(
                errors.CONTENT, f"config: the delegates come back to {below.plugin!r}; expected no loop"
            )
        found.append(below)
        if len(found) > DEEPEST:
            raise ProtocolError(errors.CONTENT, f"config: more than {DEEPEST} plugins in one chain; expected fewer")
    return tuple(found)


def callers(variables: Mapping[str, str]) -> list[str]:
    """Return the plugins that led to a call with these variables, first to last."""
    return [name for name in variables.get(CHAIN, "").split(",") if name]


def check_callers(plugin: str, variables: Mapping[str, str]) -> None:
    """Raise ProtocolError 106 if the chain of calls that led to `plugin` has it already, or is too long.

    A configuration shows only loops of our own plugins; a foreign plugin may call back to one of ours.
    """
    before = callers(variables)
    if plugin in before:
        raise ProtocolError(errors.DELEGATION, f"{CHAIN} is {shown(','.join(before))}, which comes back to {plugin}")
    if len(before) >= DEEPEST:
        raise ProtocolError(errors.DELEGATION, f"{CHAIN} names {len(before)} plugins; expected fewer than {DEEPEST}")


def _without_own(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if name not in OWN}
