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

# Letters and marks without a shape, which `str.isprintable` takes for visible: those of the property
# Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt) with a category other than Cf and Cn, and the blank
# of braille.
_SHAPELESS = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def is_visible(text: str) -> bool:
    """Tell if every character is visible as itself, or a blank.

    Not so control, format and other separator characters, halves of surrogate pairs, private and unassigned characters,
    and those without a shape.
    """
    return text.isprintable() and (text.isascii() or _SHAPELESS.isdisjoint(text))


def one_line(text: str) -> str:
    """Return `text` with an escape for every character that is not visible as itself: "\\n", "\\x1b", "\\u202e".

    The result is at most ten times as long.
    """
    if is_visible(text):
        return text
    return "".join(letter if is_visible(letter) else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
