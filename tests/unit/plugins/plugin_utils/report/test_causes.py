# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of many hosts by their cause."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.plugin_utils.general_text import OwnWords, general
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.causes import MOST, causes, limit, own_words
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import read_answer
from ansible_collections.fleet.cdi.tests.unit.trees import fleet

RULES = ("driver-version", "node-missing", "mount-missing", "release-damaged", "unit-failed")


def answer(host, *problems):
    report = fleet.report(host)
    for problem in problems:
        fleet.finding(report, *problem)
    return read_answer(fleet.name(host), fleet.rack(host), {"report": report, "gathered": fleet.MADE})


def test_own_names_of_devices_do_not_count():
    one = answer(1)
    uuid = one.devices[2].uuid
    assert general(f"nvidia.com/gpu={uuid} and nvidia.com/gpu=2 and /dev/nvidia2", OwnWords(own_words(one))) == (
        "nvidia.com/gpu=DEVICE and nvidia.com/gpu=DEVICE and NODE"
    )


def test_thirty_ways_to_be_broken_are_thirty_causes():
    """1,000 hosts, 3 % of them broken in thirty ways, each at two hosts with words of its own."""
    answers = [answer(host) for host in range(940)]
    for host in range(940, 1000):
        way = host % 30
        slot = host % 8
        device = fleet.device(host, slot)
        rule = RULES[way % len(RULES)]
        text = f"/devices/{slot}: file{way}.so of {device['id']} in pid {host} of {device['uuid']}"
        answers.append(answer(host, (rule, fleet.SPEC, text, f"`fix{way} {device['uuid']}`", slot)))
    found = causes(answers)
    assert len(found) == 30
    assert all(len(places) == 2 for places in found.values())


def test_causes_of_most_hosts_come_first_and_unknown_hosts_last():
    one = ("node-missing", fleet.SPEC, "x", "y")
    two = ("mount-missing", fleet.SPEC, "x", "y")
    silent = [read_answer(f"h{number}", "", {"unreachable": True}) for number in range(5)]
    found = causes([answer(1, one), answer(2, two), answer(3, two), *silent])
    assert [(key.rule, len(places)) for key, places in found.items()] == [
        ("mount-missing", 2),
        ("node-missing", 1),
        ("no-answer", 5),
    ]


def test_a_full_disk_tells_why_a_host_has_no_release():
    full = {**fleet.report(1), "release": ""}
    fleet.finding(full, "disk-full", "/opt/cdi", "its file system has 0 bytes free", "free some space")
    bare = {**fleet.report(2), "release": ""}
    found = causes([read_answer(fleet.name(host), "", {"report": one}) for host, one in ((1, full), (2, bare))])
    assert [(key.rule, [host for host, _finding in places]) for key, places in found.items()] == [
        ("disk-full", [0]),
        ("no-answer", [1]),
    ]


def test_the_words_of_a_host_are_bounded_and_made_into_a_pattern_once(monkeypatch):
    """With a pattern for each text, an answer of 2 MB took half a minute, and twice of it six times as long."""
    names = [{"id": f"! {number}", "names": [f"!{number}"], "uuid": f"u !{number}"} for number in range(500)]
    texts = [f"{number} {'! ' * 9}" for number in range(500)]
    report = {
        "devices": [{"kind": "a/b", **one} for one in names],
        "findings": [{"rule": "r", "problem": text, "next": text} for text in texts],
    }
    made = []
    monkeypatch.setattr(f"{causes.__module__}.OwnWords", lambda words: made.append(words) or OwnWords(words))
    assert len(causes([read_answer("a", "", {"report": report})])) == 501
    (words,) = made
    assert len(words) == MOST


def test_limit():
    assert limit(["a", "b"]) == "--limit a,b"
