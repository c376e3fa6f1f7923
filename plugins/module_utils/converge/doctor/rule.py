# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rule of the doctor, and its findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, NamedTuple

from ... import files
from . import advice
from .view import CHANGED, HostView

SHOWN = 3  # names or problems in the text of a finding; its details have all of them
CHANGE = "was changed since fleet.cdi wrote it"

NOTES, FINDINGS, NOT_DONE = 0, 1, 2  # exit statuses of `fleet-cdi doctor`. A note is worth knowing; nothing is wrong


class Symptom(NamedTuple):
    """One problem. Symptoms of one rule with the same subject become one finding."""

    subject: str  # the cause: a path, qualified name, unit or process, or the reason that devices have in common
    problem: str
    name: str = ""  # the qualified name or id that is affected, if one problem affects many
    explains: tuple[str, ...] = ()  # subjects of which later rules need to say nothing


class DoctorRule(NamedTuple):
    """A problem that can occur, the function that finds it, and the next step.

    `next` is one sentence with the repair command in backticks. `{subject}` in it stands for the subject of the
    symptom, quoted for a shell. `theirs` replaces `next` if the subject is a spec of another tool. Rules with it are
    about the content of specs: one of ours that was changed is told as such, moved away and written again, and no
    provisioning writes one of a claim.
    """

    name: str
    find: Callable[[HostView], Iterable[Symptom]]
    next: str
    theirs: str = ""
    status: int = FINDINGS  # NOT_DONE: this symptom makes the answer of the doctor unreliable
    general: bool = False  # skips a subject that an earlier rule named


class HostFinding(NamedTuple):
    """A problem of `subject`, and the next command."""

    rule: str
    subject: str
    problem: str
    next: str
    details: tuple[str, ...]  # every affected name, or every problem
    status: int = FINDINGS


def find_problems(rules: Iterable[DoctorRule], view: HostView) -> tuple[HostFinding, ...]:
    """Return the findings of `rules` in `view`, one for each rule and cause, in the order of the rules."""
    findings: list[HostFinding] = []
    named: set[str] = set()
    explained: set[str] = set()
    for rule in rules:
        told = named | explained if rule.general else frozenset(explained)
        found = [one for one in rule.find(view) if one.subject not in told]
        findings += [_finding(rule, same, view) for same in _by_cause(found)]
        named.update(one.subject for one in found)
        explained.update(subject for one in found for subject in one.explains)
    return tuple(findings)


def _by_cause(symptoms: Iterable[Symptom]) -> Iterator[Sequence[Symptom]]:
    causes: dict[tuple[str, str], list[Symptom]] = {}
    for one in symptoms:
        causes.setdefault((one.subject, one.problem if one.name else ""), []).append(one)
    yield from causes.values()


def _finding(rule: DoctorRule, symptoms: Sequence[Symptom], view: HostView) -> HostFinding:
    first = symptoms[0]
    if first.name:
        details = tuple(dict.fromkeys(one.name for one in symptoms))
        problem = f"{first.problem}: {_some(details, ', ')}"
    else:
        details = tuple(dict.fromkeys(one.problem for one in symptoms))
        problem = _some(details, "; ")
    if not rule.general and _is_changed_spec(first.subject, view):
        problem = f"{CHANGE}; {problem}"
    return HostFinding(
        rule.name,
        first.subject,
        problem,
        _next(rule, first.subject, view).replace("{subject}", shlex.quote(first.subject)),
        details,
        rule.status,
    )


def _next(rule: DoctorRule, subject: str, view: HostView) -> str:
    """Return the next step: it depends on who wrote a spec."""
    if not rule.theirs or subject in view.written.managed:
        return rule.next
    if subject in view.written.claim_specs:
        return advice.CLAIM
    kind = view.wanted.manifest.kind_of(subject)
    if not kind:
        return rule.theirs
    if not _is_changed_spec(subject, view):
        return rule.next
    return advice.MOVE + (advice.REFRESH if kind in view.wanted.kinds else advice.PROVISION)


def _is_changed_spec(path: str, view: HostView) -> bool:
    """Return True if fleet.cdi wrote the spec, and its content is another one now."""
    return bool(view.wanted.manifest.kind_of(path)) and view.written.files.get(files.canonical(path)) == CHANGED


def _some(texts: Sequence[str], between: str) -> str:
    more = len(texts) - SHOWN
    return between.join(texts[:SHOWN]) + (f"{between}and {more} more" if more > 0 else "")
