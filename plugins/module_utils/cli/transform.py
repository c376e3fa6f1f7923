# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi transform: print a spec for another root directory."""

from __future__ import annotations

import sys
from typing import Any

from ..layout import Layout
from ..records import CdiError
from ..spec import codec
from ..spec.transform import CONTAINER, HOST, move
from . import operand
from .terminal import ascii_json, complain


def run(arguments: Any, _paths: Layout) -> int:
    """Print the spec as JSON with its paths moved; the file stays unchanged. Raises CdiError."""
    roots = {"--from": arguments.old_root or "/", "--to": arguments.new_root or "/"}
    for option, root in roots.items():
        if not root.startswith("/"):
            raise CdiError(f"{option}: found {root!r}; expected an absolute path")
    whose = arguments.relative_to or HOST
    if whose not in (HOST, CONTAINER):
        raise CdiError(f"--relative-to: found {whose!r}; expected {HOST} or {CONTAINER}")
    content = operand.read(arguments.path)
    spec, findings = codec.read(content, operand.name_of_spec(arguments.path, content))
    if spec is None:
        raise CdiError(f"{operand.called(arguments.path)}: is not a valid spec: {codec.errors_in(findings)}")
    moved = move(spec, roots["--from"], roots["--to"], whose)
    if whose == CONTAINER and any(hook.get("args") for hook in _hooks(spec)):
        complain("warning: the arguments of hooks may name paths in the container; they stay")
    sys.stdout.write(ascii_json(codec.encode(moved).decode()))
    return 0


def _hooks(spec: dict[str, Any]) -> list[dict[str, Any]]:
    edits = [spec.get("containerEdits", {}), *(device["containerEdits"] for device in spec["devices"])]
    return [hook for one in edits for hook in one.get("hooks", ())]
