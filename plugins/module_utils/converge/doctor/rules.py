# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All rules of the doctor, in the order in which their findings are told.

To add a rule, add a row to `RULES` of the file that has the subject's name (specs.py, runtimes.py, ...):

    Rule("hook-no-env", _hooks_without_env, "run `fleet-cdi refresh`, which writes it anew")

Its function takes the `View` (view.py) and yields a `Symptom` for each thing that is wrong: the cause as the subject, a
sentence that says what was found and what was expected, and as `name` what is affected. It reads no files: what the
rule needs and the view lacks is a new field of `Wanted`, `Written`, `Live` or `Running`, which `view.take` fills. Then
add a test to tests/unit/plugins/module_utils/converge/test_doctor.py.

A new subject is a new file with `RULES`, named below. What says most about a cause comes first: a `general` rule is
silent about subjects that a rule before it named.
"""

from __future__ import annotations

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
