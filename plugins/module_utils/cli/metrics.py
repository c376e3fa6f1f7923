# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi metrics: the state of this host for Prometheus, without Kubernetes."""

from __future__ import annotations

import os
import sys
from typing import Any

from .. import files
from ..layout import Layout
from ..records import CdiError
from ..report.host_metrics import PREFIX, metrics_text


def run(arguments: Any, paths: Layout) -> int:
    """Print the metrics, or replace the file of --output. Raises CdiError, also for a file of another program."""
    if arguments.output is None:
        sys.stdout.write(metrics_text(paths))
        return 0
    if not arguments.output.endswith(".prom"):
        raise CdiError(
            f"--output: found {arguments.output!r}; expected a name with .prom: node_exporter reads no other"
        )
    output = os.path.abspath(arguments.output)
    live = files.read(output, trusted=False)
    if live and live.content and not live.content.startswith(f"# HELP {PREFIX}".encode()):
        raise CdiError(
            f"{output}: found a file of another program; expected one of `fleet-cdi metrics`, or none: "
            "choose another name, or remove the file"
        )
    files.replace(output, metrics_text(paths).encode(), trusted=False)
    return 0
