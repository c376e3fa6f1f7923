# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""README's tables of the versions that were tried, from docs/tested.yml, which `make matrix` writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

# Section of docs/tested.yml: heading of each column, and the text in its rows.
COLUMNS = {
    "cores": {
        "ansible-core": "{ansible_core}",
        "Python of the controller": "{python}",
        "provision: check, run, repeat, remove": "{provision}",
        "units of what Ansible loads": "{units}",
        "`ansible-test sanity`": "{sanity}",
        "tried on": "{date}",
    },
    "hosts": {
        "Python of the host": "{python}",
        "SQLite": "{sqlite}",
        "Debian": "{debian}",
        "units": "{units}",
        "tried on": "{date}",
    },
}


def with_tables(page: str) -> str:
    """Return a page with its tables of tested versions made anew: those after `<!-- tested: SECTION -->`."""
    known = yaml.safe_load(Path(__file__).with_name("tested.yml").read_text(encoding="utf-8"))

    def made(found: re.Match[str]) -> str:
        rows = "\n".join(table(COLUMNS[found["section"]], known[found["section"]]))
        return f"<!-- tested: {found['section']} -->\n\n{rows}\n\n"

    return re.sub(r"<!-- tested: (?P<section>\w+) -->\n\n(?:\|.*\n)*\n*", made, page)


def table(columns: dict[str, str], rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    if not rows:
        yield "| not yet |" + " |" * (len(columns) - 1)
    for row in rows.values():
        known = {**dict.fromkeys(("provision", "units", "sanity"), "not yet"), **row}
        yield f"| {' | '.join(text.format_map(known) for text in columns.values())} |"
