# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines to choose devices on, and what is best on them by trying everything: for tests and benchmarks of allocation.

The exhaustive searches here share no code with plugins/module_utils/allocation but its words.
"""

from __future__ import annotations

import functools
import itertools
import random
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import ChoiceRequest, Class
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import Machine
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology import kfd
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.file import from_file
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.graph import GPU
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Link

Matrix = tuple[tuple[int, ...], ...]

# NVLinks of a DGX-1V as NVIDIA publishes them ("NVIDIA DGX-1 With Tesla V100 System Architecture", hybrid cube-mesh),
# by pair of GPUs. 0 and 1, 2 and 3, ... share a PCIe switch, the first four and the last four a socket.
DGX1V_LINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def gpus_of(path: Path) -> tuple[list[Device], tuple[Link, ...]]:
    """The GPUs in a file of NCCL, RCCL or hwloc, and their links."""
    topology = from_file(str(path))
    return [device for device in topology.devices if device.kind == GPU], topology.links


def real_machines(dumps: Path) -> dict[str, tuple[list[Device], tuple[Link, ...]]]:
    """By name, all machines in the dumps whose links are known: GPUs and links."""
    files = [*sorted((dumps / "links").glob("*.xml")), dumps / "hwloc-xml/nvidia-dgx2.xml"]
    return {**{path.stem: gpus_of(path) for path in files}, "mi210": _mi210(dumps / "kfd/mi210-xgmi-pcie.tar.gz")}


def _mi210(archive: Path) -> tuple[list[Device], tuple[Link, ...]]:
    """The GPUs of the KFD dump, each on a host bridge of its own: the dump has no PCI devices."""
    with tempfile.TemporaryDirectory() as root, tarfile.open(archive) as dump:
        for member in dump.getmembers():
            content = dump.extractfile(member) if member.isfile() else None
            if content is not None:
                place = Path(root, "sys/class/kfd/kfd/topology", *Path(member.name).parts[2:])
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.read())
        view = snapshot.take(root)
        links, _warnings = kfd.kfd_links(view)
        return [plain(f"pci:{gpu.function}") for gpu in kfd.gpus(view)], links


def plain(ident: str, numa_node: int | None = None, path: Sequence[str] = (), parent: str = "") -> Device:
    """A device of which only the place matters."""
    return Device(
        ident,
        "test",
        "vendor.com/test",
        (ident,),
        (),
        pci_address=ident.partition(":")[2] if ident.startswith("pci:") else "",
        numa_node=numa_node,
        pcie_path=tuple(path),
        part_of=(parent,) if parent else (),
    )


def partitions(parents: Sequence[Device], number: int) -> list[Device]:
    """So many partitions of each of these devices, in the same place."""
    return [one._replace(id=f"{one.id}/{part}", part_of=(one.id,)) for one in parents for part in range(number)]


def virtual_functions(ports: int = 8, each: int = 127) -> list[Device]:
    """Network cards of one port each, four at each socket, with so many virtual functions each."""
    return [
        plain(f"pci:0000:{0x11 + port:02x}:{number >> 3:02x}.{number & 7}", port // 4,
              (f"pci0000:{0x10 + port:02x}", f"0000:{0x10 + port:02x}:01.0"), f"pci:0000:{0x11 + port:02x}:00.0")
        for port in range(ports)
        for number in range(1, each + 1)
    ]  # fmt: skip


def points(links: dict[tuple[int, int], int]) -> Matrix:
    """Pair scores of eight GPUs as NVIDIA's go-gpuallocator counts: 50, 30 and 10 by PCIe class, 100 for each link."""

    def score(one: int, other: int) -> int:
        place = 50 if one // 2 == other // 2 else 30 if one // 4 == other // 4 else 10
        return place + 100 * links.get((other, one), 0)

    return symmetric(8, score)


def symmetric(size: int, score: Callable[[int, int], int]) -> Matrix:
    """A matrix from a function of two indexes, of which the second is the smaller one."""
    rows = [[score(one, other) if other < one else 0 for other in range(size)] for one in range(size)]
    return tuple(tuple(rows[max(a, b)][min(a, b)] for b in range(size)) for a in range(size))


def scattered(size: int, values: Sequence[int], seed: int) -> Matrix:
    """Random pair scores."""
    source = random.Random(seed)
    return symmetric(size, lambda _one, _other: source.choice(values))


def masked(machine: Machine, mask: int) -> Machine:
    """The machine with only those members free whose bit is set, counted through all classes."""
    bit = itertools.count()
    free = [
        (index, one._replace(members=members))
        for index, one in enumerate(machine.classes)
        if (members := tuple(member for member in one.members if mask >> next(bit) & 1))
    ]
    return Machine(
        tuple(one for _index, one in free),
        tuple(tuple(machine.pairs[index][other] for other, _class in free) for index, _class in free),
    )


def separate(pairs: Matrix, nodes: Sequence[int | None]) -> Machine:
    """Devices that are each a class of their own: gpu0, gpu1 and so on."""
    return Machine(tuple(Class((f"gpu{index}",), node) for index, node in enumerate(nodes)), pairs)


def best(machine: Machine, request: ChoiceRequest) -> tuple[str, ...] | None:
    """The best set, by comparing all; None where none satisfies the request."""
    devices = [(member, index) for index, one in enumerate(machine.classes) for member in one.members]
    fit = [
        (member, index)
        for member, index in devices
        if all(machine.classes[index].free.get(name, 0) >= amount for name, amount in request.needs.items())
    ]

    def score(members: Iterable[tuple[str, int]]) -> int:
        return sum(machine.pairs[one][other] for (_a, one), (_b, other) in itertools.combinations(members, 2))

    def key(chosen: tuple[tuple[str, int], ...]) -> tuple[int, int, int, int, int, int, list[tuple[int, str]]]:
        nodes = [node if node is not None and node >= 0 else None for node in
                 (machine.classes[index].numa_node for _member, index in chosen)]  # fmt: skip
        stay = [one for one in devices if one not in chosen and machine.classes[one[1]].whole]
        names = sorted((len(member), member) for member, _index in chosen)
        near = sum(node in request.near for node in nodes)
        opened = sum(machine.classes[index].whole for _member, index in chosen)
        room = sum(sum(machine.classes[index].free.values()) for _member, index in chosen)
        return -near, -score(chosen), len(set(nodes)), opened, room, -score(stay), names

    sets = (
        chosen
        for chosen in itertools.combinations(fit, request.number)
        if set(request.must_include) <= {member for member, _index in chosen}
    )
    keys = {chosen: key(chosen) for chosen in sets}
    if not keys:
        return None
    top = min(one[:2] for one in keys.values())
    alike = [chosen for chosen, one in keys.items() if one[0] == top[0] and one[1] <= top[1] + abs(top[1]) // 100]
    rings = {chosen: ring(machine.pairs, [index for _member, index in chosen]) for chosen in alike}
    nics = {chosen: sum(machine.classes[index].nic for _member, index in chosen) for chosen in alike}
    best_of = min(alike, key=lambda chosen: (-rings[chosen], -nics[chosen], keys[chosen]))
    return tuple(name for _length, name in keys[best_of][6])


def ring(pairs: Sequence[Sequence[int]], members: Sequence[int]) -> int:
    """The slowest link in the best ring of all of `members`, by trying all levels; 0 for one, and for more than 16."""
    return _ring(tuple(map(tuple, pairs)), tuple(sorted(members)))


@functools.lru_cache(maxsize=100_000)
def _ring(pairs: Matrix, members: tuple[int, ...]) -> int:
    size = len(members)
    if size == 1 or size > 16:
        return 0
    if size == 2:
        return pairs[members[0]][members[1]]
    levels = sorted({pairs[a][b] for a, b in itertools.combinations(members, 2)})
    low, high = 0, len(levels)  # low: a ring of all links has at least the lowest level
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if _closes(pairs, members, levels[middle]) else (low, middle)
    return levels[low]


def _closes(pairs: Matrix, members: Sequence[int], level: int) -> bool:
    """Whether a ring of all members has links of this level and more."""
    rows = [[pairs[one][other] for other in members] for one in members]
    return _has_ring(
        tuple(sum(1 << b for b, score in enumerate(row) if a != b and score >= level) for a, row in enumerate(rows))
    )


@functools.lru_cache(maxsize=100_000)
def _has_ring(near: tuple[int, ...]) -> bool:
    """Whether a ring joins all devices, which have these neighbours: all paths from the first, by where they end.

    Most sets on a real machine look alike, which is why the answers are kept.
    """
    if any(bits & (bits - 1) == 0 for bits in near):
        return False  # a device with fewer than two neighbours
    size = len(near)
    ends = [0] * (1 << size)  # by the devices of a path that starts at the first one, those where it can end
    ends[1] = 1
    for path in range(1, 1 << size, 2):
        for last in range(size):
            if ends[path] >> last & 1:
                onward = near[last] & ~path
                while onward:
                    bit = onward & -onward
                    onward ^= bit
                    ends[path | bit] |= bit
    return bool(ends[-1] & near[0])


class Subsets:
    """All subsets of up to 16 single devices with their scores: for many requests on one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.size = len(machine.classes)
        self.names = [one.members[0] for one in machine.classes]
        self.scores = [0]
        for index, row in enumerate(machine.pairs):
            with_it = [0]
            for other in row[:index]:
                with_it += [gain + other for gain in with_it]
            self.scores += [score + gain for score, gain in zip(self.scores, with_it)]

    def plain(self, mask: int, number: int, near: Sequence[int] = ()) -> tuple[str, ...]:
        """The best `number` of the devices in `mask` by scores alone: rings and NICs don't count."""
        return self.best(mask, number, near, rings=False)

    def best(self, mask: int, number: int, near: Sequence[int] = (), rings: bool = True) -> tuple[str, ...]:
        """The best `number` of the devices in `mask`."""
        classes, scores = self.machine.classes, self.scores
        bits = [1 << index for index in range(self.size) if mask >> index & 1]
        close = sum(bit for bit in bits if classes[bit.bit_length() - 1].numa_node in near)
        sets = [*map(sum, itertools.combinations(bits, number))]
        most = max((bin(one & close).count("1"), scores[one]) for one in sets)
        least = most[1] - (abs(most[1]) // 100 if rings else 0)
        tied = [one for one in sets if scores[one] >= least and bin(one & close).count("1") == most[0]]
        if rings:
            tied = self._fastest(tied)
            top = max(map(self.nics, tied))
            tied = [one for one in tied if self.nics(one) == top]
        highest = max(scores[one] for one in tied)
        tied = [one for one in tied if scores[one] == highest]

        def rest(one: int) -> tuple[int, int, list[tuple[int, str]]]:
            members = self.members(one)
            nodes = {classes[index].numa_node for index in members}
            names = sorted((len(self.names[index]), self.names[index]) for index in members)
            return len(nodes), -scores[mask & ~one], names

        return tuple(name for _length, name in min(map(rest, tied))[2])

    def members(self, one: int) -> list[int]:
        """The devices of a set."""
        return [index for index in range(self.size) if one >> index & 1]

    def nics(self, one: int) -> int:
        """How near the NICs of a set are."""
        return sum(self.machine.classes[index].nic for index in self.members(one))

    def _fastest(self, sets: Sequence[int]) -> list[int]:
        """Those with the fastest ring."""
        pairs = self.machine.pairs

        def limit(one: int) -> int:
            """No ring of it is faster: each device has two links."""
            members = self.members(one)
            return min(sorted(pairs[a][b] for b in members if b != a)[-2:][0] for a in members) if members[1:] else 0

        limits = {one: limit(one) for one in sets}
        found: list[int] = []
        fastest = 0
        for one in sorted(sets, key=limits.__getitem__, reverse=True):
            if found and limits[one] < fastest:
                break
            speed = ring(pairs, self.members(one))
            if not found or speed > fastest:
                found, fastest = [], speed
            if speed == fastest:
                found.append(one)
        return found
