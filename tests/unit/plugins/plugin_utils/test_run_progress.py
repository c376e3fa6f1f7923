# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a run is, as people read it."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.plugin_utils.run_progress import (
    PlayProgress,
    TaskProgress,
    clock,
    duration,
    progress_bar,
)

HOSTS = [f"h{number}" for number in range(1200)]


def play(batch, answered=0, before=(), hosts=HOSTS):
    """A play whose present batch has a task, 0 to 100 s after its start."""
    one = PlayProgress("Provision", hosts, 0.0)
    for hosts_before in before:
        one.next_batch(hosts_before)
    one.next_batch(batch)
    one.begin("Work", 0.0, False)
    for host in [*batch][:answered]:
        one.task.begin(host, 0.0)
        one.task.end(host)
    return one


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (play(HOSTS), "0 of 1,200 hosts, 1,200 pending"),
        (play(HOSTS, 2), "2 of 1,200 hosts, 1,198 pending"),  # too early for a guess
        (play(HOSTS, 400), "400 of 1,200 hosts, 800 pending, about 3 min left"),
        (play(HOSTS, 1200), "1,200 of 1,200 hosts, 0 pending"),
        (play(HOSTS[300:600], 100, [HOSTS[:300]]), "400 of 1,200 hosts, 800 pending, about 5 min left"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_line_after_100_seconds(progress, line):
    assert progress.line(100.0) == line


def test_hosts_that_failed_are_not_waited_for():
    progress = play(HOSTS, 10)
    progress.failed.update(HOSTS[:4])
    progress.gone = 4
    progress.begin("Next", 50.0, False)
    assert progress.line(60.0) == "0 of 1,200 hosts, 4 failed, 1,196 pending"
    progress.begin("Once", 60.0, True)
    assert progress.task.expected == 1


@pytest.mark.parametrize(
    ("name", "everyone", "batch", "same"),
    [
        ("Provision", HOSTS, HOSTS[300:600], True),
        ("Provision", HOSTS, HOSTS[:300], False),  # the same play again
        ("Verify", HOSTS, HOSTS[300:600], False),
        ("Provision", HOSTS[:900], HOSTS[300:600], False),
    ],
)
def test_a_batch_belongs_to_its_play(name, everyone, batch, same):
    assert play(HOSTS[:300]).continues(name, everyone, batch) is same


def test_the_slowest_hosts_are_named():
    task = TaskProgress("Work", 5, 0.0)
    for number, since in enumerate((3.0, 1.0, 2.0, 0.0, 95.0)):
        task.begin(f"h{number}", since)
    task.end("h3")
    assert task.slow(100.0) == [("h1", 99.0), ("h2", 98.0), ("h0", 97.0)]


def test_times_and_bars():
    assert [duration(seconds) for seconds in (0, 89, 90, 5399, 12000)] == [
        "0 s",
        "89 s",
        "2 min",
        "1 h 30 min",
        "3 h 20 min",
    ]
    assert [clock(seconds) for seconds in (0.9, 135, 3735)] == ["00:00", "02:15", "1:02:15"]
    assert [progress_bar(done, 10, 4) for done in (0, 5, 10)] == ["....", "##..", "####"] and progress_bar(
        0, 0, 2
    ) == "##"
