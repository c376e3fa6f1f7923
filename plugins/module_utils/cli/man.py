# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi man: the manual page, from the tables that `--help` shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ..layout import Layout
from ..release.version import VERSION
from .main import DESCRIPTION, EVERYWHERE, EXIT_CODES, VERBS, Operand, Verb, help_of


def run(arguments: Any, paths: Layout) -> int:  # noqa: ARG001 - every verb gets its arguments
    """Print the page."""
    sys.stdout.write(page(paths))
    return 0


def page(paths: Layout) -> str:
    """Return fleet-cdi(8) in the macros of man(7), with the paths of this host."""
    return "".join(f"{line}\n" for line in _lines(paths))


def _lines(paths: Layout) -> Iterator[str]:
    yield f'.TH FLEET\\-CDI 8 "" "fleet.cdi {text(VERSION)}" "fleet.cdi"'
    yield from (".SH NAME", "fleet\\-cdi \\- CDI devices of a host")
    yield from (".SH SYNOPSIS", ".B fleet\\-cdi", text("[OPTION]... VERB ..."))
    yield from (".SH DESCRIPTION", text(DESCRIPTION), text("Options and operands may stand in any order."))
    yield ".SH OPTIONS"
    for name, option in EVERYWHERE.items():
        yield from _item(f"{name} {option.metavar}", help_of(option, paths._asdict()))
    yield from _item("--version", "show the release")
    yield from _item("--help", "show the help; after a verb, that of the verb")
    yield ".SH VERBS"
    for name, verb in VERBS.items():
        yield from _of_verb(name, verb)
    yield from (".SH EXIT STATUS", text(EXIT_CODES.partition(": ")[2]))
    yield ".SH FILES"
    for path, what in _files(paths).items():
        yield from _item(path, what)


def _of_verb(name: str, verb: Verb) -> Iterator[str]:
    yield f".SS {text(name)}"
    yield f".B {text(f'fleet-cdi {name}')}"
    options = [f"[{option} {described.metavar}]" for option, described in verb.options.items()]
    options += [f"[{switch}]" for switch in verb.switches]
    yield text(" ".join([*options, *map(usage, verb.operands.values())]))
    yield from (".PP", text(verb.help))
    for operand in verb.operands.values():
        yield from _item(operand.metavar, operand.help)
    for option, described in verb.options.items():
        yield from _item(f"{option} {described.metavar}", described.help)
    for switch, meaning in verb.switches.items():
        yield from _item(switch, meaning)


def _item(tag: str, described: str) -> Iterator[str]:
    yield from (".TP", f".B {text(tag)}", text(described))


def usage(operand: Operand) -> str:
    """Return an operand as a synopsis shows it: how many of it there may be."""
    name = operand.metavar
    return {"*": f"[{name} ...]", "+": f"{name} ...", "?": f"[{name}]"}.get(operand.nargs or "", name)


def _files(paths: Layout) -> dict[str, str]:
    return {
        f"{paths.prefix}/bin": "this command, the executables of the CDI proposal, and the hook that specs name",
        paths.state_dir: "the manifest of what was written, the ledger of grants, and the claims",
        paths.inventory: "the devices of this boot",
        **dict.fromkeys(paths.spec_dirs, "CDI specs"),
        f"{paths.config_dir}/TYPE.d": "configurations of the executables",
    }


def text(plain: str) -> str:
    """Return `plain` so that roff shows these characters: no escape, no macro, no hyphen for a minus."""
    escaped = plain.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped[:1] in (".", "'", "") else escaped
