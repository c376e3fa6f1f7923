# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All explanations, by subject. Import this only where there is something to explain: the tables are large."""

from __future__ import annotations

from typing import Optional

from . import doctor_rules, protocol_codes, report_rules, spec_rules
from .explanation import Explanation, find_explanation
from .messages import (
    claims,
    commands,
    device_plugin,
    devices,
    documents,
    files,
    hooks,
    ledger,
    pods,
    protocol,
    releases,
    runtimes,
    settings,
    slurm,
    specs,
    upgrades,
)

# Title of a page of docs/errors -> its explanations.
SUBJECTS = {
    "Files and directories": files.EXPLANATIONS,
    "Documents": documents.EXPLANATIONS,
    "Settings and options": settings.EXPLANATIONS,
    "The command line": commands.EXPLANATIONS,
    "Devices": devices.EXPLANATIONS,
    "Specs": specs.EXPLANATIONS,
    "Container runtimes": runtimes.EXPLANATIONS,
    "Hooks": hooks.EXPLANATIONS,
    "The ledger": ledger.EXPLANATIONS,
    "Calls of executables": protocol.EXPLANATIONS,
    "Claims": claims.EXPLANATIONS,
    "Pods": pods.EXPLANATIONS,
    "The device plugin": device_plugin.EXPLANATIONS,
    "Slurm": slurm.EXPLANATIONS,
    "Releases and hosts": releases.EXPLANATIONS,
    "Upgrades": upgrades.EXPLANATIONS,
    "Error codes of executables": protocol_codes.EXPLANATIONS,
    "Rules of doctor": doctor_rules.EXPLANATIONS,
    "Rules of reports": report_rules.EXPLANATIONS,
    "Rules of specs": spec_rules.EXPLANATIONS,
}
EVERY = tuple(one for explanations in SUBJECTS.values() for one in explanations)


def explanation_for(text: str) -> Optional[Explanation]:
    """Return the explanation of a message; None if it has none."""
    return find_explanation(EVERY, text)
