# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of our English: what it reads, and what it finds."""

from __future__ import annotations

import prose
import pytest

PYTHON = '''\
"""Whether it runs. Raises
nothing."""
# A comment that somebody
# wrote.
MESSAGE = f"{1} is no "\\
    "integer"
'''


def found(name: str, text: str) -> list[tuple[int, str]]:
    return [(one.line, one.phrase) for one in prose.findings(name, text)]


@pytest.mark.parametrize(
    "text",
    [
        "Mend the driver",
        "the store that somebody else opened",
        "Whoever holds it",
        "file.json is no JSON",
        "the host has it not",
        "One that is granted stays as it is.",
        "The path, or None where there is none.",
        "What is another one once others changed the store",
        "they are none of these",
        "Private API of fleet.cdi.",
    ],
)
def test_banned_phrases_are_found(text):
    assert len(found("docs/page.md", text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "A recommendation is no longer necessary.",
        "There is no device.",
        "The command `what is` does it.",
        "```console\n$ tool\nwhat is this\n```",
        "> what is a quotation",
        "<!-- what is hidden -->",
        "A [link](what is.md).",
    ],
)
def test_plain_english_and_the_words_of_others_are_not(text):
    assert found("docs/page.md", text) == []


def test_of_python_it_reads_docstrings_messages_and_comments():
    assert found("plugins/module.py", PYTHON) == [(1, "Raises nothing"), (3, "somebody"), (5, "is no")]


def test_of_yaml_it_reads_all_but_code():
    text = "description:\n  - Of C(what is), what\n    is left.\n"
    assert found("roles/x/meta/argument_specs.yml", text) == [(2, "what is")]
