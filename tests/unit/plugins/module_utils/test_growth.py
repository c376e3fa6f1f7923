# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a parser does for a text that is four times as long: calls are counted, as time can't be tested.

tests/bench/parsers.py shows the processor's time.
"""

from __future__ import annotations

import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.protocol import messages
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import edits, json_text, toml_text
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec

KEY = ("plugins", "io.containerd.grpc.v1.cri", "enable_cdi")


def edited(content: bytes) -> None:
    """Set a key in a TOML file and take it back."""
    done = edits.set_keys(content, [(KEY, True)], "toml", "x")
    assert edits.take_back(done.content or b"", done.keys, "toml", "x").content == content


def read(path: str):
    """Read a spec."""
    return lambda content: codec.read(content, path)


def many(part: bytes, between: bytes = b""):
    """A function that makes n parts, in which %d is a number."""
    return lambda count: between.join(part % number if b"%" in part else part for number in range(count))


def around(before: bytes, inside, after: bytes):
    """A function that makes n parts, with this around them."""
    return lambda count: before + inside(count) + after


HEAD = b"cdiVersion: 0.6.0\nkind: a.b/cc\ndevices:\n"
# What is done, and what makes a text of n parts for it.
CASES = {
    "comments": (edited, many(b"# x\n")),
    "comments in an array": (edited, around(b"a = [\n", many(b"# x\n"), b"]\n")),
    "tables": (edited, many(b"[plugins.t%d]\nx = 1\n")),
    "arrays of tables": (edited, many(b"[[a]]\n")),
    "members of an inline table": (edited, around(b"a = {", many(b"k%d.b = 1", b", "), b"}\n")),
    "inline tables in each other": (
        lambda content: toml_text.parse(content, "x"),
        around(b"a = " + b"{a = " * 90 + b"{", many(b"k%d = 1", b", "), b"}" + b"}" * 90 + b"\n"),
    ),
    "members of JSON": (lambda content: json_text.parse(content, "x"), around(b"{", many(b'"k%d": 1', b", "), b"}")),
    "a key of JSON twice": (read("x.json"), around(b"{", many(b'"k%d": 1, '), b'"l": 1, "l": 2}')),
    "devices in YAML": (read("x.yaml"), around(HEAD, many(b"- name: d%d\n  containerEdits: {env: [A=1]}\n"), b"")),
}


def calls(work, content: bytes) -> int:
    """How many functions, ours or built in, one run calls."""
    toml_text.parse.cache_clear()
    counted = 0

    def count(_frame, event, _argument):
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work(content)
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_work_grows_with_the_text(case):
    work, text = case
    assert calls(work, text(2000)) < 4.5 * calls(work, text(500))


@pytest.mark.parametrize(
    "text",
    ['{"a":' * 100000, "[" * 100000, '{"a": ' + "9" * 5000 + "}", '{"a": 1e999999999999}', '{"a": "\\ud800"}'],
    ids=["objects", "arrays", "digits", "exponent", "surrogate"],
)
def test_no_text_of_json_ends_in_a_traceback(text):
    for work in (
        lambda: json_text.parse(text.encode(), "x"),
        lambda: codec.decode(text.encode(), "x.json"),
        lambda: messages.load(text.encode()),
    ):
        try:
            work()
        except CdiError:
            continue
