# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spec files by the ten thousand: from a grammar of good ones, with changes to the document, its text and its bytes.

The same seed yields the same files. A change is a function in one of three tables, most of them named for the rule
that they aim at; what the file then really is, the judge says.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from spec_documents import ANYWHERE, DOCUMENT
from spec_grammar import good_spec
from spec_texts import BYTES, JSON_TEXT, YAML_TEXT, to_json, to_yaml


class Case(NamedTuple):
    """One file, and what was done to it, for people."""

    made: str
    name: str
    content: bytes


def generate(count: int, seed: int = 1) -> Iterator[Case]:
    """`count` cases."""
    rng = Random(seed)
    for number in range(count):
        yield one(rng, number)


def one(rng: Random, number: int) -> Case:
    """A good spec, in half of the cases changed once or more."""
    return changed(rng, good_spec(rng), number)


def changed(rng: Random, spec: Any, number: int) -> Case:
    """The file of `spec`, which is changed too; in half of the cases once or more."""
    made = []
    as_yaml = rng.random() < 0.35
    dice = rng.random()
    while dice > 0.5:
        table = rng.choice((DOCUMENT, DOCUMENT, DOCUMENT, ANYWHERE))
        label = rng.choice(list(table))
        spec = table[label](rng, spec) or spec
        made.append(label)
        dice = rng.random()
    text = to_yaml(rng, spec) if as_yaml else to_json(rng, spec)
    if rng.random() < 0.25:
        texts = YAML_TEXT if as_yaml else JSON_TEXT
        label = rng.choice(list(texts))
        text = texts[label](rng, text)
        made.append(label)
    content = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.06:
        label = rng.choice(list(BYTES))
        content = BYTES[label](rng, content)
        made.append(label)
    return Case(f"{number}: {' + '.join(made) or 'good'}", "case.yaml" if as_yaml else "case.json", content)
