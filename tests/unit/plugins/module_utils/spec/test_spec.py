# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of a spec, its versions and its bytes. The cases are in cases.yml."""

from __future__ import annotations

import os

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, names
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import validate
from ansible_collections.fleet.cdi.plugins.module_utils.spec.versions import minimum_version

with open(os.path.join(os.path.dirname(__file__), "cases.yml"), encoding="utf-8") as file:
    TABLE = yaml.safe_load(file)


def whole(case):
    return case["document"] if "document" in case else {**TABLE["defaults"], **case["spec"]}


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_findings(case):
    assert {finding.pointer: finding.rule for finding in validate(whole(case))} == case.get("findings", {})


@pytest.mark.parametrize("case", TABLE["versions"], ids=lambda case: f"{case['needs']} {case['spec']}")
def test_minimum_version(case):
    spec = whole(case)
    assert minimum_version(spec) == case["needs"]
    assert not validate({**spec, "cdiVersion": case["needs"]})


@pytest.mark.parametrize("kind", TABLE["kinds"]["valid"])
def test_a_kind_in_two(kind):
    assert "/".join(names.split_kind(kind)) == kind
    assert not validate({**TABLE["defaults"], "kind": kind})


@pytest.mark.parametrize("kind", TABLE["kinds"]["invalid"])
def test_no_kind(kind):
    with pytest.raises(CdiError, match="kind .*: found .*; expected"):
        names.split_kind(kind)
    assert [finding.rule for finding in validate({**TABLE["defaults"], "kind": kind})] == ["kind"]


@pytest.mark.parametrize("device", TABLE["devices"]["valid"])
def test_a_qualified_name_in_three(device):
    assert names.split_qualified_name(f"vendor.com/class={device}") == ("vendor.com", "class", device)


@pytest.mark.parametrize("device", TABLE["devices"]["invalid"])
def test_no_qualified_name(device):
    with pytest.raises(CdiError, match="device .*: found .*; expected"):
        names.split_qualified_name(f"vendor.com/class={device}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "cdiVersion",
                    "kind",
                    "devices",
                    "name",
                    "containerEdits",
                    "env",
                    "deviceNodes",
                    "path",
                    "hooks",
                    "intelRdt",
                ]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_no_document_crashes_the_checks(document):
    for finding in validate(document):
        assert finding.expected and finding.found, str(finding)


def test_the_bytes_do_not_depend_on_the_order_of_keys():
    case = next(case for case in TABLE["cases"] if case["name"].startswith("every field"))
    spec = whole(case)
    assert codec.encode(reverse(spec)) == codec.encode(spec)
    assert codec.decode(codec.encode(spec), "a.json") == spec
    assert codec.encode(spec).endswith(b"}\n")


def reverse(value):
    """The same document with the keys of every object in reverse order."""
    if isinstance(value, dict):
        return {key: reverse(value[key]) for key in reversed(value)}
    return [reverse(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "content, complaint",
    [
        (b"", "a.json: is not well-formed: Expecting value"),
        (b"\xff\xfe", "a.json: is not well-formed: .*can't decode byte"),
        (b"[" * 100000, "a.json: is not well-formed: .*recursion"),
        (b'{"kind": 1, "kind": 2}', "a.json: is not well-formed: the key 'kind' stands twice"),
        (b'{"cdiVersion": "0.3.0"', "a.json: is not well-formed: .*delimiter"),
        (b"{}", "a.json: /cdiVersion: found nothing, expected the field, which is required"),
        (b"null", r"a.json: /: found None, expected an object \(spec\)"),
    ],
)
def test_a_bad_file_gets_one_error_that_names_it(content, complaint):
    with pytest.raises(CdiError, match=complaint):
        codec.decode(content, "a.json")


def test_yaml_is_read_too():
    text = yaml.safe_dump(TABLE["defaults"])
    assert codec.decode(text.encode(), "a.yaml") == TABLE["defaults"]
    with pytest.raises(CdiError, match="a.yaml: is not well-formed: .*found"):
        codec.decode(b"a: [", "a.yaml")
