# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that others wrote, made safe to show on a terminal, in a log or on a page.

A device's serial number, a file's name and an image's configuration may hold control characters: a newline forges a
line of a log, ESC drives a terminal (ECMA-48), and characters that turn the direction of text or have no width make it
look like another one (Unicode Standard Annex 9, Technical Report 36). Code that shows a text passes it through
`one_line`; what is kept and handed on as JSON stays as it was said.
"""

from __future__ import annotations


def one_line(text: str) -> str:
    """`text` with every character that can't be seen as itself written as its escape: "\\n", "\\x1b", "\\u202e".

    That is what `str.isprintable` calls not printable: control, format and separator characters but the blank, halves
    of surrogate pairs, private and unassigned ones. Never longer than ten times `text`.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
