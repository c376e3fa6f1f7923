# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi inject: print an OCI runtime spec with devices, as a runtime would start it."""

from __future__ import annotations

import json
import sys
from typing import Any

from ..layout import Layout
from ..records import CdiError
from ..spec import name_lookup, registry
from ..spec.errors import InjectError
from ..spec.inject import inject
from ..spec.seen import releases
from . import operand
from .terminal import complain, say_document


def run(arguments: Any, paths: Layout) -> int:
    """Print the OCI spec with the edits of the named devices, or nothing if a device is missing. Raises CdiError.

    With --json, an error condition of SPEC.md is also one JSON document on stdout.
    """
    document = _read(arguments.oci_spec)
    there = registry.load(paths.spec_dirs)
    names = [name_lookup.qualified(name, there) for name in arguments.name]
    try:
        text = json.dumps(inject(document, names, there), indent=2)
    except RecursionError:
        raise CdiError(f"{operand.called(arguments.oci_spec)}: is nested too deep for an OCI spec") from None
    except InjectError as error:
        if arguments.json:
            failed = {"condition": error.condition, "subjects": error.subjects, "message": str(error)}
            say_document({"error": failed}, sort_keys=False)
        raise
    sys.stdout.write(text + "\n")  # ASCII JSON
    newest = registry.seen_with(there, releases.NAMES[-1:])
    for name in names:
        if name not in newest.devices:
            older = ", ".join(registry.resolving(there, name))
            complain(
                f"warning: {name}: CDI library {releases.NAMES[-1]} does not resolve it, only {older}. "
                "Correct its spec; `fleet-cdi validate` names the fault"
            )
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
