# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of our English: what it reads, what it finds, and that its list of files to edit only shrinks."""

from __future__ import annotations

import subprocess

import prose
import pytest
import yaml

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


def test_a_file_outside_of_the_list_has_to_be_clean_and_one_inside_may_not_get_worse():
    counts = {"a.md": 3, "b.md": 2, "c.md": 1}
    assert prose.worse(counts, {"a.md": 3, "b.md": 1}) == ["b.md", "c.md"]


def test_the_list_takes_lower_numbers_only():
    assert prose.lowered({"a.md": 3, "b.md": 2, "c.md": 1}, {"a.md": 1, "b.md": 5, "new.md": 7}) == {
        "a.md": 1,
        "b.md": 2,
    }


def test_the_list_never_grew():
    """What is to be edited is less in each commit than in the one before."""
    root = prose.CHECKOUT

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout

    if not (root / ".git").exists():
        pytest.skip("not a checkout of git")
    name = "tests/harness/prose.yml"
    totals = [
        sum(yaml.safe_load(git("show", f"{commit}:{name}"))["to_edit"].values())
        for commit in git("log", "--format=%H", "--", name).split()
    ]
    assert totals == sorted(totals)
    assert not totals or sum(prose.to_edit().values()) <= totals[0]
