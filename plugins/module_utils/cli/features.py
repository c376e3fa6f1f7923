# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi features: the devices of this host as labels for Kubernetes' Node Feature Discovery."""

from __future__ import annotations

import os
from typing import Any

from ..converge.devices import list_devices
from ..converge.node_features import feature_text, keep_features
from ..layout import Layout
from ..records import CdiError
from .change_log import log_verb
from .terminal import say, say_document


def run(arguments: Any, paths: Layout) -> int:
    """Print the feature file, or keep that of --output. Raises CdiError."""
    if arguments.output is None:
        if arguments.check:
            raise CdiError("--check: found it without --output; expected both")
        text = feature_text(list_devices(paths.state_dir, paths.inventory, paths.spec_dirs).devices)
        if arguments.json:
            say_document({"labels": dict(line.split("=", 1) for line in text.splitlines())})
        else:
            say(*text.splitlines())
        return 0
    output = os.path.abspath(arguments.output) if arguments.output else ""
    changes = keep_features(output, paths.inventory, paths.state_dir, arguments.check)
    lines = [f"{'changed' if one.after is not None else 'removed'}: {one.path}" for one in changes]
    if not arguments.check:
        log_verb("features", lines)
    if arguments.json:
        say_document({"changed": [one.path for one in changes], "check": arguments.check})
        return 0
    say(*(f"{'would be ' if arguments.check else ''}{line}" for line in lines))
    if not changes:
        say("Nothing to change.")
    return 0
