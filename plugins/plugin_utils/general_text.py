# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leave the words of one host out of a text, so that texts of many hosts can be compared.

These are the host's own names, and words that name one thing of a host: addresses, serial numbers, processes, dates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
# Words that name one thing of one host -> what stands for them.
WORDS = (
    (re.compile(r"ansible-tmp-[0-9.-]+"), "ansible-tmp-N"),
    (re.compile(rf"(?<![\w.:]){_BYTE}(?:\.{_BYTE}){{3}}(?![\w.])"), "ADDRESS"),
    (re.compile(r"(?<![\w.:])(?=[0-9a-f:]*::|(?:[0-9a-f]+:){7})[0-9a-f:]{2,39}(?![\w.:])"), "ADDRESS"),
    (re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b"), "PCI-ADDRESS"),
    (re.compile(r"\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "ID"),
    (re.compile(r"\bpid [0-9]+"), "pid N"),
    (re.compile(r"\buid [0-9]+"), "uid N"),
    (re.compile(r"\b(request|claim|job|pod|container) \S+"), r"\1 NAME"),
    (re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{5,8}(?: ?UTC|Z)?"), "TIME"),
    (re.compile(r"/devices/[0-9]+(?=/|\b)"), "/devices/N"),
    (re.compile(r"\band [0-9]+ more\b"), "and more"),
    (re.compile(r"the spec says \S+, the host has no such device"), "the host has no such device"),
    # How many devices of a host have a fault does not make it another one.
    (re.compile(r"(?<!\S)(\S{0,200}\bDEVICE)(?:, \1\b)+(?:, and more\b)?"), r"\1"),
)


class OwnWords:
    """The words by which one host and its devices are known -> what stands for them."""

    def __init__(self, words: Mapping[str, str]) -> None:
        longest_first = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        self._words, self._form = words, re.compile(rf"(?<![\w-])(?:{longest_first})(?![\w-])")

    def left_out(self, text: str) -> str:
        """Return `text` without these words."""
        return self._form.sub(lambda match: self._words[match.group()], text) if self._words else text


def general(text: str, own: OwnWords) -> str:
    """Return `text` without the words of one host. `own` are those of this host."""
    text = own.left_out(text)
    for form, instead in WORDS:
        text = form.sub(instead, text)
    return text
