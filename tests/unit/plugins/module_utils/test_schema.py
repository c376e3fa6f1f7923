# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a value may be: the words of the errors, and that hosts and jsonschema agree on every table."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils import schema
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import container_runtime
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit, refresh_service
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import plugin_args
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils import findings

# Every table that a host applies.
TABLES: dict[str, Any] = {
    **{f"an entry of profile {name}": entry_options.entry_schema(name) for name in entry_options.PROFILES},
    "the device plugin": configuration.SCHEMA,
    "what args tell an executable": plugin_args.table(),
    "module refresh_service": refresh_service.OPTIONS,
    "spec_dirs of a runtime": container_runtime.SPEC_DIRS,
    "capabilities of the device plugin": device_plugin_unit.CAPABILITIES,
    "a path": schema.PATH,
}

NUMBERED = {"type": "integer", "minimum": 1, "maximum": 3}
SAID = [
    (5, {"type": "string"}, "found 5 (a whole number); expected a text"),
    ({"a": None}, {"properties": {"a": {"type": "boolean"}}}, "a: found nothing; expected true or false"),
    ([1, 9], {"items": NUMBERED}, "[1]: found 9 (a whole number); expected a whole number from 1 to 3"),
    ({"x/y": {"b": [0]}}, {"additionalProperties": {"properties": {"b": {"items": NUMBERED}}}}, '"x/y".b[0]: found 0 '),
    ({}, {"required": ["a"], "properties": {"a": {"type": "string"}}}, "a: is missing; expected a text"),
    ({"ab\n": 1}, {"additionalProperties": False}, "\"ab\\n\": found the unknown option 'ab\\n'; expected one of "),
    ({"delivry": 1}, {"properties": {"delivery": {}}, "additionalProperties": False}, "did you mean 'delivery'?"),
    ({"a b": 1}, {"propertyNames": {"pattern": "^[a-z]$", "description": "a letter"}}, "found the name 'a b'; exp"),
    ([1, 2, 1], {"uniqueItems": True}, "[2]: found 1 (a whole number) again; expected each item once"),
    ("", schema.TEXT, "expected a text of 1 or more characters that matches"),
    (0, {"type": "number", "exclusiveMinimum": 0}, "expected a number of more than 0"),
    (float("nan"), {"type": "number", "minimum": 0}, "found nan (a number); expected a number of 0 or more"),
    (True, {"const": 1}, "found True (a boolean); expected 1"),
    (["sh"], schema.COMMAND, "[0]: found 'sh' (a text); expected the absolute path of a program"),
    ("/a/../b", schema.PATH, "expected an absolute path without '..', double or trailing slashes"),
    (5, schema.one_or_several(schema.PCI_ID), 'expected a PCI id in quotes, as in "0x10de", or a list of them'),
]


@pytest.mark.parametrize("number", [1, 3])
def test_both_limits_are_allowed(number: int) -> None:
    schema.check(number, NUMBERED, "")


@pytest.mark.parametrize(("document", "table", "text"), SAID, ids=range(len(SAID)))
def test_what_is_said(document: Any, table: dict[str, Any], text: str) -> None:
    with pytest.raises(CdiError) as error:
        schema.check(document, table, "file")
    assert str(error.value).startswith("file: ")
    assert text in str(error.value)


def test_every_error_is_found() -> None:
    table = {"properties": {"a": NUMBERED, "b": NUMBERED}, "additionalProperties": False, "required": ["c"]}
    found = list(schema.errors({"a": 0, "b": [], "d": 1}, table))
    assert [wrong.path for wrong in found] == [("c",), ("a",), ("b",), ("d",)]


def test_what_is_large_or_deep_gives_a_short_line() -> None:
    deep: list[Any] = []
    for _level in range(5000):
        deep = [deep]
    for value in ("x" * 10**7, {"x" * 10**6: 1}, [list(range(10**5))], deep, 10**4000):
        (wrong,) = schema.errors(value, {"type": "null"})
        assert len(str(wrong)) < 150
        assert "\n" not in str(wrong)
    (wrong,) = schema.errors({"x" * 10**6: 1}, {"additionalProperties": False, "properties": {"y": {}}})
    assert len(str(wrong)) < 250


@given(st.text(alphabet="/.a\n\0", max_size=8).map("/".__add__))
def test_a_path_is_one_that_stays_the_same_when_normalised(text: str) -> None:
    good = not {"\0", "\n"} & set(text) and os.path.normpath(text) == text and not text.startswith("//")
    assert (not any(schema.errors(text, schema.PATH))) == good


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_json_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(TABLES[name])


@pytest.mark.parametrize("name", TABLES)
def test_a_table_uses_no_keyword_that_hosts_do_not_apply(name: str) -> None:
    """What a host passes over in silence the controller would refuse."""
    others = {"properties", "additionalProperties", "propertyNames", "required", "items", "prefixItems", "uniqueItems"}

    def keywords(table: dict[str, Any]) -> set[str]:
        inner = [*table.get("properties", {}).values(), *table.get("prefixItems", ())]
        inner += [table[key] for key in ("additionalProperties", "propertyNames", "items") if table.get(key)]
        return {*table, *(key for one in inner if isinstance(one, dict) for key in keywords(one))}

    assert keywords(TABLES[name]) <= {*schema.CHECKS, *others, "description"}


TEXTS = [
    "/a",
    "/a/",
    "//a",
    "/a/../b",
    "index",
    "render",
    "drm",
    "{name}",
    "{",
    "0x10de",
    "10DE",
    "aa/bb",
    "aa/bb=c",
    "a::1",
    "acme.com/gpu",
    "auto",
    "cdi",
    "warn",
    "uuid",
    "pci",
    "spread",
    "net/tun",
    "../x",
    "0403:6001",
    "127.0.0.1:9400",
    "a:0",
    "a:65536",
    "[::1]:1",
    ":00080",
    "GPU-*",
    "4.9",
    "-1",
    "é",
]
JUNK = st.sampled_from(
    [None, True, False, 0, 1, 2.0, 0.5, -1, 1e300, float("nan"), float("inf"), "", "a\n", "\0", [], {}]
)
WORDS = st.sampled_from([*TEXTS, *(text + "\n" for text in TEXTS[:6])])


def near(table: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Documents that a table may take, each part of which may also be something else."""
    found = [JUNK, WORDS]
    if "enum" in table or "const" in table:
        found.append(st.sampled_from([*table.get("enum", [table.get("const")])]))
    for key in ("minimum", "maximum", "exclusiveMinimum"):
        if key in table:
            found += [st.sampled_from([table[key] + step for step in (-1, 0, 0.0, 0.5, 1)])]
    if "items" in table:
        items = near(table["items"])
        first = [near(one) for one in table.get("prefixItems", ())]
        found += [st.lists(items, max_size=3), st.tuples(*first, items).map(list)] * 2
    fields = {name: near(one) for name, one in table.get("properties", {}).items()}
    rest = table.get("additionalProperties")
    if fields:
        some = st.dictionaries(st.sampled_from(sorted(fields)), st.none(), max_size=4)
        found += [
            some.flatmap(
                lambda names: st.fixed_dictionaries(
                    {
                        **dict.fromkeys(table.get("required", ()), JUNK),
                        **names,
                        **{name: fields[name] for name in names},
                    }
                    | {name: fields[name] for name in table.get("required", ()) if name in fields}
                )
            )
        ] * 6
        found.append(st.dictionaries(st.sampled_from([*fields, "other", "x y"]), JUNK, max_size=3))
    if isinstance(rest, dict):
        found += [st.dictionaries(WORDS | st.just(""), near(rest), max_size=2)] * 4
    return st.one_of(found)


@lru_cache
def prepared(name: str) -> tuple[st.SearchStrategy[Any], Any]:
    return near(TABLES[name]), findings.validator(TABLES[name])


@given(st.sampled_from(sorted(TABLES)), st.data())
def test_hosts_and_jsonschema_agree(name: str, data: st.DataObject) -> None:
    documents, validator = prepared(name)
    document = data.draw(documents)
    wrong = list(schema.errors(document, TABLES[name]))
    assert validator.is_valid(document) == (not wrong), wrong
