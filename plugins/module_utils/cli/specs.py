# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi specs: list the CDI specs of this host as a runtime sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ..converge.kinds.spec_info import Survey, registry_document, survey
from ..converge.libraries import of_host
from ..layout import Layout
from .terminal import say, say_document, table

HEADER = ("SPEC", "KIND", "VERSION", "OURS", "DEVICES")


def run(arguments: Any, paths: Layout) -> int:
    """Print the registry of the spec directories; return 1 for errors, conflicts or a stale spec.

    Raises CdiError for a manifest that can't be read.
    """
    found = survey(paths.spec_dirs, paths.state_dir, paths.inventory, partial(of_host, paths.path))
    registry = found.registry
    shown = registry_document(found)
    if arguments.json:
        say_document(shown)
    elif shown["specs"]:
        say(*table(HEADER, map(_row, shown["specs"])))
    else:
        say(f"No specs in {' '.join(paths.spec_dirs)}.")
    if not arguments.json:
        for line in (*_otherwise(shown["specs"]), *_findings(found)):
            say(line)
    return 1 if registry.errors or registry.conflicts or found.stale else 0


def _row(spec: dict[str, Any]) -> tuple[list[str], ...]:
    devices = [name.partition("=")[2] for name in spec["names"]]
    return [spec["path"]], [spec["kind"]], [spec["cdi_version"]], ["yes" if spec["managed"] else "no"], devices


def _otherwise(specs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each other reading of a file, which other releases of the CDI library have."""
    for spec in specs:
        for other in spec["seen_otherwise"]:
            who, names = ", ".join(other["seen_by"]), ", ".join(other["names"])
            yield f"differs: {spec['path']}: defines {names} for the CDI library {who}"


def _findings(found: Survey) -> Iterator[str]:
    registry = found.registry
    for path, error in sorted(registry.errors.items()):
        yield f"error: {error}" if path in error else f"error: {path}: {error}"
    for name, paths in sorted(registry.conflicts.items()):
        yield f"conflict: {name} is defined by {' and '.join(paths)}; no runtime that reads both resolves it"
    for name, paths in sorted(registry.shadowed.items()):
        yield f"shadowed: {name} comes from {registry.devices[name]}, not from {' and '.join(paths)}"
    for path, reasons in sorted(found.stale.items()):
        yield from (f"stale: {path}: {reason}" for reason in reasons)
