# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Group the failures of a run by their cause: one is of all hosts that say the same (general_text.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils.safe_text import one_line
from ansible_collections.fleet.cdi.plugins.plugin_utils.general_text import OwnWords, general

LONGEST = 1500  # characters of a message that are shown


class Cause(NamedTuple):
    """One reason for which hosts failed."""

    task: str  # name of the task
    text: str  # one line; of several hosts, without the words of one of them
    hosts: tuple[str, ...]  # in order of their names


def shown_text(message: str) -> str:
    """Return a message as one line of at most LONGEST characters."""
    text = one_line(" ".join(message.split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def key(host: str, task: str, message: str) -> tuple[str, str]:
    """Return a value that is the same for all hosts that fail for one cause."""
    return task, general(" ".join(message.split()), OwnWords({host: "HOST"}))


def messages(result: Mapping[str, Any]) -> list[str]:
    """Return what the result of a failed task says: the texts of a loop's failed items, or of a list, each once."""
    failed = [item for item in result.get("results") or () if item.get("failed") or item.get("unreachable")]
    if failed:
        return [*dict.fromkeys(text for item in failed for text in messages(item))]
    if "censored" in result:
        return [str(result["censored"])]
    if isinstance(result.get("msg"), list) and result["msg"]:
        return [str(one) for one in result["msg"]]
    said = [str(result[name]) for name in ("msg", "stderr", "stdout", "module_stderr") if result.get(name)]
    # Of a command that failed, Ansible says this; why is in its output.
    if said[:1] == ["non-zero return code"]:
        return [": ".join([f"exit status {result.get('rc')}", *said[1:2]])]
    return said[:1] or ["failed, and did not say why"]


def group(said: Iterable[tuple[str, str, str]]) -> list[Cause]:
    """Return the causes of (host, task, message); the cause with the most hosts is the first."""
    hosts: dict[tuple[str, str], dict[str, str]] = {}
    for host, task, message in said:
        hosts.setdefault(key(host, task, message), {}).setdefault(host, message)
    causes = []
    for (task, text), messages_ in hosts.items():
        one = messages_[min(messages_)]
        causes.append(Cause(task, shown_text(one if len(messages_) == 1 else text), tuple(sorted(messages_))))
    return sorted(causes, key=lambda one: (-len(one.hosts), one.task, one.text))
