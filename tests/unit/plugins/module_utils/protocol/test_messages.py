# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations and replies as texts, and the pools that follow from configurations."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils import documents
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors, messages, pools
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError

CHECKOUT = Path(__file__).resolve().parents[5]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def config(plugin="drm", **args):
    return messages.config({"cdiVersion": "0.0.1", "name": "n", "type": "gpu", "plugin": plugin, "args": args})


# --- messages


@given(st.dictionaries(st.sampled_from(["cdiVersion", "name", "type", "plugin", "args", "x"]), JSON))
def test_any_struct_is_a_configuration_or_refused(document):
    try:
        found = messages.config(messages.load(json.dumps(document).encode()))
    except ProtocolError as error:
        assert error.code in (errors.CONFIG_VERSION, errors.CONTENT)
        assert str(error).isascii()
    else:
        assert (found.version, found.type, found.plugin) == tuple(document[n] for n in ("cdiVersion", "type", "plugin"))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_struct_or_refused(content):
    try:
        assert isinstance(messages.load(content), dict)
    except ProtocolError as error:
        assert error.code == errors.CONTENT
        assert str(error).isascii()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"error": 1, "message": "m"}, (1, "m", "")),
        ({"code": 1, "msg": "m", "details": "d"}, (1, "m", "d")),
        ({"error": 1, "message": "m", "code": 2, "msg": "n"}, (1, "m", "")),  # the text before the examples
        ({"error": "e", "code": 2, "msg": "n"}, (2, "n", "")),
        ({"code": 0}, (0, "Unknown error", "")),
        ({"code": 777, "details": 5}, (777, "Unknown error", "5")),
        ({"devices": []}, None),
        ({"error": None}, None),
    ],
)
def test_errors_of_others_are_read_in_both_spellings(document, expected):
    found = messages.error_in(document)
    assert (found and (found.code, found.message, found.details)) == expected


@pytest.mark.parametrize("code", errors.MESSAGES)
def test_our_errors_have_both_spellings(code):
    document = json.loads(messages.error_reply("0.0.2", ProtocolError(code, "d")))
    text = errors.MESSAGES[code]
    assert document == {
        "cdiVersion": "0.0.2",
        "error": code,
        "message": text,
        "code": code,
        "msg": text,
        "details": "d",
    }
    assert "details" not in json.loads(messages.error_reply("0.0.2", ProtocolError(code)))


def test_the_table_of_errors_is_documented():
    text = (CHECKOUT / "docs/executables.md").read_text()
    rows = re.findall(r"^\| ([0-9]+) \| ([^|]+) \|", text, re.MULTILINE)
    assert {int(code): message for code, message in rows} == errors.MESSAGES


# --- pools


@pytest.mark.parametrize(
    ("plugin", "args", "entry"),
    [
        ("drm", {"vendorid_whitelist": ["0x1234"]}, {"profile": "drm", "vendorid_whitelist": ["0x1234"]}),
        ("drm", {"profile": "tty"}, {"profile": "drm"}),
        ("drm", {"want_device_types": ["render"]}, {"profile": "drm", "want_device_nodes": ["render"]}),
        ("rule", {"want_device_types": ["render"]}, {"profile": "rule", "want_device_types": ["render"]}),
        ("generic-tty", {"num_system_reserved": 12}, {"profile": "tty", "num_system_reserved": 12}),
        ("sriov", {"delegate": {"plugin": "drm"}}, {"profile": "sriov"}),
        ("rule", {"match": {"driver": "x"}}, {"profile": "rule", "match": {"driver": "x"}}),
        ("rule", {"profile": "misc", "nodes": ["kvm"]}, {"profile": "misc", "nodes": ["kvm"]}),
        ("rule", dict.fromkeys(pools.OWN, 1), {"profile": "rule"}),
        ("drm", {"required": True}, {"profile": "drm", "required": True}),
        ("of-others", {}, None),
    ],
)
def test_entries(plugin, args, entry):
    args = {**args, "delegate": {"plugin": "a"}} if "delegate" in args else args
    assert pools.entry_of(config(plugin, **args)) == (entry and {"required": False, **entry})


def test_an_option_under_both_of_its_names_is_refused():
    with pytest.raises(ProtocolError) as caught:
        pools.entry_of(config("drm", want_device_types=["render"], want_device_nodes=["primary"]))
    assert caught.value.code == 107
    assert "want_device_types and want_device_nodes, which mean the same" in str(caught.value.details)


def test_a_pool_is_named_by_what_it_holds():
    def path(args, type_="gpu", plugin="drm", inventory="/run/cdi-inventory.json"):
        return pools.pool_path(inventory, type_, plugin, args)

    one = path({"a": 1, "b": [1, 2]})
    assert one == path({"b": [1, 2], "a": 1, "setup": ["/bin/true"], "shared": True})
    others = [path({"a": 1, "b": [2, 1]}), path({"a": 2}), path({"a": 1, "b": [1, 2]}, "x"), path({}), path({"a": "1"})]
    assert len({one, *others}) == 6
    assert re.fullmatch(r"/run/cdi-inventory\.d/gpu\.drm\.[0-9a-f]{8}\.json", one)
    assert path({}, inventory="/x/list").startswith("/x/list.d/gpu.drm.")


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5), st.randoms())
def test_the_order_of_options_names_no_other_pool(args, shuffler: random.Random):
    items = list(args.items())
    shuffler.shuffle(items)
    assert pools.pool_path("/i.json", "gpu", "drm", dict(items)) == pools.pool_path("/i.json", "gpu", "drm", args)


def test_chains():
    inner = {"plugin": "drm", "args": {"x": 1}, "name": "inner"}
    outer = config("sriov", delegate=inner, y=2)
    first, second = pools.chain(outer)
    assert first == outer
    assert second == messages.Config("0.0.1", "inner", "gpu", "drm", {"x": 1})
    assert pools.chain(config()) == (config(),)


class Counted(str):
    """Text that counts how often it is compared with other text."""

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_name_that_stands_twice_is_found_in_one_pass():
    """A request of 16,000 names took seconds while each was counted among all."""
    count = 2000
    pairs = [(Counted(f"name{number}"), 1) for number in (*range(count), count - 1)]
    assert documents.twice(pairs) == f"name{count - 1}"
    assert Counted.compared < 10 * count
