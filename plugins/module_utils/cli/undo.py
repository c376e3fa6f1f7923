# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi undo: take back every file that fleet.cdi wrote on this host."""

from __future__ import annotations

from typing import Any, Optional

from ..converge.undo import undo
from ..layout import Layout
from ..manifest import read_manifest
from .change_log import log_verb
from .step_line import StepLine
from .terminal import say, say_document


def run(arguments: Any, paths: Layout) -> int:
    """Undo by the manifest and print the changes; return 1 if something was kept. Raises CdiError."""
    edits = read_manifest(paths.state_dir).edits
    readers = {path: str(record["for"]).partition("/")[0] for path, record in edits.items()}
    with StepLine("takes files back"):
        done = undo(paths, check=arguments.check, force=arguments.force)
    if not arguments.check:
        log_verb("undo", (*(line for _path, line in done.lines()), *(f"forced: {why}" for why in done.forced)))
    kept = [{"path": path, "reason": reason} for path, reason in done.kept]
    if arguments.json:
        say_document({"removed": done.removed, "restored": done.restored, "kept": kept, "forced": done.forced})
        return 1 if kept else 0
    would = "would be " if arguments.check else ""
    for path, line in done.lines():
        say(f"{would}{line}{_note(readers.get(path))}")
    for why in done.forced:
        say(f"{would}forced: {why}")
    for path, reason in done.kept:
        say(f"kept: {reason}" if path in reason else f"kept: {path}: {reason}")
    if not any(done):
        say(f"Nothing to undo: the manifest in {paths.state_dir} lists no file.")
    return 1 if kept else 0


def _note(runtime: Optional[str]) -> str:
    """Tell when a container runtime applies the change; podman has no daemon."""
    return f" (for {runtime} from its next restart on)" if runtime not in (None, "podman") else ""
