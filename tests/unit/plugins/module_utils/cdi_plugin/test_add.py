# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's calls amount to over time: repeats, additions, two configurations, shares, lost devices."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import choose
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import pick
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, gpus, ttys, usb_disk

GPU0 = ["/dev/dri/card0", "/dev/dri/renderD128"]
GPU1 = ["/dev/dri/card1", "/dev/dri/renderD129"]


# --- one request-id


def test_the_same_again_is_the_same_grant(two):
    machine, conf = two
    first = machine.ask("ADD", conf, "gpu:1", "a")
    assert machine.ask("ADD", conf, "gpu:1", "a") == first
    assert machine.add(conf, "gpu:1", "b") == GPU1


def test_the_same_with_another_amount_is_refused(two):
    machine, conf = two
    machine.add(conf, "gpu:1", "a")
    code, details = machine.refused(conf, "gpu:2", "a")
    assert code == 109
    assert "has gpu:1; found gpu:2" in details
    assert machine.add(conf, "gpu:1", "b") == GPU1


def test_another_spec_adds_to_the_grant(hosts):
    machine = hosts(gpus((4096, 8192)))
    conf = machine.configure(config(shared=True))
    assert machine.add(conf, "gpu:1", "a") == GPU0
    assert machine.add(conf, "gpu-memory:1000", "a") == GPU1
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert machine.add(conf, "gpu:2", "b") == GPU0 + GPU1


def test_a_request_that_is_granted_in_part_is_refused(hosts):
    """What of it would be new could be had from another device only: that is not what it asks for."""
    machine = hosts(gpus((4096, 8192)))
    conf = machine.configure(config(shared=True))
    machine.add(conf, "gpu:1", "a")
    assert machine.refused(conf, "gpu:1,gpu-memory:1000", "a") == (
        109,
        "this request has gpu already; ask for new ones only",
    )


def test_a_request_is_granted_whole_or_not(two):
    machine, conf = two
    assert machine.refused(conf, "gpu:3", "a")[0] == 100
    assert machine.ask("DEL", conf, "", "a")[1]["code"] == 5
    assert machine.add(conf, "gpu:2", "b") == GPU0 + GPU1


def test_delete_frees_and_may_be_repeated(two):
    machine, conf = two
    machine.add(conf, "gpu:2", "a")
    assert machine.refused(conf, "gpu:1", "b")[0] == 100
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    status, reply = machine.ask("DEL", conf, "", "a")
    assert (status, reply["code"], "details" in reply) == (0, 5, False)
    assert machine.add(conf, "gpu:2", "b") == GPU0 + GPU1


def test_the_proposals_text_has_another_name_for_an_option_than_its_example(hosts):
    machine = hosts(gpus((4096, 8192)))
    conf = machine.configure(config(want_device_types=["render"]))
    assert machine.add(conf, "gpu:1", "a") == GPU0[1:]


def test_a_choice_that_may_not_be_the_best_is_said(hosts, monkeypatch):
    machine = hosts(gpus((4096, 8192)))
    conf = machine.configure(config())
    monkeypatch.setattr(pick, "choose", lambda *given: choose(*given)._replace(proved=False))
    assert machine.ask("ADD", conf, "gpu:1", "a")[1]["proved"] is False
    monkeypatch.undo()
    assert machine.ask("ADD", conf, "gpu:1", "b")[1]["proved"] is True
    assert machine.ask("ADD", conf, "gpu:1", "a")[1]["proved"] is False, "the ledger keeps it"


# --- several configurations


def test_two_configurations_never_grant_one_device(hosts):
    """drm and rule see the same GPUs under different types and kinds."""
    machine = hosts(gpus((4096, 8192)))
    card = config("rule", "card", match={"subsystem": "drm", "node": "dri/card*"}, kind="example.com/card")
    conf = config()
    machine.configure(conf, card)
    assert machine.add(conf, "gpu:1", "a") == GPU0
    assert machine.add(card, "card:1", "a") == ["/dev/dri/card1"]
    assert machine.refused(conf, "gpu:1", "b")[0] == machine.refused(card, "card:1", "b")[0] == 100
    assert machine.ask("DEL", card, "", "a") == (0, None)
    assert machine.refused(card, "card:2", "b")[0] == 100  # what drm granted under the same id is still granted
    assert machine.add(conf, "gpu:1", "b") == GPU1


def test_two_configurations_that_group_hardware_in_other_ways_never_grant_one_node(hosts):
    machine = hosts(gpus((4096, 8192)))
    whole = config()
    render = {"type_": "render", "match": {"node": "dri/renderD*"}, "group_by": "none", "kind": "k.x/render"}
    nodes = config("rule", profile="rule", **render)
    machine.configure(whole, nodes)
    assert machine.add(whole, "gpu:1", "a") == GPU0
    assert machine.add(nodes, "render:1", "b") == GPU1[1:]
    assert machine.refused(whole, "gpu:1", "c")[0] == machine.refused(nodes, "render:1", "c")[0] == 100
    assert machine.ask("DEL", nodes, "", "b") == (0, None)
    assert machine.add(whole, "gpu:1", "c") == GPU1


def test_a_disk_is_one_device_by_whichever_of_its_names(hosts):
    machine = hosts(usb_disk())
    block = config("rule", "disk", profile="block", kind="k.x/block")
    usb = config("rule", "usb", profile="usb", kind="k.x/usb")
    unit = config("rule", "unit", match={"node": "sg*"}, kind="k.x/unit")
    alone = {"profile": "rule", "group_by": "none"}
    nodes = [config("rule", name, match={"node": name}, kind=f"k.x/{name}", **alone) for name in ("sdb", "sdb1")]
    every = [block, usb, unit, *nodes]
    machine.configure(*every)
    for one in every:
        machine.add(one, f"{one['type']}:1", "a")
        for other in every:
            if other is not one:
                assert machine.refused(other, f"{other['type']}:1", "b")[0] == 100, (one, other)
        assert machine.ask("DEL", one, "", "a") == (0, None)


def test_configurations_of_one_plugin_differ_in_their_devices(hosts):
    machine = hosts(gpus((4096, 8192)))
    one, other = config(vendorid_whitelist=["0x1234"]), config("drm", "gpu2", vendorid_whitelist=["0x2345"])
    machine.configure(one, other)
    assert machine.add(one, "gpu:1", "a") == GPU0
    assert machine.refused(one, "gpu:1", "b")[0] == 100
    assert machine.add(other, "gpu2:1", "b") == GPU1
    assert machine.ask("INFO", one)[1] == {"cdiVersion": "0.0.1", "gpu": 1, "gpu-memory": 4096}


def test_the_same_configuration_offers_memory_only_where_the_driver_reports_it(hosts):
    with_memory, without = hosts(gpus((4096, 8192))), hosts(gpus(count=2))
    conf = config()
    for machine in (with_memory, without):
        machine.configure(conf)
    assert with_memory.ask("INFO", conf)[1] == {"cdiVersion": "0.0.1", "gpu": 2, "gpu-memory": 12288}
    assert without.ask("INFO", conf)[1] == {"cdiVersion": "0.0.1", "gpu": 2}
    assert with_memory.add(conf, "gpu:1,gpu-memory:8Gi", "a") == GPU1
    assert without.refused(conf, "gpu:1,gpu-memory:8Gi", "a") == (4, "Unsupported resource-spec: gpu-memory")


def test_a_kind_has_one_owner(hosts):
    machine = hosts(gpus((4096, 8192)))
    conf, other = config(), config(owner="kubernetes")
    machine.configure(conf, other)
    machine.add(other, "gpu:1", "a")
    code, details = machine.refused(conf, "gpu:1", "b")
    assert code == 103
    assert "fleet.cdi/gpu: kubernetes holds devices of it, so it is not for claims" in details


def test_info_reports_what_is_there_not_what_is_free(two):
    machine, conf = two
    before = machine.ask("INFO", conf)
    machine.add(conf, "gpu:2", "a")
    assert machine.ask("INFO", conf) == before


def test_reserved_consoles_are_not_granted(hosts):
    machine = hosts(ttys(16))
    conf = machine.configure(config("generic-tty", "tty", num_system_reserved=12))
    assert machine.add(conf, "tty:4", "a") == [f"/dev/tty{number}" for number in (13, 14, 15, 16)]
    assert machine.refused(conf, "tty:1", "b")[0] == 100


def test_locality_is_left_out_where_it_is_unknown(hosts):
    machine = hosts(ttys(16))
    conf = machine.configure(config("generic-tty", "tty"))
    assert "numa_locality" not in machine.ask("ADD", conf, "tty:1", "a")[1]


# --- shares of a device


@pytest.fixture
def shares(hosts):
    machine = hosts(gpus((4096, 8192)))
    return machine, machine.configure(config(shared=True))


def test_shares_fill_a_device_before_the_next(shares):
    machine, conf = shares
    assert machine.add(conf, "gpu-memory:3000", "a") == GPU0
    assert machine.add(conf, "gpu-memory:1000", "b") == GPU0
    assert machine.add(conf, "gpu-memory:1000", "c") == GPU1
    assert machine.refused(conf, "gpu:1", "d")[0] == 100
    assert machine.ask("DEL", conf, "", "c") == (0, None)
    assert machine.add(conf, "gpu:1", "d") == GPU1
    code, details = machine.refused(conf, "gpu-memory:97", "e")
    assert (code, "memory 97" in details) == (100, True)
    assert machine.add(conf, "gpu-memory:96", "e") == GPU0


def test_what_is_asked_for_goes_where_it_fits_tightest(hosts):
    machine = hosts(gpus((81920, 16384, 16384)))
    conf = machine.configure(config(shared=True))
    assert machine.add(conf, "gpu:1,gpu-memory:8Gi", "a") == GPU1
    assert machine.add(conf, "gpu-memory:8Gi", "b") == ["/dev/dri/card2", "/dev/dri/renderD130"]
    assert machine.add(conf, "gpu:1,gpu-memory:32Gi", "c") == GPU0


def test_a_minimum_of_a_whole_device_is_no_share(shares):
    machine, conf = shares
    assert machine.add(conf, "gpu:1,gpu-memory:1000", "a") == GPU0
    assert machine.add(conf, "gpu-memory:1000", "b") == GPU1
    assert machine.refused(conf, "gpu-memory:8000", "c")[0] == 100


def test_a_share_larger_than_any_device_is_refused(shares):
    machine, conf = shares
    assert machine.refused(conf, "gpu-memory:8193", "a")[0] == 100
    assert machine.add(conf, "gpu-memory:8Gi", "a") == GPU1


# --- devices that go


def test_a_device_whose_node_is_gone_is_left_out(two):
    machine, conf = two
    os.unlink(f"{machine.root}/dev/dri/renderD128")
    assert machine.add(conf, "gpu:1", "a") == GPU1
    code, details = machine.refused(conf, "gpu:1", "b")
    assert code == 100
    assert "/dev/dri/renderD128: No such file" in details


@pytest.mark.parametrize(
    ("mode", "number", "says"),
    [(stat.S_IFCHR, 77, "has minor 77, expected 0"), (stat.S_IFBLK, 0, "has type b, expected c")],
)
def test_a_node_that_is_another_device_now_is_not_handed_out(two, mode, number, says):
    machine, conf = two
    place = f"{machine.root}/dev/dri/card0"
    os.unlink(place)
    os.mknod(place, mode | 0o600, os.makedev(226, number))
    assert machine.refused(conf, "gpu:2", "a")[0] == 100
    assert says in machine.refused(conf, "gpu:2", "a")[1]
    assert machine.add(conf, "gpu:1", "a") == GPU1


def test_a_symlink_in_place_of_a_node_is_not_followed(two):
    machine, conf = two
    os.rename(f"{machine.root}/dev/dri/card0", f"{machine.root}/dev/elsewhere")
    os.symlink("../elsewhere", f"{machine.root}/dev/dri/card0")
    assert machine.add(conf, "gpu:1", "a") == GPU1


def test_unplugged_between_choice_and_reply(hosts):
    """The setup command is what comes in between; here it takes the first GPU's node away."""
    machine = hosts(gpus((4096, 8192)))
    node = f"{machine.root}/dev/dri/card0"
    conf = machine.configure(config(setup=["/usr/bin/rm", "-f", node]))
    assert machine.add(conf, "gpu:1", "a") == GPU1
    assert machine.refused(conf, "gpu:1", "b")[0] == 100
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(226, 0))
    machine.refresh()
    assert machine.add(config(), "gpu:2", "c") == GPU0 + GPU1  # the first try has left nothing behind


def test_what_was_lost_once_is_not_tried_again(hosts):
    """Here teardown brings the node back that setup took away."""
    machine = hosts(gpus((4096, 8192)))
    node = f"{machine.root}/dev/dri/card0"
    back = ["/bin/sh", "-c", f"test -e {node} || mknod {node} c 226 0"]
    conf = machine.configure(config(setup=["/usr/bin/rm", "-f", node], teardown=back))
    assert machine.add(conf, "gpu:1", "a") == GPU1
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert os.path.exists(node)


def test_a_grant_whose_device_went_is_not_repeated(two):
    machine, conf = two
    machine.add(conf, "gpu:1", "a")
    os.unlink(f"{machine.root}/dev/dri/card0")
    assert machine.refused(conf, "gpu:1", "a") == (100, "/dev/dri/card0: No such file or directory")
    machine.refresh()
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, details) == (
        100,
        "pci:0000:01:00.0: was granted to this request and can't be used any more; DEL it, then ADD again",
    )
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert machine.add(conf, "gpu:1", "a") == GPU1


@pytest.mark.parametrize(
    ("before", "after", "same"), [("A", "B", False), ("A", "A", True), ("", "B", True), ("A", "", True)]
)
def test_another_card_in_the_same_slot_is_not_what_was_granted(two, before, after, same):
    machine, conf = two
    attribute = Path(machine.root, "sys/devices/pci0000:00/0000:01:00.0/unique_id")
    attribute.write_text(before)
    machine.refresh()
    machine.add(conf, "gpu:1", "a")
    attribute.write_text(after)
    machine.refresh()
    if same:
        assert machine.add(conf, "gpu:1", "a") == GPU0
        return
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, details) == (100, "pci:0000:01:00.0: is not the card that was granted (A) any more")


def test_an_inventory_of_another_boot_is_refused(two):
    machine, conf = two
    Path(machine.root + BOOT).write_text("boot-2\n")
    code, details = machine.refused(conf, "gpu:1", "a")
    assert code == 101
    assert "was written in boot 'boot-1', but this is boot 'boot-2'; run the discovery again" in details
    assert machine.ask("INFO", conf)[1]["code"] == 101


def test_a_grant_outlasts_a_reboot_by_the_identity_of_its_device(two):
    machine, conf = two
    machine.add(conf, "gpu:1", "a")
    Path(machine.root + BOOT).write_text("boot-2\n")
    machine.refresh()
    assert machine.add(conf, "gpu:1", "b") == GPU1
    assert machine.add(conf, "gpu:1", "a") == GPU0
