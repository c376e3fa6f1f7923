# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our readers of JSON and TOML against those of Python: they take the same texts to say the same."""

from __future__ import annotations

import json
import random

import configurations
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit import json_text, toml_text
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit.key_edits import same

tomllib = pytest.importorskip("tomllib")  # new in Python 3.11

# Pieces that TOML is made of, right and wrong, to be put together at random.
PIECES = [
    *[
        "a",
        "b.c",
        '"q"',
        "'l'",
        "1",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        ",",
        "=",
        ".",
        " ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "#",
        "# c\n",
    ],
    *[
        "a = 1\n",
        "[a]\n",
        "[a.b]\n",
        "[[a]]\n",
        "a.b = 2\n",
        "x = {a = 1, b.c = 2}\n",
        "y = [1, 2,]\n",
        "z = [ # c\n 1 ]\n",
    ],
    *[
        '"\\u00e9"',
        '"\\x"',
        '"""',
        "'''",
        "\\",
        '"a\\\n  b"',
        "''''",
        '""',
        "é",
        "\x00",
        "\x7f",
        "\ufeff",
        "true",
        "false",
    ],
    *["0", "-0", "+1", "01", "1_000", "1__0", "0x1F", "0o7", "0b1", "1.5", "1e3", "1.", ".5", "inf", "-nan", "1e_1"],
    *[
        "1979-05-27",
        "1979-05-27T07:32:00Z",
        "1979-05-27 07:32:00.123456789+01:00",
        "07:32:00",
        "1979-13-01",
        "24:00:00",
    ],
]


def ours(text):
    try:
        return toml_text.parse(text.encode(), "file").value
    except CdiError:
        return None


def theirs(text):
    try:
        return tomllib.loads(text)
    except ValueError:
        return None
    except RecursionError:  # not for ours to repeat
        return None


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("[a.b]\n[a]\nb.c = 1\n")
@example("a = '''''two quotes'''''\n")
def test_toml_is_what_tomllib_takes_it_for(text):
    assert repr(ours(text)) == repr(theirs(text))


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**40), st.integers(0, 400), st.sampled_from(PIECES))
def test_a_configuration_with_something_wrong_in_it(seed, place, piece):
    text = configurations.toml(random.Random(seed), 2, ("plugins", "x.y"), {"enable_cdi": "true"}, []).text
    broken = text[:place] + piece + text[place:]
    assert repr(ours(text)) == repr(theirs(text)) != "None"
    assert repr(ours(broken)) == repr(theirs(broken))


JSON_PIECES = [
    '"a"',
    '"b"',
    ":",
    ",",
    "{",
    "}",
    "[",
    "]",
    "1",
    "-1.5e3",
    "01",
    "true",
    "null",
    " ",
    "\n",
    '"\\u00e9"',
    '"\\x"',
]


def pairs_once(pairs):
    """What json makes of an object; refuses a key that is there twice, which json lets pass."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("twice")
    return found


def refuse_constant(name):
    raise ValueError(name)  # NaN and Infinity are no JSON


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(JSON_PIECES), max_size=12).map("".join).map(lambda text: '{"k":' + text + "}"))
def test_json_is_what_json_takes_it_for(text):
    try:
        found = json_text.parse(text.encode(), "file").value
    except CdiError:
        found = None
    try:
        expected = json.loads(text, object_pairs_hook=pairs_once, parse_constant=refuse_constant)
    except ValueError:
        expected = None
    assert same(found, expected)


def test_nesting_is_limited_not_fatal():
    for content, parse in ((b'{"a":' + b"[" * 5000, json_text.parse), (b"a = " + b"[" * 5000, toml_text.parse)):
        with pytest.raises(CdiError, match="deep"):
            parse(content, "file")
