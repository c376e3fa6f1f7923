# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin: its configuration, its service, and whether the kubelet lists its resources."""

from __future__ import annotations

import time
from typing import Any

from ... import light_typing
from ..services import device_plugin_config, device_plugin_info, device_plugin_service
from .part import HostProblem, HostRun, PartOutcome

PAUSE = 2.0  # seconds between two looks at what the kubelet lists
NOT_READY = "not-ready"


def converge(run: HostRun) -> PartOutcome:
    """Configure and start the device plugin if the settings have it. Raises CdiError."""
    settings = run.settings["device_plugin"]
    if settings is None:
        return PartOutcome()
    light_typing.uninstall()  # before gRPC is imported
    places = run.options(
        config_file=settings["config"],
        kubelet_dir=settings["kubelet_dir"],
        device_list=run.settings["device_list"],
        spec_dirs=run.spec_dirs,
        state="present",
    )
    same = (
        "resources",
        "delivery",
        "registration",
        "takeover",
        "occupied",
        "occupied_ignore",
        "metrics",
        "grace",
        "force",
    )
    configured, warnings = device_plugin_config.answer(
        {**places, **{name: settings[name] for name in same}, "timeout": 10}, run.check
    )
    service, more = device_plugin_service.answer({**places, **unit_options(settings)}, run.check)
    changed = configured["changed"] or service["changed"]
    outcome = PartOutcome(changed, [*configured["diff"], *service["diff"]], [*warnings, *more])
    if run.check and service["changed"]:  # nothing was started, so there may be nothing to ask
        return outcome
    wait = 0 if run.check else settings["wait"]
    found, last = _waited(places, wait)
    problems = () if found["ready"] else (HostProblem(NOT_READY, _not_ready(found["pending"], wait)),)
    return outcome._replace(warnings=[*outcome.warnings, *last], problems=problems)


def unit_options(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the options of module device_plugin_service that follow from the settings."""
    resources = list(settings["resources"].values())
    return {
        "metrics": settings["metrics"],
        # Commands may have to open the devices that they clean. The plugin itself opens none.
        "device_access": any(one.get("setup") or one.get("teardown") for one in resources),
        "network_access": settings["network_access"],
        "capabilities": settings["capabilities"],
        "writable_paths": settings["writable_paths"],
        # Whether a resource needs to know which processes have devices open.
        "process_access": any(
            choice != "ignore"
            for choice in (settings["occupied"], *(one.get("occupied", "ignore") for one in resources))
        ),
        "timeout": settings["wait"],
    }


def _waited(places: dict[str, Any], seconds: int) -> tuple[dict[str, Any], list[str]]:
    """Ask until the kubelet lists the resources, `seconds` at most."""
    until = time.monotonic() + seconds
    while True:
        found, warnings = device_plugin_info.answer(places, False)
        if found["ready"] or time.monotonic() >= until:
            return found, warnings
        time.sleep(PAUSE)


def _not_ready(pending: list[str], seconds: int) -> str:
    return (
        f"Not ready after {seconds} s: {'; '.join(pending)}. Run `fleet-cdi plugin status` and "
        "`journalctl -u 'fleet-cdi-device-plugin@*'` on the host for the details."
    )
