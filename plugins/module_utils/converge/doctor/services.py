# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the systemd units of the refresh and of the device plugin (systemctl(1), "show")."""

from __future__ import annotations

from collections.abc import Iterator

from ..services.converge_unit import CONVERGE_TIMER
from ..services.device_plugin_unit import INSTANCES, instance
from ..services.openers_unit import SOCKET
from ..services.refresh_service import UNITS, WATCHERS
from . import advice
from .rule import DoctorRule, Symptom
from .view import HostView

ENABLED = ("enabled", "enabled-runtime", "alias", "static", "linked")
RUNS = ("active", "activating", "reloading")
PLUGIN = tuple(map(instance, INSTANCES))


def _masked(view: HostView) -> Iterator[Symptom]:
    for unit, found in view.running.units.items():
        if found.get("LoadState") == "masked":
            yield Symptom(unit, "is masked, so nothing can start it")


def _unknown(view: HostView) -> Iterator[Symptom]:
    for unit, found in view.running.units.items():
        if found.get("LoadState") not in ("loaded", "masked", None):
            yield Symptom(unit, f"systemd can't load it ({found['LoadState']})")


def _failed(view: HostView) -> Iterator[Symptom]:
    for unit, found in view.running.units.items():
        if found.get("ActiveState") == "failed":
            yield Symptom(unit, f"failed ({found.get('Result') or 'no result is known'})")


def _outdated(view: HostView) -> Iterator[Symptom]:
    for unit, found in view.running.units.items():
        if found.get("NeedDaemonReload") == "yes":
            yield Symptom(unit, "its file was changed since systemd read it")


def _disabled(view: HostView) -> Iterator[Symptom]:
    for unit in (*UNITS, CONVERGE_TIMER, SOCKET):
        state = view.running.units.get(unit, {}).get("UnitFileState")
        if state is not None and state not in ENABLED and not state.startswith("masked"):
            yield Symptom(unit, f"does not start at boot (it is {state or 'not installed'})")
    plugin = {unit: view.running.units[unit] for unit in PLUGIN if unit in view.running.units}
    if plugin and not any(found.get("UnitFileState") in ENABLED for found in plugin.values()):
        yield Symptom(PLUGIN[0], "does not start at boot, and no other instance does")


def _stopped(view: HostView) -> Iterator[Symptom]:
    for unit in (*WATCHERS, CONVERGE_TIMER, SOCKET):
        state = view.running.units.get(unit, {}).get("ActiveState")
        if state is not None and state not in (*RUNS, "failed"):
            yield Symptom(unit, f"does not run (it is {state})")
    plugin = {unit: view.running.units[unit] for unit in PLUGIN if unit in view.running.units}
    if plugin and all(found.get("ActiveState") not in (*RUNS, "failed") for found in plugin.values()):
        yield Symptom(PLUGIN[0], "does not run, and no other instance does")


RULES = (
    DoctorRule("unit-masked", _masked, "`systemctl unmask {subject}`; then " + advice.PROVISION),
    DoctorRule("unit-unknown", _unknown, advice.PROVISION),
    DoctorRule("unit-failed", _failed, "`journalctl -u {subject}` says why; then `systemctl restart {subject}`"),
    DoctorRule("unit-outdated", _outdated, "`systemctl daemon-reload`; then `systemctl restart {subject}`"),
    DoctorRule("unit-disabled", _disabled, "`systemctl enable --now {subject}`"),
    DoctorRule("unit-stopped", _stopped, "`systemctl start {subject}`", general=True),
)
