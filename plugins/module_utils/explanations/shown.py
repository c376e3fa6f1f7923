# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The id behind a message. The places that show messages import this file, which imports the tables only at need.

The message counts more than its id: if the tables can't be read, it is shown without. A process may have removed the
release that it runs, or may have entered an image.
"""

from __future__ import annotations


def with_id(text: str) -> str:
    """Return a message with the id of its explanation at its end; unchanged if it has none, or has it already."""
    found = id_of(text)
    return f"{text} [{found}]" if found and f"[{found}]" not in text[-40:] else text


def rule_with_id(text: str, rule: str) -> str:
    """Return what a rule says with the id of its page at its end; unchanged without a page, or with an id."""
    try:
        from .every import EVERY
        from .explanation import id_of_rule
    except (ImportError, OSError):
        return text
    found = id_of_rule(rule, EVERY)
    return f"{text} [{found}]" if found and "[FC" not in text[-10:] else text


def id_of(text: str) -> str:
    """Return the id of the explanation of a message, "" if it has none."""
    try:
        from .every import explanation_for
    except (ImportError, OSError):
        return ""
    found = explanation_for(text)
    return found.id if found else ""
