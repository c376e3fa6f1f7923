# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the release: its files, the links to it, its record."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import advice
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rule import NOT_DONE, Rule, Symptom
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.view import View


def _damaged(view: View) -> Iterator[Symptom]:
    return (Symptom(fault.path, fault.problem) for fault in view.written.release)


def _not_on_path(view: View) -> Iterator[Symptom]:
    return (Symptom(fault.path, fault.problem) for fault in view.written.link)


RULES = (
    Rule("release-damaged", _damaged, advice.PROVISION, status=NOT_DONE),
    Rule(
        "command-link",
        _not_on_path,
        "remove what is there now, if anything (`ls -l {subject}` shows it); then " + advice.PROVISION,
    ),
)
