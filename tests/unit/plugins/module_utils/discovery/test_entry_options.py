# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of the devices settings on a host: its words, and that jsonschema, which the controller has, agrees."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import validate
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec

RULE = {"profile": "rule", "match": {"subsystem": "ve"}}
REFUSED = [
    ([], "devices: found [] (a list); expected a mapping"),
    ({"gpus": None}, "devices entry 'gpus': found nothing; expected a mapping"),
    ({"gpus": {}}, "devices entry 'gpus': profile: is missing"),
    ({"gpus": {"profile": ["drm"]}}, "profile: found ['drm'] (a list); expected a text"),
    ({"gpus": {"profile": "dmr"}}, "unknown profile 'dmr'; expected one of "),
    ({"gpus": {"profile": "dmr"}}, "; did you mean 'drm'?"),
    ({"gpus": {"profile": "drm", "nmae_by": []}}, "unknown option 'nmae_by'; expected one of additional_gids, all"),
    ({"gpus": {"profile": "drm", "nmae_by": []}}, "did you mean 'name_by'?"),
    (
        {"gpus": {"profile": "drm", "kind": "gpu"}},
        "kind: found 'gpu' (a text); expected vendor/class, each of two characters or more, as in fleet.cdi/gpu",
    ),
    (
        {"gpus": {"profile": "drm", "kind": "fleet.cdi/a"}},
        "kind: found 'fleet.cdi/a' (a text); expected vendor/class, each of two",
    ),
    ({"gpus": {"profile": "drm", "kind": "a.b/cc\n"}}, "kind: found 'a.b/cc\\n'"),
    (
        {"gpus": {"profile": "drm", "name_by": ["id"]}},
        "name_by[0]: found 'id' (a text); expected one of index, pci",
    ),
    (
        {"gpus": {"profile": "drm", "name_by": []}},
        "found [] (a list); expected a list with 1 or more items",
    ),
    (
        {"gpus": {"profile": "drm", "name_by": ["pci", "pci"]}},
        "name_by[1]: found 'pci' (a text) again; expected each item once",
    ),
    ({"gpus": {"profile": "drm", "want_device_nodes": ["card"]}}, "expected one of primary, render, control"),
    (
        {"gpus": {"profile": "drm", "vendorid_whitelist": [0x10DE]}},
        "found 4318 (a whole number); expected a PCI id",
    ),
    ({"gpus": {"profile": "drm", "vendorid_whitelist": 4318}}, 'expected a PCI id in quotes, as in "0x10de"'),
    (
        {"gpus": {"profile": "drm", "required": "yes"}},
        "found 'yes' (a text); expected true or false",
    ),
    ({"gpus": {"profile": "drm", "container_path": "dev/gpu"}}, "expected an absolute path"),
    (
        {"gpus": {"profile": "drm", "container_path": "/dev/{nod}"}},
        "container_path: found the unknown field 'nod'",
    ),
    ({"gpus": {"profile": "drm", "container_path": "/dev/{name.__class__}"}}, "unknown field 'name.__class__'"),
    ({"gpus": {"profile": "drm", "env": {"A": "{path!r}"}}}, "env.A: found the unknown field 'path!r'"),
    ({"gpus": {"profile": "drm", "env": {"A": "{"}}}, "env.A: found '{' (a text); expected text with no fields but"),
    ({"gpus": {"profile": "drm", "env": {"A": "{}"}}}, "env.A: found '{}' (a text); expected text with no fields but"),
    (
        {"gpus": {"profile": "drm", "env": {"A=": ""}}},
        "env.\"A=\": found the name 'A='; expected letters, digits and _",
    ),
    ({"gpus": {"profile": "drm", "env": {"A": "a\nB=b"}}}, "env.A: found 'a\\nB=b'"),
    (
        {"t": {"profile": "tty", "num_system_reserved": -1}},
        "num_system_reserved: found -1 (a whole number); expected a whole number from 0",
    ),
    (
        {"t": {"profile": "tty", "num_system_reserved": 63}},
        "found 63 (a whole number); expected a whole number from 0 to 62",
    ),
    (
        {"t": {"profile": "tty", "num_system_reserved": True}},
        "found True (a boolean); expected a whole number",
    ),
    ({"t": {"profile": "tty", "match": {}}}, "unknown option 'match'"),
    (
        {"m": {"profile": "misc", "nodes": ["/dev/fuse"]}},
        "found '/dev/fuse' (a text); expected a name below /dev, as in net/tun",
    ),
    ({"m": {"profile": "misc", "nodes": ["../fuse"]}}, "expected a name below /dev"),
    ({"rr": {"profile": "rule"}}, "devices entry 'rr': match: is missing"),
    (
        {"rr": {"profile": "rule", "match": {}}},
        "match: found {} (a mapping); expected a mapping with 1 or more entries",
    ),
    ({"rr": {"profile": "rule", "match": {"drivers": "x"}}}, "did you mean 'driver'?"),
    (
        {"rr": {"profile": "rule", "match": {"pci_class": "3"}}},
        "match.pci_class: found '3' (a text); expected the start of",
    ),
    (
        {"rr": {"profile": "rule", "match": {"attributes": {"../x": "*"}}}},
        "expected a path below the device's directory",
    ),
    ({"rr": {"profile": "rule", "match": {"attributes": {"x": 1}}}}, "match.attributes.x: found 1 (a whole number)"),
    ({"rr": {**RULE, "group_by": "pci"}}, "group_by: found 'pci' (a text); expected one of parent, none"),
]
ACCEPTED = [
    {"profile": "drm", "kind": "amd.com/gpu", "name_by": ["pci", "index"], "vendorid_whitelist": ["1002", "0x10DE"]},
    {"profile": "drm", "container_path": "/dev/{sysname}", "env": {"_A1": "{{{index}}} {path}"}, "required": True},
    {"profile": "tty", "num_system_reserved": 0},
    {"profile": "misc", "nodes": ["net/tun", "vhost-net", "cpu.x"]},
    {**RULE, "group_by": "none"},
    {"profile": "rule", "match": {"pci_class": ["0x03", "1200"], "attributes": {"device/model": ["a*", "b"]}}},
]


def agrees(entry):
    """Whether jsonschema accepts the entry; the schema must be one of draft 2020-12."""
    schema = entry_options.entry_schema(entry["profile"])
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).is_valid(entry)


@pytest.mark.parametrize(("entries", "words"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_refused(entries, words):
    with pytest.raises(CdiError) as error:
        entry_options.check(entries)
    assert words in str(error.value)
    for entry in entries.values() if isinstance(entries, dict) else ():
        if entry and entry.get("profile") in list(entry_options.PROFILES):
            assert not agrees(entry)


@pytest.mark.parametrize("entry", ACCEPTED)
def test_accepted(entry):
    entry_options.check({"it": entry})
    assert agrees(entry)


def test_the_name_of_a_rule_becomes_a_kind():
    entry_options.check({"two words": {**RULE, "kind": "a.b/cc"}})
    with pytest.raises(CdiError, match=r"'two words' gives the kind of its devices unless option 'kind' does"):
        entry_options.check({"two words": RULE})
    assert entry_options.kind_of("ve", RULE) == "fleet.cdi/ve"
    assert entry_options.kind_of("ve", {**RULE, "kind": "nec.com/ve"}) == "nec.com/ve"
    assert entry_options.kind_of("x", {"profile": "drm"}) == "fleet.cdi/gpu"


PARTS = st.one_of(
    st.text(alphabet="aZ09_.-/ \n", max_size=12),
    st.lists(st.text(alphabet="aZ9-", min_size=62, max_size=64), max_size=5).map(".".join),
)


@given(st.one_of(PARTS, st.builds("{}/{}".format, PARTS, PARTS)))
@example(f"{'a' * 63}.com/{'c' * 63}")
@example(f"{'a' * 64}.com/cc")
@example(f"aa/{'c' * 64}")
@example(f"{'a' * 61}.{'.'.join(['a' * 63] * 3)}/cc")
@example(f"{'a' * 62}.{'.'.join(['a' * 63] * 3)}/cc")
def test_a_kind_is_one_of_which_nobody_complains_in_a_spec(kind):
    """The pattern here and the rules of spec/validate.py say the same: neither room may import the other."""
    valid = not validate(spec({"a": nodes("/dev/a")}, kind))
    entry = {"profile": "drm", "kind": kind}
    assert agrees(entry) is valid
    try:
        entry_options.check({"gpus": entry})
    except CdiError:
        assert not valid
    else:
        assert valid


SMALL = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-1, 70),
        st.sampled_from(["index", "render", "0x10de", "/dev/{path}", "{"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["A", "driver", "1"]), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = sorted(
    {key for name in entry_options.PROFILES for key in entry_options.entry_schema(name)["properties"]} - {"profile"}
)


@given(
    st.sampled_from(sorted(entry_options.PROFILES)),
    st.dictionaries(st.sampled_from([*KEYS, "other"]), SMALL, max_size=3),
)
def test_the_host_and_jsonschema_agree(profile, entry):
    entry = {**entry, "profile": profile}
    try:
        entry_options.check({"name": entry})
    except CdiError:
        assert not agrees(entry)
    else:
        assert agrees(entry)


@given(st.text(alphabet="{}ab", max_size=10), st.sampled_from(entry_options.FIELDS))
def test_expand_is_format(text, field):
    template = text.replace("a", f"{{{field}}}")
    try:
        entry_options.check({"t": {"profile": "tty", "env": {"A": template}}})
    except CdiError:
        return
    values = {name: f"<{name}>" for name in entry_options.FIELDS}
    assert entry_options.expand(template, values) == template.format(**values)


def test_kinds_collect_their_entries() -> None:
    entries = {
        "ve": {"profile": "rule", "match": {"driver": "ve_drv"}},
        "low": {"profile": "tty", "num_system_reserved": 20},
        "gpus": {"profile": "drm", "kind": "example.com/gpu"},
        "high": {"profile": "tty"},
    }
    assert {kind: list(group) for kind, group in entry_options.by_kind(entries).items()} == {
        "example.com/gpu": ["gpus"],
        "fleet.cdi/tty": ["low", "high"],
        "fleet.cdi/ve": ["ve"],
    }


def test_kinds_refuse_what_a_host_would() -> None:
    with pytest.raises(CdiError, match="did you mean 'drm'"):
        entry_options.by_kind({"gpus": {"profile": "drn"}})
