# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What parsers are tried with whose work has to grow with the text: for a test that counts calls, and for a bench."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit import json_text, key_edits, toml_text
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec

Work = Callable[[bytes], object]  # what is done with a text
Text = Callable[[int], bytes]  # makes a text of so many parts

KEY = ("plugins", "io.containerd.grpc.v1.cri", "enable_cdi")


def edited(content: bytes) -> None:
    """Set a key in a TOML file and take it back."""
    done = key_edits.set_keys(content, [(KEY, True)], "toml", "x")
    assert key_edits.take_back(done.content or b"", done.keys, "toml", "x").content == content


def read(path: str) -> Work:
    """Read a spec."""
    return lambda content: codec.read(content, path)


def many(part: bytes, between: bytes = b"") -> Text:
    """A function that makes n parts, in which %d is a number."""
    return lambda count: between.join(part % number if b"%" in part else part for number in range(count))


def around(before: bytes, inside: Text, after: bytes) -> Text:
    """A function that makes n parts, with this around them."""
    return lambda count: before + inside(count) + after


HEAD = b"cdiVersion: 0.6.0\nkind: a.b/cc\ndevices:\n"
# What is done, and what makes a text of n parts for it.
CASES: dict[str, tuple[Work, Text]] = {
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
