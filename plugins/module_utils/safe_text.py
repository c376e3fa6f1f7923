# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make foreign text safe to show on a terminal, in a log or on a page.

A device's serial number, a file's name and an image's configuration may have control characters: a newline forges a
line of a log, ESC controls a terminal (ECMA-48), and characters without width or with another text direction make it
look like another text (Unicode Standard Annex 9, Technical Report 36). Code that shows a text passes it through
`one_line`; stored JSON keeps the text unchanged.
"""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return `text` with an escape for every character that is not visible as itself: "\\n", "\\x1b", "\\u202e".

    These are the characters that `str.isprintable` rejects: control, format and separator characters but the blank,
    halves of surrogate pairs, private and unassigned ones. The result is at most ten times as long.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
