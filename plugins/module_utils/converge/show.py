# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes, as the diff of a module shows it. Private API of fleet.cdi."""

from __future__ import annotations

import json
from typing import Any, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.converge.plan import Change


def diff(name: str, before: Any, after: Any) -> dict[str, Any]:
    """One part of a diff."""
    return {"before_header": name, "after_header": name, "before": before, "after": after}


def text(change: Change) -> dict[str, Any]:
    """A file that is text."""
    before, after = ((content or b"").decode(errors="replace") for content in (change.before, change.after))
    return diff(change.path, before, after)


def document(change: Change) -> dict[str, Any]:
    """A file that is JSON."""
    return diff(change.path, parsed(change.before), parsed(change.after))


def parsed(content: Optional[bytes]) -> Any:
    """The document in a file, or its text if it holds none, or "" for no file."""
    try:
        return json.loads(content) if content else ""
    except ValueError:
        return (content or b"").decode(errors="replace")


def units(before: Any, after: Any) -> list[dict[str, Any]]:
    """What systemd is to say of units (a record) other than it does; [] where that is the same."""
    return [] if before == after else [diff("systemd", before._asdict(), after._asdict())]
