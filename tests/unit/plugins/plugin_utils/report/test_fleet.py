# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet as a document."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import fleet_report, order, unmarked
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import read_answer
from ansible_collections.fleet.cdi.tests.unit.trees import fleet


def answers(hosts, devices=8):
    return order(read_answer(fleet.name(host), fleet.rack(host), fleet.result(host, devices)) for host in range(hosts))


def odd_answer():
    """A device whose texts look like the marks of the report, or are parts of them."""
    odd = {"report": fleet.report(0), "gathered": fleet.MADE}
    marks = "{uuid}{serial}{request}{brace}{{uuid}}"
    for slot, (uuid, serial) in enumerate(
        [("{serial}", "{uuid}"), ("uuid", "serial"), ("{", "}"), ("$&", "e"), ("", "{")]
    ):
        device = odd["report"]["devices"][slot]
        fleet.hold(device, 0, slot)
        device.update(uuid=uuid, serial=serial, id=marks + uuid + serial, nodes=[f"{marks}$&{serial}"])
        device["promised"][2][0].update(who=f"request {{request}} {marks}{uuid}", request=uuid or "request")
    return read_answer("odd", "", odd)


def test_every_device_can_be_read_back():
    found = [*answers(100), odd_answer()]
    report = fleet_report(found, fleet.MADE)
    strings, place = report["strings"], 0
    for host, name in enumerate(report["hosts"]["name"]):
        assert strings[name] == found[host].name
        for device in found[host].devices:
            shape = report["shapes"][report["devices"]["shape"][place]]
            fields = {
                field: unmarked(strings[text], uuid=device.uuid, serial=device.serial)
                for field, text in zip(report["shape_fields"], shape)
            }
            assert fields == device.fields
            assert report["devices"]["serial"][place] == device.serial
            assert report["devices"]["state"][place] == device.state
            holders = [
                (
                    unmarked(strings[who], request=strings[request]),
                    strings[owner],
                    strings[request],
                    strings[state],
                    at,
                )
                for who, owner, request, state, at in report["holders"][report["devices"]["held"][place]]
            ]
            assert tuple(holders) == device.holders
            place += 1
    assert place == len(report["devices"]["state"])


def test_a_text_does_not_grow_by_the_texts_in_it():
    """A host with an answer of 6 KB had a report of 170 MB in the memory of its readers."""
    device = {"id": "{uuid}" * 333, "kind": "a/b", "names": ["x"], "uuid": "{serial}" * 250, "serial": "x" * 2000}
    report = fleet_report([read_answer("a", "", {"report": {"devices": [device]}})], 0)
    place = report["shapes"][1][report["shape_fields"].index("id")]
    assert unmarked(report["strings"][place], uuid=device["uuid"], serial=device["serial"]) == device["id"]


def test_equal_hosts_share_their_text():
    small, large = (fleet_report(answers(hosts), 0) for hosts in (200, 400))
    assert len(large["shapes"]) < len(small["shapes"]) + 20 and len(large["wiring"]) == len(small["wiring"]) == 2


def test_hosts_are_in_the_order_of_racks_and_numbers():
    named = [("rack10", "b1"), ("rack2", "b10"), ("rack2", "b9"), ("", "z")]
    assert [(one.rack, one.name) for one in order(read_answer(name, rack, None) for rack, name in named)] == [
        ("", "z"),
        ("rack2", "b9"),
        ("rack2", "b10"),
        ("rack10", "b1"),
    ]


def test_a_clock_that_is_wrong_by_a_year_is_told():
    late = {**fleet.result(0), "gathered": fleet.MADE + 365 * 86400}
    report = fleet_report([read_answer("a", "", late), read_answer("b", "", fleet.result(0))], 0)
    assert report["hosts"]["skew"] == [365 * 86400, 0]
