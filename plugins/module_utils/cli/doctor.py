# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi doctor: what keeps containers from their devices, and what to do next. Private API of fleet.cdi."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.cli.paths import Paths
from ansible_collections.fleet.cdi.plugins.module_utils.cli.text import say
from ansible_collections.fleet.cdi.plugins.module_utils.converge import doctor
from ansible_collections.fleet.cdi.plugins.module_utils.records import as_document


def run(arguments: Any, paths: Paths) -> int:
    """Print the findings; 1 if there are any. Raises CdiError for a manifest that can't be read."""
    found, engines = doctor.examine(paths.spec_dirs, paths.state_dir, paths.inventory, os.environ.get("PATH", ""))
    findings = doctor.diagnose(found, engines)
    if arguments.json:
        say(json.dumps({"findings": as_document(findings), "runtimes": as_document(engines.runtimes)}, indent=2))
        return 1 if findings else 0
    for one in findings:
        text = one.problem if one.problem.startswith(one.subject) else f"{one.subject}: {one.problem}"
        say(f"{one.rule}: {text}\n  next: {one.next}")
    count = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}" if findings else "No findings"
    runtimes = (
        ", ".join(
            f"{one.name} {one.version} ({f'CDI {one.reads}' if one.reads else 'no CDI'})" for one in engines.runtimes
        )
        or "none"
    )
    say(f"{count}. Qualified names that resolve: {len(found.registry.devices)}. Container runtimes: {runtimes}.")
    return 1 if findings else 0
