# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of a spec, its versions and its bytes. The cases are in cases.yml."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from unittest import mock

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, model, names
from ansible_collections.fleet.cdi.plugins.module_utils.spec.text import json_subset, yaml_subset
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import Finding, validate
from ansible_collections.fleet.cdi.plugins.module_utils.spec.versions import minimum_version

with open(os.path.join(os.path.dirname(__file__), "cases.yml"), encoding="utf-8") as file:
    TABLE = yaml.safe_load(file)


def whole(case):
    return case["document"] if "document" in case else {**TABLE["defaults"], **case["spec"]}


def by_severity(findings):
    """What a case says: pointer -> rule, of errors and of warnings."""
    return tuple(
        {finding.pointer: finding.rule for finding in findings if finding.severity == severity}
        for severity in ("error", "warning")
    )


def by_rule(table):
    return [(rule, kind) for rule, kinds in table.items() for kind in kinds]


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_findings(case):
    expected = case.get("findings", {}), case.get("warnings", {})
    assert by_severity(validate(whole(case))) == expected
    reading = codec.read(json.dumps(whole(case)).encode(), "a.json")
    assert by_severity(reading.findings) == expected
    assert (reading.spec is None) == bool(expected[0]), "only errors cost a spec"


@pytest.mark.parametrize(("longest", "more"), [(900, {}), (150, {"\u00e9": 1})])
def test_a_key_is_as_long_as_yaml_parsers_look_for_its_colon(longest, more):
    """They count bytes of the text, of which one escape takes six."""
    assert json_subset.load_json(json.dumps({"k" * longest: 1, **more}))
    with pytest.raises(json_subset.Malformed) as caught:
        json_subset.load_json(json.dumps({"k" * (longest + 1): 1, **more}))
    assert caught.value.args[:2] == ("json-for-yaml", f"a key of {longest + 1} characters")


def test_annotations_have_256_kib_in_all():
    most = {"a": "x" * ((256 << 10) - 3), "b": "y"}
    assert not validate({**TABLE["defaults"], "annotations": most})
    for more in ({**most, "b": "ä"}, {**most, "c": ""}):
        found = by_severity(validate({**TABLE["defaults"], "annotations": more}))
        assert found == ({}, {"/annotations": "annotation-size"})


def test_the_key_of_an_annotation_is_text():
    found = by_severity(validate({**TABLE["defaults"], "annotations": {1: "x"}}))
    assert found == ({"/annotations": "type"}, {})


@pytest.mark.parametrize("case", TABLE["versions"], ids=lambda case: f"{case['needs']} {case['spec']}")
def test_minimum_version(case):
    spec = whole(case)
    assert minimum_version(spec) == case["needs"]
    below = model.VERSIONS[: model.VERSIONS.index(case["needs"])]
    for version in below:
        errors = by_severity(validate({**spec, "cdiVersion": version}))[0]
        assert set(errors.values()) & {"minimum-version", "field-since"}, version


def test_a_field_of_a_newer_library_costs_even_when_it_is_empty():
    for empty in ({"netDevices": []}, {"intelRdt": {"enableMonitoring": False}}, {"intelRdt": {"schemata": None}}):
        spec = {**TABLE["defaults"], "cdiVersion": "0.8.0", "containerEdits": empty}
        assert "field-since" in by_severity(validate(spec))[0].values()


@pytest.mark.parametrize("kind", TABLE["kinds"]["valid"])
def test_a_kind_in_two(kind):
    assert "/".join(names.split_kind(kind)) == kind
    assert not validate({**TABLE["defaults"], "kind": kind})


@pytest.mark.parametrize(
    "rule, kind", [(rule, kind) for rule, kinds in TABLE["kinds"]["tolerated"].items() for kind in kinds]
)
def test_a_kind_that_only_runtimes_take(rule, kind):
    assert "/".join(names.split_kind(kind)) == kind
    assert by_severity(validate({**TABLE["defaults"], "kind": kind})) == ({}, {"/kind": rule})


@pytest.mark.parametrize(
    "rule, kind", [(rule, kind) for rule, kinds in TABLE["kinds"]["invalid"].items() for kind in kinds]
)
def test_no_kind(rule, kind):
    with pytest.raises(CdiError, match="kind .*: found .*; expected"):
        names.split_kind(kind)
    assert by_severity(validate({**TABLE["defaults"], "kind": kind})) == ({"/kind": rule}, {})


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


BAD_JSON = {
    "nothing": (b"", r"no JSON \(Expecting value"),
    "not UTF-8": (b"\xff\xfe", "the byte 0xff at 0, expected UTF-8"),
    "deep": (b"[" * 100_000, "no JSON .*(recursion|Stack overflow)"),
    "deep objects": (b'{"a":' * 100_000, "no JSON .*(recursion|Stack overflow)"),  # Python 3.14 says it so
    "a key twice": (b'{"kind": 1, "kind": 2}', "the key 'kind' twice"),
    "cut off": (b'{"cdiVersion": "0.3.0"', "no JSON .*delimiter"),
    "no spec": (b"{}", "/cdiVersion: found nothing, expected the field, which is required"),
    "null": (b"null", r"/: found null, expected an object \(spec\)"),
    "no number": (b'{"kind": NaN}', "NaN is not a number"),
    "a long number": (b"1" * 5000, "an integer of 5000 digits, expected integers of at most 100 digits"),
    "an escape of JSON only": (b'{"kind": "a\\/b"}', "YAML parsers, which runtimes use"),
    "a surrogate pair": (b'{"kind": "\\ud83d\\ude00"}', "YAML parsers, which runtimes use"),
    "a control character": (b'{"kind": "\x7f"}', "YAML parsers, which runtimes use"),
    "one that is not of ASCII": (b'{"kind": "\xc2\x80"}', "YAML parsers, which runtimes use"),
    "a colon in the next line": (b'{"kind"\n: 1}', "YAML parsers, which runtimes use"),
    "a long key": (b'{"' + b"k" * 1100 + b'": 1}', "YAML parsers, which runtimes use"),
    "a tab in front": (b"\t{}", "YAML parsers, which runtimes use"),
    "more errors than anybody reads": (b'{"devices": [' + b"0," * 100_000 + b"0]}", "and 95 more$"),
}
BAD_YAML = {
    "nothing": (b"", "found null, expected an object"),
    "cut off": (b"a: [", "no YAML .*expected (the )?node content"),
    "an escape of no character": (b'a: "\\UFFFFFFFF"', "no YAML"),
    "an escape behind the last character": (b'a: "\\U00110000"', "no YAML"),
    "an escape of half a character": (b'a: "\\ud800"', "no YAML"),
    "deep": (b"[" * 100_000, "more than 32 levels"),
    "an alias bomb": (
        b"a0: &a0 [x, x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 30)),
        "values from aliases",
    ),
    "a short list with too many aliases": (
        b"a: &a [" + b"x, " * 24 + b"x]\nb: [" + b"*a, " * 99 + b"*a]",
        "values from aliases",
    ),
    "an alias of itself": (b"a: &a [*a]", "the alias [*]a with nothing before"),
    "too long": (b"#" * ((16 << 20) + 1), "found 16777217 characters, expected at most"),
    "a tag": (b"kind: !!python/object:os.system {}", "the tag .*, expected YAML without tags"),
    "a directive": (b"%YAML 1.1\n---\n{}", "YAML without directives"),
    "a key twice": (b"kind: a\nkind: b", "the key 'kind' twice"),
    "a key that is a list": (b"[a]: b", "a key that is not text"),
    "a key that is a boolean": (b"yes: b", "the key yes, expected keys in quotes"),
    "a question in a list": (b"[what? that]", "found (no YAML|'what that' within braces|'what[?])"),
    "a merge of text": (b"<<: b", "a << that is followed by no object"),
    "a control character": (b'kind: "\x01"', "no YAML"),
}


@pytest.mark.parametrize(("count", "more"), [(1, ""), (5, ""), (6, "; and 1 more"), (7, "; and 2 more")])
def test_five_errors_are_told(count, more):
    said = codec.errors_in([Finding("type", f"/{number}", "a", "b") for number in range(count)])
    assert said.count("found a, expected b") == min(count, 5)
    assert said.partition("/4: found a, expected b [type]")[2] == more


@pytest.mark.parametrize(("length", "shown"), [(58, "'" + "x" * 58 + "'"), (59, "'" + "x" * 56 + "...")])
def test_a_long_value_is_told_in_60_characters(length, shown):
    found = {one.pointer: one.found for one in validate({"cdiVersion": "x" * length})}
    assert found["/cdiVersion"] == shown


@pytest.mark.parametrize("content, complaint", BAD_JSON.values(), ids=BAD_JSON)
def test_a_bad_json_file_gets_one_error_that_names_it(content, complaint):
    with pytest.raises(CdiError, match=f"^a.json: .*{complaint}"):
        codec.decode(content, "a.json")


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def parser(request, monkeypatch):
    """PyYAML with the parser in C, and as it is where libyaml is not."""
    if request.param == "SafeLoader":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("content, complaint", BAD_YAML.values(), ids=BAD_YAML)
def test_a_bad_yaml_file_gets_one_error_that_names_it(content, complaint):
    with pytest.raises(CdiError, match=f"^a.yaml: .*{complaint}"):
        codec.decode(content, "a.yaml")


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("lists", "is_refused"), [(32, False), (33, True)])
def test_as_many_levels_as_are_allowed(lists, is_refused):
    with pytest.raises(CdiError) as error:
        codec.decode(b"a: " + b"[" * lists + b"]" * lists, "a.yaml")
    assert ("more than 32 levels" in str(error.value)) == is_refused


@pytest.mark.usefixtures("parser")
def test_values_are_counted_with_what_aliases_repeat(monkeypatch):
    """1,500,000 at most; less here, as PyYAML without libyaml takes half a minute for that many."""
    monkeypatch.setattr(yaml_subset, "NODES", 1000)
    for content in (b"a: [" + b"0," * 1000 + b"]", b"a: &a [" + b"0," * 300 + b"]\nb: [*a, *a, *a]"):
        with pytest.raises(CdiError, match="^a.yaml: .*found more than 1000 values, expected at most 1000, or JSON"):
            codec.decode(content, "a.yaml")


@pytest.mark.usefixtures("parser")
def test_as_many_values_as_are_allowed(monkeypatch):
    """Three lists of 330, and nine others: an alias counts beside what it stands for."""
    monkeypatch.setattr(yaml_subset, "NODES", 3 * 330 + 9)
    found = yaml_subset.load_yaml("a: &a [" + "0," * 330 + "]\nb: [*a, *a]", "a.yaml")
    assert found == {"a": [0] * 330, "b": [[0] * 330] * 2}


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("case", TABLE["scalars"], ids=lambda case: case["yaml"])
def test_unquoted_yaml(case):
    """What the reference library's parsers make of a scalar. A list stands for a number that has two readings."""
    (found,) = yaml_subset.load_yaml(f"[{case['yaml']}]", "a.yaml")
    if isinstance(case["is"], list):
        assert isinstance(found, (yaml_subset.Number, yaml_subset.Octal)) and repr(found) == case["is"][0]
    else:
        assert (found, type(found)) == (case["is"], type(case["is"]))


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 5000, "0" + "7" * 5000, "0o" + "7" * 5000, "0x" + "f" * 5000])
def test_thousands_of_digits_in_yaml_are_a_finding(text):
    """Python neither reads nor writes an integer of more than 4300 digits."""
    reading = codec.read(f"cdiVersion: 0.3.0\nkind: {text}\ndevices: []\n".encode(), "a.yaml")
    assert ("/kind", "type") in [(one.pointer, one.rule) for one in reading.findings]


@pytest.mark.usefixtures("parser")
def test_yaml_is_read_as_the_reference_reads_it():
    spec = {**TABLE["defaults"], "devices": [{"name": "0:1", "containerEdits": {"env": ["A=1"]}}]}
    text = "\ufeff# by hand\ncdiVersion: 1.1.0\nkind: vendor.com/device\ncontainerEdits:\ndevices:\n"
    text += (
        "- &d\n  name: 0:1\n  containerEdits: {env: [A=1]}\n- {name: 7, containerEdits: {<<: {env: [B=2]}}}\n--- {\n"
    )
    spec["devices"].append({"name": "7", "containerEdits": {"env": ["B=2"]}})
    reading = codec.read(text.encode(), "a.yaml")
    assert reading.spec == spec
    assert by_severity(reading.findings) == ({}, {"/containerEdits": "null", "/devices/1/name": "unquoted"})


def test_what_we_write_is_what_yaml_parsers_read():
    odd = "".join(map(chr, range(1, 0x100))) + "\u2028\u2029\ufeff\ufffe\uffff\U0001f600/\\"
    spec = {**TABLE["defaults"], "containerEdits": {"env": [f"A={odd}"]}}
    assert codec.decode(codec.encode(spec), "a.json") == spec
    assert yaml.safe_load(codec.encode(spec)) == spec


PARTS = st.sampled_from(
    [
        *'":x\t\n\x85\u2028/\\',
        '"a":1',
        '"b" :',
        '"\n:',
        '"\t\r \n',
        " " * 99,
        "\\/",
        r"\\/",
        r"\ud83d",
        r"\u00e9",
        r"\"",
    ]
)


@pytest.mark.parametrize("rule", [json_subset.FAR_COLON, json_subset.ESCAPE], ids=["colon", "escape"])
@given(text=st.lists(PARTS).map("".join), piece=st.integers(1, 300))
def test_a_search_in_pieces_finds_what_one_search_finds(rule, text, piece):
    pattern = re.compile(rule)
    once = pattern.search(text)
    said = json_subset.not_for_yaml(text)
    with mock.patch.object(json_subset, "PIECE", piece):
        found = json_subset._first(pattern, text)
        assert json_subset.not_for_yaml(text) == said
    assert (found and found.span()) == (once and once.span())


@pytest.mark.parametrize(
    ("text", "said"),
    [("{}", ""), (" \r\n{} \r\n", ""), ("\t{}", "tabs around the object"), ("{}\t", "tabs around the object")],
)
def test_blanks_around_the_object(text, said):
    assert json_subset.not_for_yaml(text) == said


def test_no_search_goes_over_many_megabytes():
    """Python's lock is kept for as long as a search goes on."""
    searched = []

    class Pattern:
        def search(self, _text, start, end):
            searched.append((start, end))

    text = '"key": "value", ' * 100_000
    assert json_subset._first(Pattern(), text) is None
    assert [start for start, _end in searched] == [0, *(end for _start, end in searched[:-1])]
    assert searched[-1][1] == len(text) > 2 * json_subset.PIECE
    assert all(end - start < json_subset.PIECE + 16 for start, end in searched)


class Counted(str):
    """Text that counts how often it is compared with other text."""

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_key_that_comes_twice_is_found_in_one_pass():
    """A file of 16,000 keys took a second while each key was compared with all before it."""
    count = 2000
    pairs = [(Counted(f"key{number}"), 1) for number in (*range(count), count - 1)]
    with pytest.raises(json_subset.Malformed) as caught:
        json_subset.unique(pairs)
    assert caught.value.args == ("duplicate-key", f"the key 'key{count - 1}' twice in one object", "each key once")
    assert Counted.compared < 10 * count


def test_reading_json_imports_neither_yaml_nor_jsonschema():
    program = (
        "import sys; from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, registry\n"
        "assert codec.decode(sys.stdin.buffer.read(), 'a.json')\n"
        "print(sorted({'yaml', 'jsonschema', 'dataclasses', 'pathlib'} & set(sys.modules)))"
    )
    path = next(entry for entry in sys.path if os.path.isdir(os.path.join(entry, "ansible_collections/fleet/cdi")))
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        input=codec.encode(TABLE["defaults"]),
        env={"PYTHONPATH": path},
        check=True,
        capture_output=True,
    )
    assert done.stdout == b"[]\n"


def test_yaml_without_pyyaml_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(CdiError, match=r"a.yaml: .*python3-yaml"):
        codec.decode(b"{}", "a.yaml")
