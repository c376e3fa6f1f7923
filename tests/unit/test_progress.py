# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a long build says about how far it is."""

from __future__ import annotations

import pytest
from progress import EVERY, Progress, minutes_left


@pytest.mark.parametrize(
    ("spent", "done", "total", "left"),
    [
        (0, 0, 15, 15),  # nothing is known yet
        (1, 0, 15, 30),  # as much as nothing was done in a minute
        (4, 4, 15, 11),
        (9, 4, 15, 22),  # half as fast
        (15, 15, 15, 0),
    ],
)
def test_minutes_left_are_those_of_the_speed_until_now(spent, done, total, left):
    assert minutes_left(spent, done, total) == left


class Clock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lines():
    return []


def test_a_line_says_the_step_its_share_and_the_minutes(clock, lines):
    progress = Progress({"kubelet 1": 6, "kubelet 2": 4}, lines.append, clock)
    progress.begin("kubelet 1")
    clock.seconds += 6 * 60
    progress.at(0.5)
    clock.seconds += 6 * 60
    progress.end()
    progress.begin("kubelet 2")
    assert lines == [
        "1 of 2, kubelet 1: 0% done; 0 min so far, about 10 min left",
        "1 of 2, kubelet 1: 50% done; 6 min so far, about 12 min left",
        "2 of 2, kubelet 2: 0% done; 12 min so far, about 7 min left",
    ]


def test_lines_come_some_time_apart(clock, lines):
    progress = Progress({"kubelet 1": 6}, lines.append, clock)
    progress.begin("kubelet 1")
    for _time in range(100):
        clock.seconds += EVERY / 10
        progress.at(0.1)
    assert len(lines) == 1 + 10


def test_a_step_that_could_not_be_done_is_no_work_that_was(clock, lines):
    progress = Progress({"kubelet 1": 6, "kubelet 2": 4}, lines.append, clock)
    progress.begin("kubelet 1")
    clock.seconds += 60
    progress.end(was_done=False)
    progress.begin("kubelet 2")
    assert lines[-1].endswith("1 min so far, about 8 min left")
