# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi doctor: find what keeps containers from their devices, and the next step."""

from __future__ import annotations

from typing import Any

from ..converge.doctor.rule import find_problems
from ..converge.doctor.rules import RULES
from ..converge.doctor.view import take
from ..explanations.doctor_rules import EXPLANATIONS
from ..explanations.explanation import id_of_rule
from ..layout import Layout
from .step_line import StepLine
from .terminal import say, say_document


def run(arguments: Any, paths: Layout) -> int:
    """Print the findings; the exit status is that of the worst one: 0 for none, 1, or 2 for a damaged release."""
    with StepLine("looks at the host"):
        view = take(paths)
        findings = find_problems(RULES, view)
    status = max((one.status for one in findings), default=0)
    engines = [state.place for state in view.running.runtimes]
    if arguments.json:
        fields = ("rule", "subject", "problem", "next", "details")
        document = {
            "findings": [
                {**{key: getattr(one, key) for key in fields}, "explanation": id_of_rule(one.rule, EXPLANATIONS)}
                for one in findings
            ],
            "runtimes": [
                {"name": one.name, "version": one.version, "path": one.program, "reads": one.reads} for one in engines
            ],
        }
        say_document(document, sort_keys=False)
        return status
    for one in findings:
        text = one.problem if one.problem.startswith(one.subject) else f"{one.subject}: {one.problem}"
        say(f"{one.rule}: {text} [{id_of_rule(one.rule, EXPLANATIONS)}]", f"  next: {one.next}")
    count = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}" if findings else "No findings"
    runtimes = (
        ", ".join(f"{one.name} {one.version} ({f'CDI {one.reads}' if one.reads else 'no CDI'})" for one in engines)
        or "none"
    )
    say(f"{count}. Qualified names that resolve: {len(view.written.registry.devices)}. Container runtimes: {runtimes}.")
    return status
