# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi plugin: run and inspect the kubelet's device plugin."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Callable

from ..device_plugin.config import configuration, in_force
from ..device_plugin.daemon import operate
from ..device_plugin.process import openers_service
from ..layout import Layout
from ..records import CdiError, as_document
from .taken_options import refuse_options
from .terminal import say, say_document, table

STATUS = ("RESOURCE", "INSTANCE", "STATE", "HEALTHY", "UNHEALTHY", "MODE", "WHY")
CHECK = ("RESOURCE", "DEVICE", "HEALTHY", "NUMA", "CONTAINERS GET", "WHY NOT")


def run(arguments: Any, paths: Layout) -> int:
    """Do `action`. Raises CdiError."""
    action = {**ACTIONS, "openers": _openers}.get(arguments.action)
    if action is None:
        raise CdiError(f"plugin: found {arguments.action!r}; expected {', '.join(ACTIONS)}")
    refuse_options(arguments)
    return action(arguments, arguments.config or configuration.PATH, paths)


def _run(arguments: Any, path: str, _paths: Layout) -> int:
    """Serve until SIGTERM."""
    from ..device_plugin.daemon import daemon  # the other actions don't need it

    return daemon.run(path, arguments.instance or "")


def _openers(_arguments: Any, _path: str, _paths: Layout) -> int:
    """Answer the daemon, which has no right to inspect other processes; only for fleet-cdi-openers@.service."""
    openers_service.answer_questions(sys.stdin.buffer, sys.stdout.buffer)
    return 0


def _status(arguments: Any, path: str, _paths: Layout) -> int:
    """Print the state of the running instances; return 1 if something is wrong."""
    found, findings = operate.living(in_force.run_dir(path))
    if arguments.json:
        say_document({"instances": found, "findings": findings})
        return int(bool(findings))
    rows = [_row(name, document["instance"], one) for document in found for name, one in document["resources"].items()]
    if rows:
        say(*table(STATUS, rows))
    elif found:
        say("There are no devices to offer.")
    for text in findings:
        say(text)
    return int(bool(findings))


def _row(name: str, instance: str, one: Mapping[str, Any]) -> list[list[str]]:
    numbers = ([str(one[key])] for key in ("healthy", "unhealthy"))
    return [[name], [instance], [one["state"]], *numbers, [one["mode"]] if one["mode"] else [], [one["error"] or "-"]]


def _check(arguments: Any, path: str, _paths: Layout) -> int:
    """Print what the configuration would offer; return 1 if something is wrong with it or with the host."""
    if arguments.config:
        configuration.content(path)  # the defaults count for the usual path alone: that file is a choice
    offered = operate.would_offer(operate.settings_at(path))
    if arguments.json:
        document = {name: [as_document(one) for one in listed] for name, listed in offered.resources.items()}
        ways = {name: as_document(way) for name, way in offered.delivery.items()}
        everything = {"resources": document, "names": offered.names, "delivery": ways}
        say_document({**everything, "findings": offered.findings, "absent": offered.absent})
        return int(bool(offered.findings))
    rows = [
        [
            [name],
            [one.id],
            ["yes" if one.healthy else "no"],
            [",".join(map(str, one.numa_nodes))] if one.numa_nodes else [],
            list(offered.names[name][one.id]),
            [one.reason] if one.reason else [],
        ]
        for name, listed in offered.resources.items()
        for one in listed
    ]
    say(*(table(CHECK, rows) if rows else ["There are no devices to offer."]))
    for text in (*offered.findings, *offered.absent):
        say(text)
    return int(bool(offered.findings))


def _forget(arguments: Any, path: str, paths: Layout) -> int:
    """Free what pods held on a node that no longer runs pods."""
    settings = operate.settings_at(path)
    if not os.path.lexists(path):  # removed with the plugin; the ledger is in this release's state_dir
        settings = settings._replace(state_dir=paths.state_dir)
    number = operate.forget(settings)
    if arguments.json:
        say_document({"freed": number}, sort_keys=False)
    else:
        say(f"{number} devices may be granted again." if number else "Pods hold nothing here.")
    return 0


ACTIONS: dict[str, Callable[[Any, str, Layout], int]] = {
    "run": _run,
    "status": _status,
    "check": _check,
    "forget": _forget,
}
