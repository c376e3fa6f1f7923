# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi functions: make virtual functions of PCI devices."""

from __future__ import annotations

from typing import Any

from ..converge.driver.virtual_functions import make_functions, parse
from ..layout import Layout
from ..records import CdiError
from .change_log import log_verb
from .terminal import complain, say, say_document


def run(arguments: Any, _paths: Layout) -> int:
    """Make missing functions; return 1 if some failed, which does not stop the others. Raises CdiError."""
    every = [parse(text) for text in arguments.wanted]
    changed, failed = [], []
    for wanted in every:
        try:
            changed += [wanted.device] if make_functions(wanted, arguments.check) else []
        except CdiError as error:
            failed.append(str(error))
    if not arguments.check:
        log_verb("functions", (f"made: virtual functions of {device}" for device in changed))
    if arguments.json:
        say_document({"changed": changed, "failed": failed}, sort_keys=False)
    else:
        for device in changed:
            say(f"{'would be made' if arguments.check else 'made'}: virtual functions of {device}")
        if not changed and not failed:
            say("Nothing to make.")
        for text in failed:
            complain(text)
    return 1 if failed else 0
