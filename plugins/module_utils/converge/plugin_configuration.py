# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of an executable that settings ask for, and what the executable would refuse in it. Pure.

The controller checks the settings of all hosts with it, and a host each configuration before it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import schema
from ..discovery import entry_options
from ..protocol import messages, plugin_args, pools
from ..protocol.messages import Config
from ..schema import Wrong

PASSED = "picked"  # of pools.OWN: what only a plugin that delegates passes
DELEGATE = ("delegate", "args")  # where the args of the next plugin of a chain are


def options_of(key: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the settings as options of module cdi_plugin. Its key is the resource-type and the name."""
    resource_type, _slash, name = key.partition("/")
    usual: dict[str, Any] = {"plugin": name, "args": {}, "description": None, "cdi_version": "0.0.2"}
    return {**usual, **entry, "resource_type": resource_type, "name": name}


def document_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that `options`, those of module cdi_plugin, ask for."""
    return {
        "cdiVersion": options["cdi_version"],
        "name": options["description"] or f"{options['resource_type']} by {options['plugin']}",
        "type": options["resource_type"],
        "plugin": options["plugin"],
        **({"args": options["args"]} if options["args"] else {}),
    }


def wrong_chain(first: Config) -> Iterator[Wrong]:
    """Yield what our executables would refuse in the args of a configuration and of those that it delegates to.

    Raises ProtocolError for a document or a chain that no executable accepts.
    """
    for depth, config in enumerate(pools.chain(first)):
        for wrong in _wrong_args(config):
            yield wrong._replace(path=("args", *DELEGATE * depth, *wrong.path))


def wrong_document(document: Mapping[str, Any]) -> Iterator[Wrong]:
    """Do as `wrong_chain` does, for a document."""
    return wrong_chain(messages.config(document))


def _wrong_args(config: Config) -> Iterator[Wrong]:
    if config.plugin not in pools.PROFILES:
        return
    aliases = pools.ALIASES.get(config.plugin, {})
    own = {name: config.args[name] for name in pools.OWN if name in config.args}
    found = list(schema.errors(own, plugin_args.table()))
    if PASSED in own:
        found.append(Wrong((PASSED,), "is what a plugin that delegates passes", "no such arg; leave it out"))
    entry = pools.entry_of(config) or {}
    used = {name: alias for alias, name in aliases.items() if alias in config.args}
    for wrong in entry_options.wrong_options(entry, besides=(*sorted({*pools.OWN} - {PASSED}), *aliases)):
        found.append(wrong._replace(path=(used.get(wrong.path[0], wrong.path[0]), *wrong.path[1:])))
    yield from found
    kind = "" if found or "kind" in entry else entry_options.kind_of(config.type, entry)
    if kind and any(schema.errors(kind, entry_options.COMMON["kind"])):
        yield Wrong(("kind",), "is missing", f"the kind of its devices, because {kind} is not a kind")
