# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the release: its files, its links and its record."""

from __future__ import annotations

from collections.abc import Iterator

from . import advice
from .rule import NOT_DONE, DoctorRule, Symptom
from .view import HostView


def _damaged(view: HostView) -> Iterator[Symptom]:
    return (Symptom(fault.path, fault.problem) for fault in view.written.release)


def _link_gone(view: HostView) -> Iterator[Symptom]:
    return (Symptom(fault.path, fault.problem) for fault in view.written.link if fault.gone)


def _link_changed(view: HostView) -> Iterator[Symptom]:
    return (Symptom(fault.path, fault.problem) for fault in view.written.link if not fault.gone)


RULES = (
    DoctorRule("release-damaged", _damaged, advice.PROVISION, status=NOT_DONE),
    DoctorRule("command-link-gone", _link_gone, advice.PROVISION),
    DoctorRule("command-link-changed", _link_changed, "remove what `ls -l {subject}` shows; then " + advice.PROVISION),
)
