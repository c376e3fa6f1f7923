# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `args` of a configuration tells the executable itself; the rest of it says which devices there are.

Private API of fleet.cdi. The names stand in protocol/pools.py (OWN), docs/executables.md explains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ..protocol import errors, grammar
from ..protocol.errors import ProtocolError
from ..protocol.messages import Config, shown
from ..records import OCCUPIED

OWNERS = ("claims", "kubernetes", "external")  # the first is the default
TIME_LIMIT = 30.0  # seconds, for each command that is run
LONGEST = 3600


class Picked(NamedTuple):
    """What the plugin before this one in the chain picked: this one picks nothing, and works on these."""

    plugin: str  # that holds them, under the same request-id
    devices: tuple[str, ...]  # ids


class Settings(NamedTuple):
    """What `args` tells the executable itself."""

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
        """Whether there is anything to run besides keeping the ledger."""
        return bool(self.setup or self.teardown or self.delegate)


def settings(config: Config) -> Settings:
    """The settings in `config`. Raises ProtocolError 107."""
    args = config.args
    limit = args.get("time_limit", TIME_LIMIT)
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit <= LONGEST:
        raise _wrong("time_limit", limit, f"seconds, more than 0 and at most {LONGEST}")
    shared = args.get("shared", False)
    if not isinstance(shared, bool):
        raise _wrong("shared", shared, "true or false")
    owner = args.get("owner", OWNERS[0])
    if owner not in OWNERS:
        raise _wrong("owner", owner, " or ".join(OWNERS))
    occupied = args.get("occupied", OCCUPIED[0])
    if occupied not in OCCUPIED:
        raise _wrong("occupied", occupied, " or ".join(OCCUPIED))
    return Settings(
        _command("setup", args),
        _command("teardown", args),
        float(limit),
        shared,
        owner,
        "delegate" in args,
        _picked(args["picked"]) if "picked" in args else None,
        occupied,
        _patterns("occupied_ignore", args),
    )


def _patterns(name: str, args: Mapping[str, Any]) -> Optional[tuple[str, ...]]:
    if name not in args:
        return None
    patterns = args[name]
    if not (isinstance(patterns, list) and all(isinstance(one, str) and one for one in patterns)):
        raise _wrong(name, patterns, "a list of patterns of programs' and units' names")
    return tuple(patterns)


def _command(name: str, args: Mapping[str, Any]) -> tuple[str, ...]:
    command = args.get(name, [])
    if not isinstance(command, list) or not all(isinstance(word, str) and "\0" not in word for word in command):
        raise _wrong(name, command, "a list of texts: a program and its arguments")
    if command and not command[0].startswith("/"):
        raise _wrong(name, command, "the absolute path of a program first")
    return tuple(command)


def _picked(value: Any) -> Picked:
    plugin, devices = (value.get("plugin"), value.get("devices")) if isinstance(value, dict) else (None, None)
    if not (isinstance(plugin, str) and grammar.is_plugin(plugin)):
        raise _wrong("picked", value, "what a plugin that delegates passes; leave it out of configurations")
    if not (isinstance(devices, list) and devices and all(isinstance(item, str) for item in devices)):
        raise _wrong("picked", value, "what a plugin that delegates passes; leave it out of configurations")
    return Picked(plugin, tuple(devices))


def _wrong(name: str, found: Any, expected: str) -> ProtocolError:
    return ProtocolError(errors.CONTENT, f"config: args.{name} is {shown(found)}; expected {expected}")
