# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of newcomers (tests/tasks.yml): links lead from README to the end of each, and a test types its commands."""

from __future__ import annotations

import os
import re

import pytest
import typed  # tests/harness
import yaml

TASKS = yaml.safe_load((typed.CHECKOUT / "tests/tasks.yml").read_text(encoding="utf-8"))


def section(name, anchor):
    """First and last line of the section of a page, counted from 1."""
    lines = (typed.CHECKOUT / name).read_text(encoding="utf-8").splitlines()
    blocks = typed.blocks_of(name)
    heads = [
        (number, len(line.split()[0]), re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-"))
        for number, line in enumerate(lines, 1)
        if re.match(r"#+ ", line)
        and not any(block.line <= number <= block.line + block.text.count("\n") for block in blocks)
    ]
    if not anchor:
        return 1, len(lines)
    ((first, level),) = [(number, deep) for number, deep, text in heads if text == anchor]
    return first, min((number for number, deep, _text in heads if number > first and deep <= level), default=len(lines))


def test_there_are_twelve():
    assert len({one["task"] for one in TASKS}) == 12


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["task"])
def test_links_lead_to_its_end(task):
    assert task["pages"][0] == "README.md"
    for one, other in zip(task["pages"], task["pages"][1:]):
        here, there = one.partition("#")[0], other.partition("#")[0]
        link = os.path.relpath(there, os.path.dirname(here) or ".")
        assert f"]({link}" in (typed.CHECKOUT / here).read_text(encoding="utf-8"), f"{here} has no link to {there}"


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["task"])
def test_its_commands_are_typed(task):
    name, _hash, anchor = task["pages"][-1].partition("#")
    first, last = section(name, anchor)
    blocks = typed.blocks_of(name)
    found = [(block, row) for block, row in zip(blocks, typed.table()[name]) if first <= block.line <= last]
    proofs = {
        proof for block, row in found if block.language == "console" for proof in ("typed", "here") if proof in row
    }
    elsewhere = [row for block, row in found if block.language == "console" and "elsewhere" in row]
    assert proofs or "by" in task
    assert not elsewhere or "by" in task
    text = "".join(block.text for block, _row in found)
    for word in task.get("same", ()):
        assert word in text and word in (typed.CHECKOUT / task["by"]).read_text(encoding="utf-8"), word
