# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about single devices: unhealthy, out of service, or open in a process although no request holds them."""

from __future__ import annotations

from collections.abc import Iterator

from .rule import DoctorRule, Symptom
from .view import HostView


def _unhealthy(view: HostView) -> Iterator[Symptom]:
    kinds = {file.path: file.spec["kind"] for file in view.written.registry.specs}
    gone = {f"{kinds[path]}={one.expected}" for path, reasons in view.live.stale.items() for one in reasons}
    for device in view.live.ill:
        if gone.isdisjoint(device.qualified_names):  # a stale spec says more
            yield Symptom(device.qualified_names[0], f"{device.id}: {device.health.reason}")


def _disabled(view: HostView) -> Iterator[Symptom]:
    for name, one in view.wanted.disabled.items():
        until = f"until {one.until}" if one.until else "until it is enabled"
        yield Symptom(name, f"out of service since {one.since}, {until}: {one.reason}")


def _occupied(view: HostView) -> Iterator[Symptom]:
    for one in view.running.occupied:
        yield Symptom(one.device, f"{one}, and nobody holds it")


RULES = (
    DoctorRule(
        "unhealthy",
        _unhealthy,
        "repair what the reason names; or `fleet-cdi device disable {subject} --reason TEXT` until then",
    ),
    DoctorRule(
        "occupied",
        _occupied,
        "end the process that is named (`fleet-cdi grants list --open` shows all); or name its program in "
        "occupied_ignore of the configuration, if it does not use the device",
    ),
    DoctorRule("disabled", _disabled, "`fleet-cdi device enable {subject}` when it may be used again"),
)
