# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line in the log of the host for each change, by a module or by a verb (docs/day2.md)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .system_log import is_journal, write_log

STDOUT = 1
STATE = "device_state"  # the module whose change is a sentence
INFO = "_info"  # ends the name of a module that changes nothing


def log_answer(call: str, answer: Mapping[str, Any], check: bool) -> None:
    """Log the changes that module `call` made, or why it failed."""
    if check or call.endswith(INFO):
        return
    if "error" in answer:
        write_log([f"{call}: failed: {answer['error']}"])
        return
    log_result(call, answer["result"])


def log_result(name: str, result: Mapping[str, Any]) -> None:
    """Log the changes in `result` of a module: a line for each file or kind, and one if it has a problem."""
    lines: list[str] = []
    if result.get("changed"):
        lines = [state_line(result)] if name == STATE else list(change_lines(result.get("diff"))) or ["changed"]
    if result.get("made"):  # by the driver, and no file
        lines = [*(f"made: {what}" for what in result["made"]), *(line for line in lines if line != "changed")]
    if result.get("failed"):
        lines.append(f"failed: {result.get('msg', '')}")
    write_log(f"{name}: {line}" for line in lines)


def log_verb(verb: str, lines: Iterable[str]) -> None:
    """Log what `verb` printed as its changes; not in a unit of systemd, whose output is in the journal already."""
    if not is_journal(STDOUT, os.environ.get("JOURNAL_STREAM", "")):
        write_log(f"{verb}: {line}" for line in lines)


def state_line(state: Mapping[str, Any]) -> str:
    """Return in words which device is out of service, why and until when, or that it is in service again."""
    if not state["reason"]:
        return f"{state['id']} is in service"
    until = f"until {state['until']}" if state["until"] else "until it is enabled"
    return f"{state['id']} is out of service {until}: {state['reason']}"


def change_lines(diff: Any) -> Iterator[str]:
    """Yield a line for each change in the diff of a module: what and which of its keys or devices, but no values.

    A configuration of others may have secrets.
    """
    from ..converge.module_diff import brief  # here: most runs change nothing

    for part in [diff] if isinstance(diff, Mapping) else diff or ():
        short = brief(dict(part))
        if "prepared" in short:
            yield from str(short["prepared"]).splitlines()
        else:
            yield _change(short)


def _change(part: Mapping[str, Any]) -> str:
    before, after = part.get("before"), part.get("after")
    name = part.get("after_header") or part.get("before_header") or "release"
    if not before or not after:
        return f"{'removed' if before else 'made'}: {name}"
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [str(key) for key in {**before, **after} if before.get(key) != after.get(key)]
        return f"changed: {name}: {' and '.join(keys)}"
    return f"changed: {name}"
