# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GetPreferredAllocation: the best set by exhaustive search, replicas fairly spread or packed, and never an error."""

from __future__ import annotations

import itertools
from collections import Counter

import machines
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import ChoiceRequest
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import fold
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import prefer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.prefer import preferred
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.unit_ids import unit_id
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.plugins.module_utils.records import Link


def resource(devices, links=(), replicas=1, sharing="spread"):
    """Units named GPU-<number>; `replicas` one number for all, or one for each."""
    each = [replicas] * len(devices) if isinstance(replicas, int) else replicas
    units = [
        OfferedUnit(f"GPU-{number}", (f"vendor.com/test=GPU-{number}",), device, replicas=count)
        for number, (device, count) in enumerate(zip(devices, each))
    ]
    return Resource("vendor.com/test", tuple(units), tuple(links), ResourceSettings("vendor.com/test", sharing=sharing))


def gpus(number, nodes=2):
    """GPUs on so many NUMA nodes, every two of them behind one switch."""
    return [
        machines.plain(
            f"pci:0000:{index:02x}:00.0",
            index * nodes // number,
            (f"pci0000:{index * nodes // number}0", f"port{index // 2}"),
        )
        for index in range(number)
    ]


def ids(offered):
    return [one for unit in offered.units for one in unit.device_ids]


def on_units(answer):
    """Unit -> how many of its replicas are in the answer."""
    return Counter(map(unit_id, answer))


@st.composite
def requests(draw):
    """Up to 7 devices of any links and nodes, and a request that a kubelet could make."""
    count = draw(st.integers(1, 7))
    devices = [
        machines.plain(f"pci:0000:{index:02x}:00.0", draw(st.sampled_from([None, 0, 1]))) for index in range(count)
    ]
    pairs = list(itertools.combinations([device.id for device in devices], 2))
    links = [Link(*pair, "NVL", 1, 25.0 * draw(st.integers(1, 4))) for pair in pairs if draw(st.booleans())]
    offered = resource(devices, links)
    available = draw(st.permutations(ids(offered)))[: draw(st.integers(1, count))]
    must = available[: draw(st.integers(0, len(available)))]
    return offered, available, must, draw(st.integers(max(1, len(must)), len(available)))


@settings(max_examples=300, deadline=None)
@given(requests())
def test_it_is_the_best_set_of_all(request_):
    offered, available, must, size = request_
    units = {unit.id: unit for unit in offered.units}
    devices = [units[one].device for one in available]
    inside = tuple(units[one].device.id for one in must)
    best = machines.best(fold(devices, offered.links), ChoiceRequest(size, (), inside))
    answer = preferred(offered, available, must, size)
    assert sorted(units[one].device.id for one in answer) == sorted(best)
    assert sorted(answer[: len(must)]) == sorted(must)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.sampled_from(["spread", "pack"]),
    st.randoms(use_true_random=False),
)
def test_any_request_is_answered_in_size_whatever_its_order(replicas, sharing, chance):
    offered = resource(gpus(len(replicas)), (), replicas, sharing)
    everything = ids(offered)
    available = chance.sample(everything, chance.randint(1, len(everything)))
    must = chance.sample(available, chance.randint(0, min(3, len(available))))
    size = chance.randint(0, len(everything) + 1)
    answer = preferred(offered, available, must, size)
    assert len(answer) == len(set(answer)) == min(size, len(available))
    assert set(answer) <= set(available)
    assert set(answer[: len(must)]) <= set(must)
    again = [chance.sample(some, len(some)) for some in (available, must)]
    assert preferred(offered, ["foreign", *again[0], *again[0], "GPU-0::99"], ["unknown", *again[1]], size) == answer


class TestSpread:
    """Replicas lie on as many devices as there are, the least used first."""

    def test_as_many_devices_as_replicas(self):
        offered = resource(gpus(4), (), 4)
        for size in range(1, 17):
            assert sorted(on_units(preferred(offered, ids(offered), [], size)).values(), reverse=True) == [
                size // 4 + (index < size % 4) for index in range(4) if size // 4 + (index < size % 4)
            ]

    def test_the_least_used_first(self):
        offered = resource(gpus(4), (), 4)
        in_use = {"GPU-0::0", "GPU-1::0", "GPU-1::1", "GPU-3::2"}
        available = [one for one in ids(offered) if one not in in_use]
        assert on_units(preferred(offered, available, [], 1)) == {"GPU-2": 1}
        assert on_units(preferred(offered, available, [], 3)) == {"GPU-2": 1, "GPU-0": 1, "GPU-3": 1}
        assert on_units(preferred(offered, available, [], 5)) == {"GPU-2": 2, "GPU-0": 1, "GPU-3": 1, "GPU-1": 1}

    def test_what_counts_is_the_part_that_is_used(self):
        offered = resource(gpus(2), (), [2, 10])
        available = [one for one in ids(offered) if one not in {"GPU-0::0", *(f"GPU-1::{n}" for n in range(4))}]
        assert on_units(preferred(offered, available, [], 1)) == {"GPU-1": 1}
        available = [one for one in ids(offered) if one not in {f"GPU-1::{n}" for n in range(4)}]
        assert on_units(preferred(offered, available, [], 1)) == {"GPU-0": 1}  # of which fewer are left

    def test_near_ones_of_those_that_are_used_alike(self):
        offered = resource(gpus(8), (), 3)
        answer = preferred(offered, [one for one in ids(offered) if unit_id(one) not in ("GPU-1", "GPU-2")], [], 2)
        assert on_units(answer) == {"GPU-4": 1, "GPU-5": 1}  # behind one switch; of 0 and 3 the neighbours are in use
        assert on_units(preferred(offered, ids(offered), ["GPU-7::1"], 2)) == {"GPU-7": 1, "GPU-6": 1}

    def test_what_must_be_included_counts(self):
        offered = resource(gpus(2), (), 4)
        assert on_units(preferred(offered, ids(offered), ["GPU-0::0", "GPU-0::1"], 4)) == {"GPU-0": 2, "GPU-1": 2}

    def test_a_unit_with_one_replica_beside_others(self):
        offered = resource(gpus(3), (), [1, 2, 3])
        assert on_units(preferred(offered, ids(offered), [], 5)) == {"GPU-0": 1, "GPU-1": 2, "GPU-2": 2}

    def test_over_many_requests_no_device_is_ahead(self):
        offered = resource(gpus(4), (), 16)
        left = ids(offered)
        while left:
            for one in preferred(offered, left, [], 3):
                left.remove(one)
            counts = [Counter(map(unit_id, left))[unit.id] for unit in offered.units]
            assert max(counts) - min(counts) <= 1


class TestPack:
    """Replicas lie on as few devices as they can, so that the others stay whole."""

    def test_one_device_after_the_other(self):
        offered = resource(gpus(4), (), 4, "pack")
        for size in range(1, 17):
            counts = on_units(preferred(offered, ids(offered), [], size))
            assert sorted(counts.values(), reverse=True) == [4] * (size // 4) + [size % 4] * (size % 4 > 0)

    def test_the_most_used_first(self):
        offered = resource(gpus(4), (), 4, "pack")
        available = [one for one in ids(offered) if one not in {"GPU-1::0", "GPU-2::0", "GPU-2::3"}]
        assert on_units(preferred(offered, available, [], 1)) == {"GPU-2": 1}
        assert on_units(preferred(offered, available, [], 4)) == {"GPU-2": 2, "GPU-1": 2}

    def test_where_the_container_is_already(self):
        offered = resource(gpus(4), (), 4, "pack")
        available = [one for one in ids(offered) if one not in {"GPU-2::0", "GPU-2::3"}]
        assert on_units(preferred(offered, available, ["GPU-3::1"], 5)) == {"GPU-3": 4, "GPU-2": 1}

    def test_the_next_device_is_a_near_one(self):
        offered = resource(gpus(8), (), 2, "pack")
        available = [one for one in ids(offered) if unit_id(one) != "GPU-0"]
        assert on_units(preferred(offered, available, [], 4)) == {"GPU-2": 2, "GPU-3": 2}


class TestWhole:
    """Units that are not shared."""

    def test_the_odd_one_out_for_a_job_of_one(self):
        """NVIDIA/k8s-device-plugin#1193: linked pairs survive."""
        devices = gpus(4)
        links = [Link(devices[one].id, devices[two].id, "NVL", 4, 100.0) for one, two in ((0, 1), (2, 3))]
        offered = resource(devices, links)
        assert preferred(offered, ["GPU-0", "GPU-2", "GPU-3"], [], 1) == ["GPU-0"]
        assert preferred(offered, ["GPU-1", "GPU-2", "GPU-3"], [], 2) == ["GPU-2", "GPU-3"]

    def test_partitions_of_one_device(self):
        parts = machines.partitions(gpus(2), 4)
        answer = preferred(resource(parts), [f"GPU-{number}" for number in (0, 3, 4, 5, 6)], [], 3)
        assert answer == ["GPU-4", "GPU-5", "GPU-6"]


class TestOddRequests:
    """What no kubelet should send."""

    @pytest.mark.parametrize("size", [0, -1, -(2**31)])
    def test_nothing(self, size):
        assert preferred(resource(gpus(4)), ["GPU-0"], ["GPU-1"], size) == []

    @pytest.mark.parametrize("size", [3, 2**31 - 1])
    def test_more_than_there_are(self, size):
        assert preferred(resource(gpus(4)), ["GPU-3", "GPU-0"], [], size) == ["GPU-0", "GPU-3"]

    def test_more_that_must_be_included_than_are_asked_for(self):
        assert preferred(resource(gpus(4)), [], ["GPU-3", "GPU-1", "GPU-2"], 2) == ["GPU-1", "GPU-2"]

    def test_what_must_be_included_is_not_available(self):
        assert preferred(resource(gpus(4)), ["GPU-0", "GPU-2"], ["GPU-3"], 2) == ["GPU-3", "GPU-2"]

    def test_only_foreign_ones(self):
        assert preferred(resource(gpus(4)), ["a", "GPU-0::1"], ["b"], 2) == []

    def test_a_resource_without_units(self):
        assert preferred(resource([]), ["GPU-0"], [], 1) == []

    @pytest.mark.parametrize("replicas", [1, 3])
    def test_whatever_goes_wrong_the_first_that_fit(self, monkeypatch, replicas):
        """An error would cost the pod."""
        offered = resource(gpus(4), (), replicas)
        everything = ids(offered)

        def broken(*_arguments):
            raise RuntimeError("a mistake of ours")

        monkeypatch.setattr(prefer, "choose", broken)
        assert preferred(offered, reversed(everything), [everything[3]], 2) == [everything[3], everything[0]]

    def test_two_units_of_one_device(self):
        """The rules for units never make them; the answer still has its size."""
        offered = resource([*gpus(2), *gpus(2)])
        assert preferred(offered, ids(offered), [], 3) == ["GPU-0", "GPU-1", "GPU-2"]
