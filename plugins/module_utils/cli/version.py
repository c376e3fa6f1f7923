# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi version: the release of this host and its git commit; with --verify, whether its files are that release."""

from __future__ import annotations

from typing import Any

from ..layout import Layout
from ..release import proof
from .terminal import say, say_document

WORK_TREE = "none: made from a work tree, not from a release"


def run(arguments: Any, paths: Layout) -> int:
    """Print the identity of the release; return 1 if --verify finds a difference. Raises CdiError."""
    found = proof.identity(paths.prefix)
    proved = proof.prove(paths.prefix, found.directory) if arguments.verify else None
    if arguments.json:
        document: dict[str, Any] = {**found._asdict(), "python": proof.interpreter(), "verified": None}
        if proved:
            document["verified"] = not proved.faults
            document["checked"] = dict(proved.counts)
            document["findings"] = [{"path": fault.path, "problem": fault.problem} for fault in proved.faults]
        say_document(document, sort_keys=False)
        return int(bool(proved and proved.faults))
    say(f"release    {found.release}", f"commit     {found.commit or WORK_TREE}", f"sources    sha256:{found.sources}")
    say(f"directory  {found.directory}", f"python     {proof.interpreter()}")
    if proved is None:
        return 0
    counts = proved.counts
    say(
        f"checked    {counts['files']} files: {counts['sources']} sources, {counts['byte_code']} of byte code, "
        f"{counts['launchers']} launchers"
    )
    for fault in proved.faults:
        say(f"differs    {fault.path}: {fault.problem}")
    say("verified   every file is as released" if not proved.faults else "verified   no")
    return int(bool(proved.faults))
