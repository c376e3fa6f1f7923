# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All rules of the doctor, in the order of their findings.

To add a rule, add a row to `RULES` of the file that has the name of the subject (specs.py, runtimes.py, ...):

    DoctorRule("hook-no-env", _hooks_without_env, "run `fleet-cdi refresh`, which writes it again")

The function of a rule takes the `HostView` (view.py) and yields a `Symptom` for each problem. The subject of a symptom
is the cause. Its problem is a sentence with the value found and the value expected. Its `name` is the affected device.
The function reads no files: if the view lacks something, add a field to `RememberedState`, `Written`, `LiveDevices` or
`RunningState`, and fill it in `view.take`. Then add a test to the file with the same name below
tests/unit/plugins/module_utils/converge/doctor.

A new subject is a new file with `RULES`, named below. The rule that says most about a cause comes first: a `general`
rule skips subjects that an earlier rule named.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import (
    device_links,
    device_plugin,
    devices,
    executables,
    ledger,
    managed_files,
    release,
    runtimes,
    services,
    specs,
    state,
)

RULES = (
    *release.RULES,
    *state.RULES,
    *ledger.RULES,
    *services.RULES,
    *runtimes.RULES,
    *executables.RULES,
    *device_plugin.RULES,
    *managed_files.SPECIFIC,
    *specs.RULES,
    *devices.RULES,
    *device_links.RULES,
    *managed_files.GENERAL,
)


def next_steps(names: Iterable[str]) -> dict[str, str]:
    """Return the next step of each rule, by name; SUBJECT stands for the path, name or unit that a finding is about."""
    wanted = set(names)
    return {rule.name: rule.next.replace("{subject}", "SUBJECT") for rule in RULES if rule.name in wanted}
