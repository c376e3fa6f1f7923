# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices of a pool can be picked beside what is held: legal always, and found wherever there is a way."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.request import parse
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Lock, hold_of, why_not
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import HeldLocks
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.devices import Many, finest, offered, read
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.pick import Picker
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Health, NetDevice, Node


def device(name, part_of=(), consists_of=(), memory=4, numa=None):
    return Device(
        name,
        "p",
        "k.x/gpu",
        (name,),
        (),
        part_of=part_of,
        consists_of=consists_of,
        capacity={"memory": memory},
        numa_node=numa,
    )


def locked(holds):
    """The locks of holds that can be held together."""
    locks = {}
    for hold in holds:
        for resource, mode in hold.locks().items():
            locks[resource] = Lock(mode, dict(hold.amounts) if resource == hold.device else {})
    return locks


def pick(devices, request, held=(), lost=(), near=()):
    """The ids of what is picked."""
    return picked(Inventory(tuple(devices)), request, held, lost, near)


def picked(pool, request, held=(), lost=(), near=()):
    """The ids of what is picked of a pool as it was read."""
    asked = parse(request, "gpu")
    locks = locked(held)

    def faults(chosen):
        return {one.id: f"{one.id} is gone" for one in chosen if one.id in lost}

    picker = Picker(pool, asked, near, faults)
    holds = picker.pick(
        HeldLocks(lambda names: {name: locks[name] for name in names if name in locks}, dict(asked.amounts), None)
    )
    assert {tuple(hold.amounts.items()) for hold in holds} == {() if asked.devices else asked.needs}
    return [hold.device for hold in holds]


def test_a_device_and_its_parts_are_never_picked_together():
    pool = [device("gpu"), device("mig1", ("gpu",)), device("mig2", ("gpu",))]
    assert pick(pool, "gpu:2") == ["mig1", "mig2"]
    assert pick(pool, "gpu:1") == ["mig1"]
    with pytest.raises(ProtocolError, match="error 100.: asked for 3 devices; 2 are free"):
        pick(pool, "gpu:3")


def test_a_whole_is_not_taken_from_its_parts_where_a_part_would_do():
    """A physical function with four virtual ones beside it, and a GPU with partitions."""
    port = [device("pf", memory=8), *(device(f"vf{number}", ("pf",)) for number in range(4))]
    assert pick(port, "gpu:1") == ["vf0"]
    assert pick(port, "gpu:4") == ["vf0", "vf1", "vf2", "vf3"]
    assert pick(port, "gpu:1,gpu-memory:8") == ["pf"], "no part has as much"
    assert pick(port, "gpu:1", lost=["vf0", "vf1", "vf2", "vf3"]) == ["pf"]
    assert pick(port, "gpu-memory:1") == ["vf0"]
    assert (len(finest(port)), offered(port)) == (4, {"memory": 16}), "what INFO says can be granted"


def test_what_the_device_plugin_holds_by_its_nodes_alone():
    """Pods got it before there was an inventory, in this boot; a look at that will say what it is."""
    both = [Node("/dev/gpu0", "c", 195, 0)]
    gpu = device("gpu")._replace(nodes=(*both, Node("/dev/ctl0", "c", 195, 1)))
    mig = [device(f"gpu#mig{n}", ("gpu",))._replace(nodes=(*both, Node(f"/dev/cap{n}", "c", 250, n))) for n in (1, 2)]
    nic = device("nic")._replace(net_devices=(NetDevice("eth0", "eth0"),))
    pool = [gpu, *mig, nic, device("other")]

    def free(name, part_of=(), consists_of=()):
        found = set()
        for one in pool:
            with suppress(ProtocolError):
                found.update(pick([one], "gpu:1", [hold_of(device(name, part_of, consists_of))]))
        return found

    assert free("node:/dev/gpu0", (), ("node:/dev/ctl0",)) == {"nic", "other"}
    assert free("node:/dev/cap1", ("node:/dev/gpu0",)) == {"gpu#mig2", "nic", "other"}
    assert free("net:eth0") == {"gpu", "gpu#mig1", "gpu#mig2", "other"}


def test_a_group_and_what_it_consists_of_are_never_picked_together():
    pool = [device("a", consists_of=("f1", "f2")), device("f1"), device("f2"), device("g")]
    assert pick(pool, "gpu:2") == ["f1", "g"]
    assert pick(pool, "gpu:3") == ["f1", "f2", "g"]


def test_parts_are_picked_where_there_are_too_few_wholes():
    pool = [device("a"), device("a.1", ("a",)), device("a.2", ("a",)), device("b"), device("b.1", ("b",))]
    assert pick(pool, "gpu:3") == ["a.1", "a.2", "b.1"]


def test_groups_that_share_a_part_are_never_picked_together():
    pool = [
        device("a", consists_of=("f1", "f2")),
        device("b", consists_of=("f2", "f3")),
        device("c", consists_of=("f3",)),
    ]
    assert pick(pool, "gpu:2") == ["a", "c"]


def test_every_lost_device_is_passed_over():
    pool = [device(f"gpu{number}") for number in range(9)]
    assert pick(pool, "gpu:1", lost=[f"gpu{number}" for number in range(8)]) == ["gpu8"]
    with pytest.raises(ProtocolError, match="asked for 2 devices; 1 are free; gpu0 is gone; gpu1 is gone;"):
        pick(pool, "gpu:2", lost=[f"gpu{number}" for number in range(8)])


def test_a_share_of_what_has_no_such_capacity():
    """It is held by somebody; what of it could be shared is not known."""
    bare = device("a")._replace(capacity={})
    assert pick([bare, device("b")], "gpu-memory:1", held=[hold_of(bare)]) == ["b"]


@st.composite
def hosts(draw):
    """A pool of devices with parts, some of them held or lost."""
    pool = []
    for number in range(draw(st.integers(1, 3))):
        name = f"gpu{number}"
        if draw(st.booleans()):
            pool.append(device(name, memory=draw(st.integers(1, 4))))
        for part in range(draw(st.integers(0, 3))):
            pool.append(device(f"{name}.{part}", (name,), memory=draw(st.integers(1, 3))))
    held = []
    for one in draw(st.lists(st.sampled_from(pool), unique_by=lambda one: one.id)) if pool else ():
        amounts = draw(st.sampled_from([{}, {"memory": 1}]))
        if not why_not(hold_of(one, amounts), locked(held)):
            held.append(hold_of(one, amounts))
    lost = draw(st.sets(st.sampled_from([one.id for one in pool]), max_size=2)) if pool else set()
    return pool, held, lost


def legal(chosen, held, lost, needs, amounts):
    locks = locked(held)
    for one in chosen:
        if one.id in lost or why_not(hold_of(one, amounts), locks):
            return False
        used = locks[one.id].used.get("memory", 0) if one.id in locks else 0
        if one.capacity["memory"] - used < needs:
            return False
        locks.update(locked([hold_of(one, amounts)]))
    return True


@given(hosts(), st.integers(0, 4), st.integers(1, 4))
def test_picked_wherever_there_is_a_way_and_never_otherwise(host, count, needs):
    """Against all subsets of the pool; `count` 0 is a share."""
    pool, held, lost = host
    amounts = {} if count else {"memory": needs}
    ways = [ids for ids in combinations(pool, count or 1) if legal(ids, held, lost, needs, amounts)]
    request = f"gpu:{count},gpu-memory:{needs}" if count else f"gpu-memory:{needs}"
    try:
        found = pick(pool, request, held, lost)
    except ProtocolError as error:
        assert (error.code, ways) == (100, [])
    else:
        assert found in [[one.id for one in way] for way in ways]


class TestMany:
    """Of devices that are alike only those that are picked are read, and what is picked is the same."""

    PLAIN = st.builds(
        lambda number, numa, state, nic: Device(
            f"tty:tty{number}",
            "rule",
            "k.x/gpu",
            (f"tty{number}",),
            (Node(f"/dev/tty{number}", "c", 4, number),),
            numa_node=numa,
            health=Health(state),
            nic_relation=nic,
        ),
        st.integers(0, 30),
        st.sampled_from([None, 0, 1]),
        st.sampled_from(["healthy", "healthy", "healthy", "unhealthy"]),
        st.sampled_from(["", "PIX"]),
    )
    OTHERS = (device("gpu"), device("mig1", ("gpu",), numa=0), device("unit", (), ("tty:tty3",), numa=1))

    @given(
        st.lists(PLAIN, max_size=14, unique_by=lambda one: one.id),
        st.sets(st.sampled_from(range(3))),
        st.sampled_from(["gpu:1", "gpu:2", "gpu:5", "gpu-memory:2", "gpu-memory:3,gpu:1"]),
        st.sets(st.integers(0, 30), max_size=8),
        st.sets(st.integers(0, 30), max_size=4),
        st.sampled_from([(), (0,), (1, 0)]),
    )
    def test_the_same_is_picked(self, tmp_path_factory, plain, others, request_text, held, lost, near):
        whole = Inventory((*plain, *(self.OTHERS[number] for number in sorted(others))))
        path = tmp_path_factory.getbasetemp() / "pool.json"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inventory, "FEWEST", 2)
            path.write_bytes(inventory.render(whole, "boot", sketched=True))
        usable = [one for one in whole.devices if one.health.is_usable]
        pool = read(str(path), "boot")
        assert [*pool.devices] == usable and len(pool.devices) == len(usable)
        holds = [hold_of(one) for number, one in enumerate(plain) if number in held and number % 2]
        # As the device plugin holds what it knew by a spec alone.
        holds += [hold_of(one)._replace(device=f"node:/dev/tty{number}") for number in held for one in plain[:1]]
        gone = {f"tty:tty{number}" for number in lost}
        found = []
        for one in (pool, Inventory(tuple(usable))):
            try:
                found.append(picked(one, request_text, holds, gone, near))
            except ProtocolError as error:
                found.append(str(error))
        assert found[0] == found[1]

    def test_only_what_is_chosen_is_read(self, tmp_path):
        path = tmp_path / "pool.json"
        plain = [Device(f"tty:{n}", "rule", "k.x/gpu", (f"{n}",), (Node(f"/dev/{n}", "c", 4, n),)) for n in range(100)]
        path.write_bytes(inventory.render(Inventory(tuple(plain)), "boot", sketched=True).replace(b'"tty:70"}', b'"'))
        pool = read(str(path), "boot")
        assert isinstance(pool.devices, Many) and len(pool.devices) == 100
        assert picked(pool, "gpu:2") == ["tty:0", "tty:1"]

    @pytest.mark.parametrize(
        ("found", "now"),
        [
            (b'"boot_id": "boot"', b'"boot_id": "other"'),
            (b'"version": %d' % inventory.VERSION, b'"version": %d' % (inventory.VERSION + 1)),
            (b"]}\n", b""),
            (b'"at": "', b'"at": "0'),
        ],
    )
    def test_a_damaged_one_is_told_as_any_other(self, tmp_path, found, now):
        path = tmp_path / "pool.json"
        plain = [Device(f"tty:{n}", "rule", "k.x/gpu", (f"{n}",), ()) for n in range(100)]
        content = inventory.render(Inventory(tuple(plain)), "boot", sketched=True)
        assert content.count(found) == 1 or found == b"]}\n"
        path.write_bytes(content.replace(found, now))
        if b"at" in found:
            assert not isinstance(read(str(path), "boot").devices, Many)
        else:
            with pytest.raises(ProtocolError, match="inventory .*pool.json: (is damaged|found version|was written)"):
                read(str(path), "boot")

    def test_the_pool_of_the_release_before_is_read_whole(self, tmp_path):
        """It has lists as `alike`. And that release ignores the texts of this one."""
        path = tmp_path / "pool.json"
        plain = tuple(Device(f"tty:{n}", "rule", "k.x/gpu", (f"{n}",), ()) for n in range(100))
        now, without = (inventory.render(Inventory(plain), "boot", sketched=sketched) for sketched in (True, False))
        lists = json.dumps([{"ids": [one.id for one in plain], "paths": [], "at": [*range(100)]}]).encode()
        for content in (now, without.replace(b',\n"devices"', b',\n"alike": ' + lists + b',\n"devices"')):
            path.write_bytes(content)
            assert inventory.read(str(path), "boot").devices == plain
        assert b'"alike"' not in now
        assert read(str(path), "boot").devices == plain

    def test_an_id_with_a_blank_is_no_two_ids(self, tmp_path):
        path = tmp_path / "pool.json"
        plain = [Device(f"tty:{n}", "rule", "k.x/gpu", (f"{n}",), (Node(f"/dev/{n}", "c", 4, n),)) for n in range(100)]
        plain[3] = plain[3]._replace(id="tty:3 tty:4b")
        plain[7] = plain[7]._replace(nodes=(Node("/dev/a b", "c", 4, 7),))
        path.write_bytes(inventory.render(Inventory(tuple(plain)), "boot", sketched=True))
        pool = read(str(path), "boot")
        assert isinstance(pool.devices, Many)
        assert [*pool.devices] == plain and len(pool.devices) == 100 and len(pool.devices.others) == 2
        assert picked(pool, "gpu:5") == [one.id for one in plain[:5] if one is not plain[3]] + ["tty:5"]
