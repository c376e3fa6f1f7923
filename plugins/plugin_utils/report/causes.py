# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Group the findings of all hosts by their cause.

Two findings have one cause if their rule and their problem agree, apart from the words that name one host or one of its
devices (general_text.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ansible_collections.fleet.cdi.plugins.plugin_utils.general_text import OwnWords, general
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import NO_RELEASE, HostAnswer

FULL = "disk-full"  # the rule of fleet-cdi doctor that tells why a host has no release
SHORTEST = 3  # characters of a device's own word that are looked for in a text
MOST = 500  # words of a host that are looked for; one with 64 devices has some 450


class CauseKey(NamedTuple):
    """One cause: a rule, the problem and the next step without the words of one host."""

    rule: str
    problem: str
    next: str
    unknown: bool = False  # nothing is wrong for sure: hosts that gave no whole answer


def causes(answers: Sequence[HostAnswer]) -> dict[CauseKey, list[tuple[int, int]]]:
    """Return cause -> [(place of the host, place of the finding in it)], causes of most hosts first.

    Of a host without a whole answer, the place of the finding is -1.
    """
    found: dict[CauseKey, list[tuple[int, int]]] = {}
    for place, answer in enumerate(answers):
        own = OwnWords(own_words(answer) if answer.findings or answer.why else {})
        for index, one in enumerate(answer.findings):
            key = CauseKey(one.rule, general(_said(one.subject, one.problem), own), general(one.next, own))
            found.setdefault(key, []).append((place, index))
        if answer.why and not (answer.why == NO_RELEASE and any(one.rule == FULL for one in answer.findings)):
            found.setdefault(CauseKey("no-answer", general(answer.why, own), "", True), []).append((place, -1))
    return dict(sorted(found.items(), key=lambda item: (item[0].unknown, -len({one[0] for one in item[1]}), item[0])))


def own_words(answer: HostAnswer) -> Mapping[str, str]:
    """Return the words by which a host and its devices are known -> what stands for them."""
    words = {answer.name: "HOST"}
    for device in answer.devices:
        fields = device.fields
        words.update({f"{fields['kind']}={name}": f"{fields['kind']}=DEVICE" for name in fields["names"].split()})
        words.update(dict.fromkeys((fields["id"], device.serial, device.uuid), "DEVICE"))
        words.update(dict.fromkeys(fields["nodes"].split(), "NODE"))
    return dict(islice(((word, stands) for word, stands in words.items() if len(word) >= SHORTEST), MOST))


def limit(names: Iterable[str]) -> str:
    """Return the option that makes ansible-playbook take these hosts."""
    return f"--limit {','.join(names)}"


def _said(subject: str, problem: str) -> str:
    return problem if not subject or problem.startswith(subject) else f"{subject}: {problem}"
