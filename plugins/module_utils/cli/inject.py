# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi inject: print an OCI runtime spec with devices, as a runtime would start it."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

from ..converge.injected_spec import failed_condition, inject_devices
from ..layout import Layout
from ..records import CdiError
from . import operand
from .terminal import complain, say_document

LONGEST = 20  # characters of a number in a message


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
    """Return the document in the file `path`. Raises CdiError for anything but JSON.

    Of a key that comes twice the last one counts, as in the reference library.
    """
    content = operand.read(path)
    try:
        return json.loads(content, parse_constant=_constant, parse_float=_number, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise CdiError(
            f"{operand.called(path)}: is not valid JSON: {error}; expected an OCI spec, as config.json of a bundle"
        ) from None


def _constant(text: str) -> Any:
    """NaN, Infinity or -Infinity, which only Python reads and writes."""
    raise ValueError(f"found {text}")


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        raise ValueError(f"found {shown}, a number too large for readers of JSON")
    return number


def _integer(text: str) -> int:
    _number(text)  # also a bound: Python before 3.10.7 takes seconds for a megabyte of digits
    return int(text)
