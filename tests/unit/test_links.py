# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every link of a page leads to a file, and to a heading in it; README leads to every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(CHECKOUT.glob("docs/*.md")),
    *sorted(CHECKOUT.glob("roles/*/README.md")),
]
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[tuple[Path, str]]:
    """File and anchor of each link of a page that leads to a file of ours."""
    found = re.findall(r"\]\(([^)\s]+)\)", CODE.sub("`", page.read_text(encoding="utf-8")))
    ours = [link.partition("#") for link in found if "://" not in link]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _mark, anchor in ours]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page):
    for path, anchor in links(page):
        assert path.exists(), path
        assert not anchor or anchor in anchors(path), f"{path.name}#{anchor}"


def test_readme_leads_to_every_page():
    reached = {path for path, _anchor in links(CHECKOUT / "README.md")}
    assert {page for page in PAGES if page.name != "README.md"} <= reached
