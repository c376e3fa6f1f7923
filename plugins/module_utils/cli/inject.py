# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi inject: print an OCI runtime spec with devices, as a runtime would start it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ..converge.injected_spec import failed_condition, inject_devices
from ..layout import Layout
from ..records import CdiError
from . import operand
from .terminal import complain, say_document


def run(arguments: Any, paths: Layout) -> int:
    """Print the OCI spec with the edits of the named devices, or nothing if a device is missing. Raises CdiError.

    Warns of a name that a container runtime of this host does not resolve. With --json, an error condition of SPEC.md
    is also one JSON document on stdout.
    """
    document = _read(arguments.oci_spec)
    try:
        done = inject_devices(document, arguments.name, paths.spec_dirs, os.environ.get("PATH", ""))
        text = json.dumps(done.document, indent=2)
    except RecursionError:
        raise CdiError(f"{operand.called(arguments.oci_spec)}: is nested too deep for an OCI spec") from None
    except CdiError as error:
        failed = failed_condition(error)
        if arguments.json and failed:
            say_document({"error": failed}, sort_keys=False)
        raise
    sys.stdout.write(text + "\n")  # ASCII JSON
    for warning in done.warnings:
        complain(f"warning: {warning}")
    return 0


def _read(path: str) -> Any:
    """Return the document in the file `path`. Raises CdiError for anything but JSON."""
    content = operand.read(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CdiError(
            f"{operand.called(path)}: is not valid JSON: {error}; expected an OCI spec, as config.json of a bundle"
        ) from None
