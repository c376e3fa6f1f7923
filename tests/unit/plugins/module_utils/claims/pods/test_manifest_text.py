# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a pod manifest: what its values are, and what is refused. Its author may be an outsider."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_devices
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.manifest_text import parse_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

PLAIN = "expected text, a finite number, true, false, null, a list or a mapping"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),  # a date and a time are text, as for kubectl
        ("2024-01-01T12:30:00Z", "2024-01-01T12:30:00Z"),
        ("12:30", "12:30"),
        ("-1:30:00.5", "-1:30:00.5"),
        ("=", "="),
        ("0x10", 16),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("yes", True),
        ("~", None),
        ("!!str 1", "1"),
        ("!!int '1'", 1),
        ("9" * 100, int("9" * 100)),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
    ],
)
def test_values_of_yaml(text, value):
    assert parse_manifest(f"a: {text}".encode(), "pod.yaml") == [{"a": value}]


def test_a_date_as_a_key_is_text():
    assert parse_manifest(b"2024-01-01: a", "pod.yaml") == [{"2024-01-01": "a"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!timestamp foo", "line 1, column 4: found the tag '!!timestamp'; expected the value without it"),
        ("a: !!timestamp 2024-01-01", "found the tag '!!timestamp'"),
        ('a: !!int ""', "found the tag '!!int'"),
        ('a: !!int "-"', "found the tag '!!int'"),
        ('a: !!float ""', "found the tag '!!float'"),
        ("a: !!bool foo", "found the tag '!!bool'"),
        ("a: !!null foo", "found the tag '!!null'"),
        ("a: !!binary aGk=", "found the tag '!!binary'"),
        ("a: !!set {b}", "found the tag '!!set'"),
        ("a: !!omap [b: c]", "found the tag '!!omap'"),
        ("a: !x {b: c}", "found the tag '!x'"),
        ("a: !<\x85> b", "pod.yaml: "),
        ("a: !!map [x]", "is not YAML: expected a mapping node, but found sequence"),
        ("a: !!map x", "is not YAML: expected a mapping node, but found scalar"),
        ("a: !!seq {x: y}", "is not YAML: expected a sequence node, but found mapping"),
        ("? [a]\n: b", "is not YAML: while constructing a mapping"),
        ('a: "\\UFFFFFFFF"', "is not a manifest: "),
        ("a: " + "9" * 5000, "line 1, column 4: found a number of 5000 characters; expected 100 at most"),
        ("a: 0x" + "f" * 5000, "found a number of 5002 characters; expected 100 at most"),
        ("a: .nan", f"pod.yaml: document 1: a: found nan; {PLAIN}"),
        ("b: 1\n---\na: [1, {c: -.inf}]", f"document 2: a[1].c: found -inf; {PLAIN}"),
        ("a: 1.0e+400", "document 1: a: found inf"),
        ("a: {1: 2, b: 3}", "document 1: a: found 1; expected text as each key"),
        ("a: {null: 2}", "document 1: a: found nothing; expected text as each key"),
        ("a: " + "[" * 65 + "]" * 65, "a" + "[0]" * 64 + ": found 65; expected at most 64 values in each other"),
        ('{"a": 1e400}', f"document 1: a: found inf; {PLAIN}"),
        ('{"a": [%s]}' % ("9" * 101), "a number has 101 characters; expected 100 at most"),
        ('{"a": ' * 800 + "1" + "}" * 800, "expected at most 64 values in each other"),
    ],
)
def test_refusal(text, said):
    with pytest.raises(CdiError) as error:
        parse_manifest(text.encode(), "pod.yaml")
    assert str(error.value).startswith("pod.yaml: ") and said in str(error.value)
    assert len(str(error.value)) < 700


def test_64_values_in_each_other_are_read():
    text = "[" * 64 + "]" * 64
    assert parse_manifest(text.encode(), "pod.json") == json.loads(text)
    assert parse_manifest(f"a: {text[1:-1]}".encode(), "pod.yaml") == [{"a": json.loads(text[1:-1])}]


def test_a_long_key_is_not_repeated_for_each_value_in_it():
    text = json.dumps({"k" * 100_000: [0] * 10_000 + [float("inf")]}).replace("Infinity", "1e400")
    with pytest.raises(CdiError) as error:
        parse_manifest(text.encode(), "pod.json")
    assert "[10000]: found inf" in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("value", [float("nan"), {1: "a"}, json.loads("[" * 800 + "]" * 800)])
def test_the_module_refuses_them_before_it_looks_at_the_host(value, tmp_path):
    annotated = {"kind": "Pod", "metadata": {"name": "p", "annotations": {"d": value}}, "spec": {"containers": []}}
    options = {"manifest": annotated, "state": "present", "target": "podman", "prefix": str(tmp_path)}
    with pytest.raises(CdiError, match=r"^manifest: document 1: metadata\.annotations\.d.*: found "):
        pod_devices.answer(options, False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["a: {1: x}", "a: .nan", '{"a": 1e400}'])
def test_whoever_only_needs_the_names_of_pods_takes_such_values(text):
    """So that what was claimed for a pod can be given back, whatever its manifest became since."""
    (document,) = parse_manifest(text.encode(), "pod.yaml", checked=False)
    assert list(document) == ["a"]
