# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests by the proposal's grammar, and what lies beside it (cdi_plugin/commands.yml has the errors)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.request import (
    DeviceRequest,
    check,
    numa_nodes,
    parse,
)
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import grammar
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError

AMOUNTS = st.integers(1, grammar.LARGEST)
OFFERED = ("memory", "cores", "bandwidth")


def amounts(text):
    return dict(parse(text, "gpu").amounts)


@given(st.dictionaries(st.sampled_from(["gpu", *(f"gpu-{name}" for name in OFFERED)]), AMOUNTS, min_size=1))
def test_what_is_asked_for_is_what_is_read(asked):
    text = ",".join(f"{spec}:{amount}" for spec, amount in asked.items())
    found = parse(text, "gpu")
    assert dict(found.amounts) == asked
    assert found.devices == asked.get("gpu", 0)
    assert dict(found.needs) == {spec[4:]: amount for spec, amount in asked.items() if spec != "gpu"}


@given(st.permutations(["gpu:2", "gpu-memory:4Gi", "gpu-cores:7"]))
def test_order_does_not_matter(items):
    expected = DeviceRequest(2, (("cores", 7), ("memory", 4096)), (("gpu", 2), ("gpu-cores", 7), ("gpu-memory", 4096)))
    assert parse(",".join(items), "gpu") == expected


@given(st.text() | st.text(alphabet="gpu-memory:,0123456789KMGik.+- \n٣²", max_size=40))
@example("gpu:1,gpu:2")
@example("gpu:٣")
@example("gpu:1\n")
def test_any_text_is_a_request_or_refused(text):
    try:
        found = parse(text, "gpu")
    except ProtocolError as error:
        assert error.code == 4
        assert str(error).isascii()
        assert len(str(error)) < 300
    else:
        assert all(1 <= amount <= grammar.LARGEST for _spec, amount in found.amounts)
        assert len(found.amounts) == text.count(":") == text.count(",") + 1


# Suffix -> bytes (Kubernetes' quantities, https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/)
BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
BYTES.update({"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18})


@given(st.integers(1, 10**6), st.sampled_from(sorted(BYTES)))
def test_memory_is_never_less_than_asked_for(number, suffix):
    found = amounts(f"gpu-memory:{number}{suffix}")["gpu-memory"]
    assert (found - 1) * 2**20 < number * BYTES[suffix] <= found * 2**20


@pytest.mark.parametrize("suffix", ["ki", "K", "m", "mi", "gi", "g", "Zi", "Y", "i", "MiB", "Mi ", "MM", "e3"])
def test_no_other_suffix(suffix):
    with pytest.raises(ProtocolError, match="an integer of MiB, or one with a suffix"):
        amounts(f"gpu-memory:1{suffix}")


@pytest.mark.parametrize("spec", ["gpu", "gpu-cores", "gpu-bandwidth"])
def test_suffixes_are_for_memory_only(spec):
    with pytest.raises(ProtocolError, match=f'the amount of {spec} is "1Mi"; expected an integer$'):
        amounts(f"{spec}:1Mi")


@pytest.mark.parametrize("text", [str(grammar.LARGEST), "0" * 500 + "7"])
def test_the_largest_and_the_longest(text):
    assert amounts(f"gpu:{text}") == {"gpu": int(text)}


def test_what_suffixes_make_too_large_is_refused():
    assert amounts("gpu-memory:8388607Ei")["gpu-memory"] <= grammar.LARGEST
    with pytest.raises(ProtocolError, match="expected 1 to"):
        amounts("gpu-memory:8388608Ei")


def test_shares_are_for_configurations_that_give_them():
    share = parse("gpu-memory:1,gpu-cores:2", "gpu")
    check(share, "gpu", OFFERED, shared=True)
    with pytest.raises(ProtocolError, match="gpu-cores without gpu is a share .* configuration gives whole devices"):
        check(share, "gpu", OFFERED, shared=False)
    check(parse("gpu:1,gpu-cores:2", "gpu"), "gpu", OFFERED, shared=False)


def test_what_is_not_offered():
    with pytest.raises(ProtocolError, match=r"\(error 4\): Unsupported resource-spec: gpu-memory$"):
        check(parse("gpu:1,gpu-cores:2,gpu-memory:1", "gpu"), "gpu", ("cores",), shared=True)


@pytest.mark.parametrize(("text", "nodes"), [("", ()), ("0", (0,)), ("3,1,3", (1, 3)), ("00,7", (0, 7)), ("35", (35,))])
def test_numa_nodes(text, nodes):
    assert numa_nodes(text) == nodes


@pytest.mark.parametrize("text", [",", "1,", "a", "-1", "1 ", "1.0", "٣", "1;2", "9" * 30])
def test_what_is_no_list_of_numa_nodes(text):
    with pytest.raises(ProtocolError, match="expected a comma separated list of integers") as caught:
        numa_nodes(text)
    assert caught.value.code == 107


def test_which_sub_resources_are_memory():
    assert [name for name in ("memory", "visiblememory", "cores", "memoryx") if grammar.is_memory(f"gpu-{name}")] == [
        "memory",
        "visiblememory",
    ]
