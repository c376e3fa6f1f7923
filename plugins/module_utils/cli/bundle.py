# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi bundle: one archive for a support case, without secrets."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from ..bundle.archive import archive, contents, write_new
from ..bundle.members import collect
from ..layout import Layout
from ..records import CdiError
from .main import main
from .step_line import StepLine
from .terminal import say, say_document, table

HEADER = ("MEMBER", "BYTES", "SOURCE")
LEFT_OUT = ("LEFT OUT", "WHY")


def run(arguments: Any, paths: Layout) -> int:
    """Make the archive, or with --list say what would be in it. Raises CdiError."""
    output = arguments.output or time.strftime("fleet-cdi-bundle-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime())
    if output == "-" and not arguments.list and (arguments.json or sys.stdout.isatty()):
        raise CdiError("--output: found -; expected a file: standard output has other text, or is a terminal")
    places = paths._replace(
        state_dir=os.path.abspath(paths.state_dir),
        inventory=os.path.abspath(paths.inventory) if paths.inventory else "",
        spec_dirs=tuple(map(os.path.abspath, paths.spec_dirs)),
    )

    def verb(words: Sequence[str]) -> int:
        return main(words, "", places._asdict())

    with StepLine("begins") as line:
        taken = collect(places, verb, tell=lambda name: line.step(f"collects {name}"))
    document = contents(taken)
    if not arguments.list:
        content = archive(taken)
        if output == "-":
            sys.stdout.buffer.write(content)
            return 0
        write_new(output, content)
        document["output"] = os.path.abspath(output)
    if arguments.json:
        say_document(document, sort_keys=False)
        return 0
    say(*table(HEADER, ([[one["name"]], [str(one["bytes"])], [one["source"]]] for one in document["taken"])))
    if document["left_out"]:
        say("", *table(LEFT_OUT, ([[one["name"]], [one["why"]]] for one in document["left_out"])))
    if not arguments.list:
        say("", f"Written to {document['output']}. Look at it before you send it.")
    return 0
