# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The annotations that Allocate answers with, read by the reference library as runtimes read them."""

from __future__ import annotations

import string
from random import Random

import judge
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.delivery import annotation
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.resource_names import why_no_resource

INSIDE = string.ascii_letters + string.digits + "-_."
NAMES = ["nvidia.com/gpu=GPU-3b1c", "fleet.cdi/tty=tty13", "v.com/class=0:1"]


def resource_names(rng, number):
    """Resource names of every length that a kubelet takes, with every character in them."""
    found = {"nvidia.com/gpu", "a.b/c", f"{'a' * 63}.{'b' * 63}.{'c' * 63}.com/{'d' * 63}"}
    while len(found) < number:
        labels = ["".join(rng.choices(string.ascii_lowercase + string.digits, k=rng.randint(1, 30))) for _label in "ab"]
        inner = "".join(rng.choices(INSIDE, k=rng.randint(0, 61)))
        name = f"{'.'.join(labels)}/x{inner}y"
        if not why_no_resource(name):
            found.add(name)
    return sorted(found)


@pytest.mark.parametrize("program", ["newest", "0.8"])
def test_a_runtime_takes_the_names_out_again(program):
    resources = resource_names(Random(7), 500)
    with judge.Judge(program) as library:
        answers = library.ask_all(judge.annotated(dict([annotation(name, NAMES)])) for name in resources)
    wrong = [(name, answer) for name, answer in zip(resources, answers) if answer.get("devices") != NAMES]
    assert not wrong, f"{len(wrong)} of {len(resources)}; the first: {wrong[0]}"


@pytest.mark.parametrize("program", ["newest", "0.8"])
def test_those_of_several_resources_go_together(program):
    annotations = dict(
        annotation(name, [f"v.com/class={number}"]) for number, name in enumerate(resource_names(Random(8), 50))
    )
    assert len(annotations) == 50  # of two with one key the kubelet would pass on one
    with judge.Judge(program) as library:
        (answer,) = library.ask_all([judge.annotated(annotations)])
    assert sorted(answer["devices"]) == sorted(f"v.com/class={number}" for number in range(50))


def test_the_judge_refuses_a_key_of_another_shape():
    with judge.Judge("newest") as library:
        answers = library.ask_all(
            judge.annotated({f"cdi.k8s.io/{name}": NAMES[0]})
            for name in ("-x_y", "x_y-", "x" * 63 + "_y", "x_y/z", "x")
        )
    assert [answer["accept"] for answer in answers] == [False] * 5
