# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the Kubernetes device plugin: its configuration, and the problems that its instances report."""

from __future__ import annotations

from collections.abc import Iterator

from .rule import DoctorRule, Symptom
from .view import HostView


def _bad_config(view: HostView) -> Iterator[Symptom]:
    if view.written.plugin_config_error:
        yield Symptom(view.written.plugin_config, view.written.plugin_config_error)


def _bad_status(view: HostView) -> Iterator[Symptom]:
    for path, problem in view.running.status_errors.items():
        yield Symptom(path, f"{problem}, though its instance runs")


def _unwell(view: HostView) -> Iterator[Symptom]:
    if not view.running.status_errors:
        for text in view.running.plugin:
            yield Symptom("device plugin", text)


RULES = (
    DoctorRule(
        "plugin-config-damaged",
        _bad_config,
        "correct it, or `ansible-playbook PLAYBOOK` with role fleet.cdi.cdi_device_plugin writes it again",
    ),
    DoctorRule("plugin-status-damaged", _bad_status, "`systemctl restart 'fleet-cdi-device-plugin@*'`"),
    DoctorRule("plugin-unwell", _unwell, "`fleet-cdi plugin status` shows each resource"),
)
