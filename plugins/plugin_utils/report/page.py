# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as one HTML file that needs nothing else: page.html, page.css and page.js with the report in them.

The texts of hosts are in the file only as gzip in base64, so none of them can be HTML. The policy of the page allows
this one script and this one style, by their digests, and no request (Content Security Policy Level 3).
"""

from __future__ import annotations

import gzip
import html
import os
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from string import Template

TITLE = "Devices of the fleet"
POLICY = "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"


def page(report: str, title: str = "") -> str:
    """Return the file for a report in JSON."""
    parts = _parts()
    digests = {
        name: f"sha256-{b64encode(sha256(parts[name].encode()).digest()).decode()}" for name in ("script", "style")
    }
    return Template(parts["page"]).substitute(
        policy=POLICY.format(**digests),
        title=html.escape(title or TITLE),
        style=parts["style"],
        script=parts["script"],
        report=b64encode(gzip.compress(report.encode(), 6, mtime=0)).decode(),
    )


@lru_cache(maxsize=1)
def _parts() -> Mapping[str, str]:
    folder = os.path.dirname(os.path.abspath(__file__))
    found = {}
    for name, file in (("page", "page.html"), ("style", "page.css"), ("script", "page.js")):
        with open(os.path.join(folder, file), encoding="utf-8") as opened:
            found[name] = opened.read()
    return found
