# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a message is recognized."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.explanation import (
    LONGEST,
    Explanation,
    explanations_of,
    find_explanation,
    match,
)


def page(id_, *messages, rules=()):
    return Explanation(id_, "", messages, "", "", "", "", rules)


PAGES = (
    page("FC1", "is a symlink to *; expected a file"),
    page("FC2", ": found *; expected"),
    page("FC3", "claim: found no id; expected"),
    page("FC4", "could not be undone: *"),
    page("FC2101", "(error 101)", rules=("pool",)),
)


@pytest.mark.parametrize(
    ("phrase", "text", "place"),
    [
        ("b", "abc", (1, 2)),
        ("b*d", "abcde", (1, 4)),
        ("b*d", "adcb", None),
        ("aa*a", "aa", None),  # the parts do not overlap
        ("*c", "abc", (0, 3)),
        ("c*", "abc", (2, 3)),
        ("a*", "", None),
    ],
)
def test_a_phrase_is_in_a_text(phrase, text, place):
    assert match(phrase, text) == place


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("/a: is a symlink to /b; expected a file. Remove it.", "FC1"),
        ("nothing of that", None),
        ("x: found 1; expected 2", "FC2"),
        ("claim: found no id; expected one", "FC3"),  # the longer one of two at one place
        ("x: found 1; expected 2; then it could not be undone: /a: is a symlink to /b; expected a file", "FC1"),
        ("it could not be undone: Input/output error", "FC4"),  # what it passes on is unknown
        ("/a: is a symlink to /x: found 1; expected 2; expected a file", "FC1"),
        ("x" * LONGEST + ": found 1; expected 2", None),
    ],
)
def test_the_last_message_counts_and_the_longer_phrase(text, id_):
    found = find_explanation(PAGES, text)
    assert (found.id if found else None) == id_


@pytest.mark.parametrize(
    ("word", "ids"),
    [("FC1", ["FC1"]), ("fc1", ["FC1"]), ("101", ["FC2101"]), ("pool", ["FC2101"]), ("1", []), ("", [])],
)
def test_a_word_names_pages(word, ids):
    assert [one.id for one in explanations_of(PAGES, word)] == ids
