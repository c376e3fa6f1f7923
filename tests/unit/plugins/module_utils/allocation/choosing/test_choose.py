# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is chosen is what an exhaustive search over all sets finds best, on the whole key, with and without links."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import machines
import pytest
import yaml
from hypothesis import given

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import (
    ChoiceRequest,
    Class,
    Infeasible,
    choose,
    stable,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import Machine, fold

CASES = yaml.safe_load(Path(__file__).with_name("choose.yml").read_text())
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
MASKS = 256 if NIGHTLY else 16  # free masks for each machine of up to 8 devices, of 255
SAMPLES = 10_000 if NIGHTLY else 1000  # requests on machines of 16 devices


def full(rows, size):
    """A symmetric matrix from its rows up to the diagonal."""
    return tuple(tuple(rows[max(a, b)][min(a, b)] if rows else 0 for b in range(size)) for a in range(size))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    classes = [Class(tuple(members), *rest) for members, *rest in case["classes"]]
    request = ChoiceRequest(
        **{name: tuple(given) if isinstance(given, list) else given for name, given in case["request"].items()}
    )
    pairs = full(case.get("pairs"), len(classes))
    if "refused" in case:
        with pytest.raises(Infeasible) as error:
            choose(classes, pairs, request)
        assert str(error.value) == case["refused"]
    else:
        choice = choose(classes, pairs, request)
        assert list(choice.ids) == case["ids"]
        assert choice.proved


def test_what_speaks_for_a_choice():
    machine = Machine(
        (Class(("a", "b"), 1), Class(("c",), 0), Class(("d",)), Class(("e",), -1)),
        full([[10], [3, 0], [2, 1, 0], [0, 0, 0, 0]], 4),
    )
    choice = choose(*machine, ChoiceRequest(4, (0, 5), ("d",)))
    assert choice == (("a", "b", "c", "d"), 1, 10 + 2 * 3 + 2 * 2 + 1, (0, 1), True)


def test_the_worth_of_many_devices_takes_more_bits_than_a_word_of_the_machine():
    """One bit for each device. The class without a whole device is chosen, also where all numbers are negative."""
    classes = [
        Class(tuple(f"{letter}{number}" for number in range(40)), 0, {"memory": 4}, whole)
        for letter, whole in (("a", False), ("b", True), ("c", True))
    ]
    choice = choose(classes, full([[0], [-5, 0], [-5, -5, 0]], 3), ChoiceRequest(40))
    assert (set(choice.ids), choice.proved) == (set(classes[0].members), True)


@st.composite
def requests(draw):
    """A machine of up to 9 devices in classes, some of them held in part, and something to ask of it."""
    sizes = draw(
        st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=1, max_size=7).filter(lambda sizes: sum(sizes) < 10)
    )
    names = draw(st.permutations([f"d{number}" for number in range(4, 4 + sum(sizes))]))
    values = draw(
        st.sampled_from([[0], [7], [0, 1], [1, 2], [-3, 5, 7], [500, 501, 503], [*range(100)], [10, 30, 50, 110, 210]])
    )
    nics = st.sampled_from(draw(st.sampled_from([[0], [60, 120], [60, 90, 110, 120]])))
    classes = []
    for index in range(len(sizes)):
        members = names[sum(sizes[:index]) : sum(sizes[: index + 1])]
        node = draw(st.sampled_from([None, -1, 0, 0, 1, 1, 2]))
        classes.append(
            Class(
                tuple(stable(members)), node, {"memory": draw(st.sampled_from([4, 8]))}, draw(st.booleans()), draw(nics)
            )
        )
    rows = [[draw(st.sampled_from(values)) for _other in range(index + 1)] for index in range(len(sizes))]
    number = draw(st.integers(1, sum(sizes)))
    must = draw(st.lists(st.sampled_from(names), unique=True, max_size=min(number, 2)))
    near = draw(st.sampled_from([(), (0,), (1, 2), (-1, 3)]))
    needs = draw(st.sampled_from([{}, {"memory": 4}, {"memory": 8}]))
    return Machine(tuple(classes), full(rows, len(sizes))), ChoiceRequest(number, near, tuple(must), needs)


@given(requests())
def test_best_of_all_sets(asked):
    machine, request = asked
    best = machines.best(machine, request)
    if best is None:
        with pytest.raises(Infeasible):
            choose(*machine, request)
    else:
        choice = choose(*machine, request)
        assert (choice.ids, choice.proved) == (best, True)


@given(st.data())
def test_fastest_ring_of_what_is_about_as_well_linked(data):
    """On few levels, so that many sets are alike; some devices are nearer to network cards, some must be there."""
    size = data.draw(st.integers(4, 8))
    values = data.draw(st.sampled_from([[60, 500], [60, 500, 501], [500, 501, 503], [0, 1], [90, 120, 500, 1000]]))
    scores = machines.scattered(size, values, data.draw(st.integers(0, 1 << 30)))
    machine = machines.separate(scores, [data.draw(st.sampled_from([0, 0, 0, 1])) for _device in range(size)])
    nics = data.draw(st.sampled_from([[60], [60, 120], [60, 90, 110]]))
    machine = machine._replace(
        classes=tuple(one._replace(nic=data.draw(st.sampled_from(nics))) for one in machine.classes)
    )
    number = data.draw(st.integers(3, size))
    must = tuple(f"gpu{one}" for one in data.draw(st.sets(st.integers(0, size - 1), max_size=2)))
    request = ChoiceRequest(number, data.draw(st.sampled_from([(), (), (0,)])), must)
    choice = choose(*machine, request)
    assert (choice.ids, choice.proved) == (machines.best(machine, request), True)


def on_all_masks(machine, source, nears):
    """Compare the choice with the best set for some or all masks of free devices and all numbers."""
    subsets = machines.Subsets(machine)
    masks = range(1, 1 << subsets.size)
    for mask in masks if len(masks) <= MASKS else source.sample(masks, MASKS):
        free = machines.masked(machine, mask)
        for number in range(1, bin(mask).count("1") + 1):
            near = source.choice(nears)
            choice = choose(*free, ChoiceRequest(number, near))
            assert (choice.ids, choice.proved) == (subsets.best(mask, number, near), True), (bin(mask), number, near)


def test_every_link_graph_of_up_to_eight(dumps):
    source = random.Random(8)
    graphs = [fold(*graph) for graph in machines.real_machines(dumps).values() if len(graph[0]) <= 8]
    assert len(graphs) == 16
    for machine in graphs:
        nodes = {one.numa_node for one in machine.classes} - {None}
        on_all_masks(machine, source, [(), *((node,) for node in nodes), (99,)])


@pytest.mark.parametrize("values", [[7], [0, 1], range(1, 101), [10, 30, 50, 110, 210]], ids=str)
def test_eight_with_other_scores(values):
    source = random.Random(9)
    for seed in range(4):
        nodes = [source.choice([0, 1, None]) for _device in range(8)]
        on_all_masks(machines.separate(machines.scattered(8, values, seed), nodes), source, [(), (0,)])


def on_sixteen(machine, source, samples):
    """The same for random masks and numbers."""
    subsets = machines.Subsets(machine)
    for _sample in range(samples):
        mask = source.getrandbits(16) | source.getrandbits(16) or 1
        number = source.randint(1, bin(mask).count("1"))
        near = source.choice([(), (), (0,), (1, 2)])
        choice = choose(*machines.masked(machine, mask), ChoiceRequest(number, near))
        assert (choice.ids, choice.proved) == (subsets.best(mask, number, near), True), (bin(mask), number, near)


def test_link_graphs_of_sixteen(dumps):
    source = random.Random(16)
    graphs = [fold(*graph) for graph in machines.real_machines(dumps).values() if len(graph[0]) == 16]
    assert len(graphs) == 2
    for machine in graphs:
        on_sixteen(machine, source, SAMPLES // 4)


@pytest.mark.parametrize("values", [[7], [0, 1], range(1, 101), [10, 30, 50, 110, 210]], ids=str)
def test_sixteen_with_other_scores(values):
    source = random.Random(17)
    for seed in range(5):
        nodes = [source.choice([0, 0, 1, 2, None]) for _device in range(16)]
        on_sixteen(machines.separate(machines.scattered(16, values, seed), nodes), source, SAMPLES // 40)


@pytest.mark.parametrize(("size", "number"), [(32, 2), (24, 3), (20, 4), (64, 2)])
@pytest.mark.parametrize("values", [[0, 1], range(1, 101), [60, 60, 60, 500, 501]], ids=str)
def test_a_few_of_many_are_exact(size, number, values):
    source = random.Random(size)
    nodes = [source.choice([0, 1, None]) for _device in range(size)]
    machine = machines.separate(machines.scattered(size, values, size), nodes)
    request = ChoiceRequest(number, source.choice([(), (0,)]))
    choice = choose(*machine, request)
    assert (choice.ids, choice.proved) == (machines.best(machine, request), True)


@pytest.mark.parametrize("values", [[0, 1], range(1, 101), [60, 60, 60, 500, 501]], ids=str)
def test_four_of_sixty_four_are_proved(values):
    scores = machines.scattered(64, values, 4)
    choice = choose(*machines.separate(scores, [0] * 64), ChoiceRequest(4))
    pairs = [[scores[a][b] for b in range(64)] for a in range(64)]
    sums = {
        (a, b, c, d): pairs[a][b] + pairs[a][c] + pairs[b][c] + pairs[a][d] + pairs[b][d] + pairs[c][d]
        for a, b, c, d in itertools.combinations(range(64), 4)
    }
    least = max(sums.values()) * 99 / 100
    best = max((machines.ring(scores, chosen), score) for chosen, score in sums.items() if score >= least)
    chosen = [int(ident[3:]) for ident in choice.ids]
    assert ((machines.ring(scores, chosen), choice.score), choice.proved) == (best, True)


@pytest.mark.parametrize("number", [1, 7, 8, 9, 20, 36, 63])
def test_partitions_are_exact_whatever_the_links(number):
    """64 partitions of 8 GPUs: all or nothing of a GPU but for one, so all such sets can be compared."""
    parents = [machines.plain(f"pci:0000:{bus:02x}:00.0", bus // 4) for bus in range(8)]
    machine = fold(machines.partitions(parents, 8))
    scores = machines.scattered(8, range(1, 101), number)
    pairs = tuple(tuple(500 if a == b else scores[a][b] for b in range(8)) for a in range(8))
    choice = choose(machine.classes, pairs, ChoiceRequest(number))
    assert choice.proved
    whole, part = divmod(number, 8)
    best = max(
        sum(pairs[a][b] * taken[a] * (taken[b] if a != b else taken[a] - 1) for a in range(8) for b in range(8)) // 2
        for mask in range(256)
        if bin(mask).count("1") == whole
        for partial in range(8)
        if not part or not mask >> partial & 1
        for taken in [[8 * (mask >> gpu & 1) + part * (gpu == partial) for gpu in range(8)]]
    )
    assert choice.score == best


@pytest.mark.parametrize("size", [24, 72, 256])
def test_a_hierarchy_is_exact_at_any_size(size):
    """Sockets of 8 devices on switches of 2: a whole number of sockets, a switch and a device is the best there is."""
    devices = [
        machines.plain(
            f"pci:{number:04x}:01:00.0", number // 8,
            (f"pci{number // 8:04x}:00", f"port{number // 4}", f"switch{number // 2}", f"down{number}"),
        )
        for number in range(size)
    ]  # fmt: skip
    machine = fold(devices)
    choice = choose(*machine, ChoiceRequest(11))
    assert choice.proved
    assert choice.ids == tuple(device.id for device in devices[:11])
    assert choice.numa_nodes == (0, 1)


def test_more_than_can_be_proved_is_still_good_and_says_so():
    scores = machines.scattered(40, range(1, 1000), 1)
    machine = machines.separate(scores, [0] * 40)
    choice = choose(*machine, ChoiceRequest(20))
    assert not choice.proved
    assert choice == choose(*machine, ChoiceRequest(20))
    source = random.Random(40)
    for _sample in range(500):
        other = source.sample(range(40), 20)
        assert sum(scores[a][b] for a in other for b in other) // 2 < choice.score
    members = {int(ident[3:]) for ident in choice.ids}
    for out in members:  # no exchange of one device makes it better
        for into in set(range(40)) - members:
            gain = sum(scores[into][one] - scores[out][one] for one in members if one != out)
            assert gain <= 0
    assert not choose(*machine, ChoiceRequest(20), work=0).proved


@given(requests(), st.randoms())
def test_as_near_as_can_be(asked, source):
    """Q3: a given locality is never left while a set inside it exists."""
    machine, _request = asked
    nodes = sorted({one.numa_node for one in machine.classes if one.numa_node is not None and one.numa_node >= 0})
    near = tuple(source.sample(nodes, source.randint(0, len(nodes))))
    inside = sum(len(one.members) for one in machine.classes if one.numa_node in near)
    total = sum(len(one.members) for one in machine.classes)
    number = source.randint(1, total)
    choice = choose(*machine, ChoiceRequest(number, near))
    assert choice.near == min(inside, number)
    if inside >= number:
        assert set(choice.numa_nodes) <= set(near)


SHUFFLED = """
import json, random, sys
sys.path[:0] = json.loads(sys.argv[1])
import machines
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import ChoiceRequest, choose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import fold
from ansible_collections.fleet.cdi.plugins.module_utils.records import Link
source = random.Random(int(sys.argv[2]))
gpus = [machines.plain(f"pci:0000:{bus:02x}:00.0", bus // 4, (f"pci{bus // 4}", f"port{bus // 2}")) for bus in range(8)]
links = [Link(gpus[a].id, gpus[b].id, "NVL", count) for (a, b), count in machines.DGX1V_LINKS.items()]
plain = [machines.plain(f"tty:tty{number}") for number in range(30)]
result = []
for devices in (gpus, machines.partitions(gpus, 4), machines.virtual_functions(4, 20), plain):
    for number in (1, 3, 5, 8):
        source.shuffle(devices), source.shuffle(links)
        must = sorted(device.id for device in devices)[7]
        held = {device.id: {"memory": 1} for device in sorted(devices)[3:6]}
        result.append(choose(*fold(devices, links, held), ChoiceRequest(number, (1,), (must,) if number == 5 else ())))
print(json.dumps(result))
"""


def test_the_same_in_every_process_and_order():
    """Q6: the same bytes whatever the seed of hashes and the order of devices and links."""
    path = json.dumps([sys.path[0], *(entry for entry in sys.path if "pythonpath" in entry or "harness" in entry)])
    answers = set()
    for seed in range(100 if NIGHTLY else 5):
        command = [sys.executable, "-c", SHUFFLED, path, str(seed)]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        answers.add(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    assert len(answers) == 1
    assert len(json.loads(answers.pop())) == 16
