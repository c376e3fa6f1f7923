# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the executable's own settings from `args` of a configuration; the other args describe the devices.

pools.py (OWN) has the names, docs/executables.md explains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ..records import OCCUPIED, CdiError
from . import errors, grammar
from .errors import ProtocolError
from .messages import Config, shown
from .pools import OWN

OWNERS = ("claims", "kubernetes", "external")  # the first is the default
TIME_LIMIT = 30.0  # seconds, for each command that is run
LONGEST = 3600


class Picked(NamedTuple):
    """The devices that an earlier plugin of the chain picked: this plugin picks none, and works on these."""

    plugin: str  # holds them, under the same request-id
    devices: tuple[str, ...]  # ids


class PluginArgs(NamedTuple):
    """The executable's own settings in `args`."""

    setup: tuple[str, ...] = ()  # command; () for none
    teardown: tuple[str, ...] = ()
    time_limit: float = TIME_LIMIT
    shared: bool = False  # whether shares of a device are given
    owner: str = OWNERS[0]
    delegate: bool = False  # whether another plugin follows
    picked: Optional[Picked] = None
    occupied: str = OCCUPIED[0]
    occupied_ignore: Optional[tuple[str, ...]] = None  # patterns of programs and units; None: system/openers.EXPECTED

    @property
    def commands(self) -> bool:
        """Tell if the settings name commands or another plugin to run."""
        return bool(self.setup or self.teardown or self.delegate)


def settings(config: Config) -> PluginArgs:
    """Return the settings in `config`. Raises ProtocolError 107."""
    args = {name: value for name, value in config.args.items() if name in OWN}
    if not args:
        return PluginArgs()
    _check(args)
    ignore = args.get("occupied_ignore")
    return PluginArgs(
        tuple(args.get("setup", ())),
        tuple(args.get("teardown", ())),
        float(args.get("time_limit", TIME_LIMIT)),
        args.get("shared", False),
        args.get("owner", OWNERS[0]),
        "delegate" in args,
        _picked(args["picked"]) if "picked" in args else None,
        args.get("occupied", OCCUPIED[0]),
        None if ignore is None else tuple(ignore),
    )


def table() -> dict[str, Any]:
    """Return the schema of these args."""
    from .. import schema  # imported here: a call without such args does not need it

    patterns = "a list of patterns of programs' and units' names"
    passed = "what a plugin that delegates passes; leave it out of configurations"
    return {
        "type": "object",
        "properties": {
            "setup": schema.COMMAND,
            "teardown": schema.COMMAND,
            "time_limit": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": LONGEST,
                "description": f"seconds, more than 0 and at most {LONGEST}",
            },
            "shared": {"type": "boolean"},
            "owner": {"enum": [*OWNERS]},
            "occupied": {"enum": [*OCCUPIED]},
            "occupied_ignore": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "description": "a pattern"},
                "description": patterns,
            },
            "picked": {
                "type": "object",
                "required": ["plugin", "devices"],
                "properties": {
                    "plugin": {"type": "string", "description": passed},
                    "devices": {
                        "type": "array",
                        "minItems": 1,
                        "items": {"type": "string", "description": passed},
                        "description": passed,
                    },
                },
                "description": passed,
            },
        },
    }


def _check(args: Mapping[str, Any]) -> None:
    from .. import schema

    try:
        schema.check({"args": args}, {"properties": {"args": table()}}, "config")
    except CdiError as error:
        raise ProtocolError(errors.CONTENT, str(error)) from None


def _picked(value: Mapping[str, Any]) -> Picked:
    if not grammar.is_plugin(value["plugin"]):
        found = f"config: args.picked.plugin is {shown(value['plugin'])}"
        raise ProtocolError(errors.CONTENT, f"{found}; expected the name of a plugin, without a path")
    return Picked(value["plugin"], tuple(value["devices"]))
