# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Note the errors that the code makes while tests run, and which of them no page explains.

messages.py reads messages from the source. A text that comes out of a field of a record, or that several files put
together, is whole only when the code runs. So every CdiError that a file of plugins/ makes is looked at: the first MOST
different texts of each line.
"""

from __future__ import annotations

import sys
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.every import explanation_for

MOST = 20  # texts of one line of code; some tests make thousands
OURS = "/plugins/"
# Files whose errors pass on the words of others. The place that shows them adds words of its own, or they have an id.
PASSED_ON = {
    "module_utils/converge/host_drain.py",  # of fleet-cdi on the host
    "module_utils/device_plugin/allocate/allocate.py",  # goes into the answer of a call, which has a page
    "module_utils/protocol/messages.py",  # of another executable, with its code
}

_seen: dict[tuple[str, int], set[str]] = {}
unexplained: list[str] = []  # since it was last emptied


def watch() -> None:
    """Look at each error from now on."""
    make = records.CdiError.__init__

    def made(self: records.CdiError, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        _look(str(self))

    records.CdiError.__init__ = made  # type: ignore[assignment, method-assign]


def _look(text: str) -> None:
    """Note a text without a page, unless a test or a program of others made it."""
    frame = sys._getframe(2)
    while frame.f_code.co_name == "__init__" and frame.f_back is not None:  # of subclasses
        frame = frame.f_back
    path, line = frame.f_code.co_filename, frame.f_lineno
    texts = _seen.setdefault((path, line), set())
    if len(texts) >= MOST or text in texts or OURS not in path or "/tests/" in path:
        return
    texts.add(text)
    if path.rpartition(OURS)[2] not in PASSED_ON and explanation_for(text) is None:
        unexplained.append(f"{path.rpartition(OURS)[2]}:{line}: {text[:300]}")
