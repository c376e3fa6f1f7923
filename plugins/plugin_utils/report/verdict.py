# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on each host, and on the fleet: as a document, as JUnit XML, as a table.

A host is well if everything about it is known and nothing is wrong. An unknown truth is never well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.specs import STALE as STALE_RULES
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import rule_with_id
from ansible_collections.fleet.cdi.plugins.module_utils.safe_text import one_line
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import (
    MOST,
    UNKNOWN,
    HostAnswer,
    records_of,
    text_of,
)
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.summary import counted

WELL, UNSURE = "well", "unknown"
DRIFT, STALE, OCCUPIED, UNHEALTHY, PROBLEM = "drift", "stale", "occupied", "unhealthy", "problem"
VERDICTS = (UNHEALTHY, OCCUPIED, STALE, DRIFT, PROBLEM, UNSURE, WELL)  # the first that a host has counts
OPENERS, DOCTOR = "`fleet-cdi grants list --open`", "`fleet-cdi doctor`"  # which command says why a truth is unknown

# Rules of fleet-cdi doctor and of the report -> sort of verdict. All others are a PROBLEM.
SORTS = {
    **dict.fromkeys(("occupied",), OCCUPIED),
    **dict.fromkeys(
        ("unhealthy", "withheld", "wanted-unhealthy", "grant-lost", "wanted-gone", "promised-gone", "promised-swapped"),
        UNHEALTHY,
    ),
    **dict.fromkeys((*STALE_RULES, "wanted-not-written", "written-gone", "written-withdrawn"), STALE),
    **dict.fromkeys(
        [
            f"{thing}-{what}"
            for thing in ("spec", "inventory", "pool", "device-state", "unit", "file", "command-link")
            for what in ("gone", "changed")
        ],
        DRIFT,
    ),
    **dict.fromkeys(("runtime-key-changed", "other-release", "not-provisioned"), DRIFT),
}


class HostProblem(NamedTuple):
    """One reason of a verdict."""

    sort: str  # one of VERDICTS
    rule: str
    text: str
    next: str


class HostVerdict(NamedTuple):
    """The verdict on one host."""

    host: str
    rack: str
    verdict: str
    problems: tuple[HostProblem, ...]


def verdict_of(answer: HostAnswer, check: Any) -> HostVerdict:
    """Return the verdict by the truth of a host and the result of module cdi_host in check mode."""
    problems = [*_truth(answer), *_drift(check if isinstance(check, Mapping) else {}, bool(answer.why))]
    problems.sort(key=lambda one: VERDICTS.index(one.sort))
    return HostVerdict(answer.name, answer.rack, problems[0].sort if problems else WELL, tuple(problems))


def _truth(answer: HostAnswer) -> Iterable[HostProblem]:
    for one in answer.findings:
        said = one.problem if one.problem.startswith(one.subject) else f"{one.subject}: {one.problem}"
        yield HostProblem(SORTS.get(one.rule, PROBLEM), one.rule, said, one.next)
    if answer.why:
        yield HostProblem(UNSURE, "no-answer", answer.why, "")
        return
    blank = [device for device in answer.devices if device.state == UNKNOWN]
    if blank:
        lacking = sorted({word for device in blank for word in device.fields["unknown"].split()}) or ["a truth"]
        text = f"{', '.join(lacking)} of {len(blank)} of {len(answer.devices)} devices can't be told"
        yield HostProblem(
            UNSURE, "unknown", text, f"{OPENERS if lacking == ['openers'] else DOCTOR} on the host says why"
        )


def _drift(check: Mapping[str, Any], silent: bool) -> Iterable[HostProblem]:
    """Return the drift: what the settings would change, and why they could not be met."""
    again = "`ansible-playbook fleet.cdi.provision`"
    parts = check.get("parts")
    if isinstance(parts, Mapping):
        names = [text_of(name) for name, changed in list(parts.items())[:MOST] if changed is True]
        if names:
            yield HostProblem(DRIFT, "settings", f"the settings would change: {', '.join(names)}", again)
    listed = records_of(check.get("problems"))
    for one in listed:
        yield HostProblem(PROBLEM, text_of(one.get("code")), text_of(one.get("message")), again)
    if not listed and not isinstance(parts, Mapping) and not silent:
        yield HostProblem(
            UNSURE, "no-check", f"no check of the settings: {text_of(check.get('msg')) or 'no answer'}", again
        )


def verdict_document(verdicts: Sequence[HostVerdict]) -> dict[str, Any]:
    """Return the verdicts for JSON."""
    return {
        "verdict": WELL if all(one.verdict == WELL for one in verdicts) else "findings",
        "hosts": {one.host: {"verdict": one.verdict, "problems": _documents(one)} for one in verdicts},
        "count": {name: sum(one.verdict == name for one in verdicts) for name in VERDICTS},
    }


def _documents(one: HostVerdict) -> list[dict[str, str]]:
    return [problem._asdict() for problem in one.problems]


def junit_text(verdicts: Sequence[HostVerdict]) -> str:
    """Return JUnit XML: a test case for each host, a failure for each problem, an error for each unknown."""
    bad = [one for one in verdicts if one.verdict not in (WELL, UNSURE)]
    unsure = sum(one.verdict == UNSURE for one in verdicts)
    counts = {"tests": str(len(verdicts)), "failures": str(len(bad)), "errors": str(unsure)}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "fleet.cdi.verify", **counts})
    for one in verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": one_line(one.rack or "fleet"), "name": one_line(one.host)}
        )
        for problem in one.problems:
            tag = "error" if problem.sort == UNSURE else "failure"
            told = {"type": one_line(problem.rule), "message": one_line(problem.text)}
            ElementTree.SubElement(case, tag, told).text = one_line(problem.next)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def verdict_table(verdicts: Sequence[HostVerdict]) -> list[str]:
    """Return the lines of a table of the hosts that are not well, and a line with the numbers."""
    rows = [("HOST", "VERDICT", "WHY")]
    for one in verdicts:
        for problem in one.problems:
            rows.append((one_line(one.host), problem.sort, _line(problem)))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{host.ljust(widths[0])}  {sort.ljust(widths[1])}  {why}" for host, sort, why in rows]
    counts = [(sum(one.verdict == name for one in verdicts), name) for name in VERDICTS]
    told = ", ".join(f"{count} {name}" for count, name in counts if count)
    return [*(lines if rows[1:] else []), f"{counted(len(verdicts), 'host')}: {told or 'none'}"]


def _line(problem: HostProblem) -> str:
    return rule_with_id(one_line(f"{problem.rule}: {problem.text}"), problem.rule)


def verdict_files(verdicts: Sequence[HostVerdict]) -> dict[str, Any]:
    """Return the verdicts in all forms."""
    found = verdict_document(verdicts)
    return {
        "well": found["verdict"] == WELL,
        "json": json.dumps(found, indent=1, ensure_ascii=False) + "\n",
        "xml": junit_text(verdicts),
        "table": verdict_table(verdicts),
        "problems": {one.host: [_line(problem) for problem in one.problems] for one in verdicts if one.problems},
    }
