# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents: one reading within bounds, one way to say what is wrong with JSON. What is no file: test_odd_files.py."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils import documents, files
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

WRONG = {
    b"": "Expecting value: line 1 column 1 (char 0)",
    b'{"a": 1, "b": 2, "a": 3}': 'an object has the key "a" twice',
    b'[{"x": {"\\n": 1, "\\n": 2}}]': 'an object has the key "\\n" twice',
    b'{"a": "\xff"}': "the byte 0xff at 7 is not UTF-8",
    b"[NaN]": "NaN is not JSON",
    b"[" * 100_000: "it is nested too deeply",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: repr(text[:20]))
def test_what_is_not_a_document(text):
    with pytest.raises(CdiError) as error:
        documents.parse(text, "x.json")
    assert str(error.value) == f"x.json: is not a JSON document ({WRONG[text]}); correct it"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_a_document_is_read_as_it_was_written(value):
    assert documents.parse(json.dumps(value).encode(), "x") == value


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers())))
def test_a_key_that_comes_twice_is_named(pairs):
    keys = [key for key, _value in pairs]
    found = documents.twice(pairs)
    assert (found is None) == (len(set(keys)) == len(keys))
    assert found is None or keys.count(found) > 1


def test_content(tmp_path):
    path = tmp_path / "a.json"
    assert documents.content(str(path), 10) is None
    path.write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to(path)
    assert documents.content(str(tmp_path / "link"), 10) == b"0123456789"
    with pytest.raises(CdiError) as error:
        documents.content(str(path), 9)
    assert (
        str(error.value)
        == f"{path}: is larger than 9 bytes; expected a smaller file. Make it smaller, or move it away."
    )
    for name in ("a\0", "a\ud800"):
        with pytest.raises(CdiError, match="can't read it: Invalid argument"):
            documents.content(str(tmp_path / name), 10)
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(CdiError, match="a.json: is larger than 1 MiB; expected a smaller file"):
        documents.content(str(path), 1 << 20)


@pytest.mark.parametrize(
    ("found", "says"),
    {
        "link": "Too many levels of symbolic links. Remove the link that is in the way (`namei -l PATH` shows it)",
        "folder": "Is a directory. Move the directory away",
        "file/a": "Not a directory. Move the file away that is in the place of a directory (`namei -l PATH` shows it)",
    }.items(),
)
def test_what_is_in_the_way_of_a_lock_has_a_next_step(tmp_path, found, says):
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    path = str(tmp_path / found)
    with pytest.raises(CdiError) as error:
        files.lock(path)
    shown = os.path.dirname(path) if "/" in found else path
    assert f"it: {says.format(shown)}, or choose another place" in str(error.value)


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: {}["state"], "the field 'state' is missing"),
        (lambda: [].get("state"), "a field has another type, or is unknown"),
        (lambda: int("x"), "invalid literal for int() with base 10: 'x'"),
    ],
)
def test_why_a_document_is_no_record(build, why):
    with pytest.raises((AttributeError, KeyError, ValueError)) as caught:
        build()
    assert documents.misfit(caught.value) == why
