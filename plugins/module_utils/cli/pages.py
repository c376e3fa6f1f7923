# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the manual page and the completion of shells as one JSON document: `fleet-cdi pages`, for the installation."""

from __future__ import annotations

from ..layout import Layout
from .completion import SCRIPTS
from .man import page
from .terminal import say_document


def main(paths: Layout) -> int:
    """Print file name -> text; release/tree.py links these names."""
    say_document({"fleet-cdi.8": page(paths), **{f"fleet-cdi.{shell}": text for shell, text in SCRIPTS.items()}})
    return 0
