# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every example of the CDI proposal of 2017, by the real executable on a host that has exactly its devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus, ttys

TABLE = yaml.safe_load(Path(__file__).with_name("examples.yml").read_text(encoding="utf-8"))


def tree_of(devices):
    if "ttys" in devices:
        return ttys(devices["ttys"])
    found = devices["gpus"]
    return gpus(count=found) if isinstance(found, int) else gpus(found)


@pytest.mark.parametrize("example", TABLE["examples"], ids=lambda example: example["name"])
def test_example(hosts, python, example):
    machine = hosts(tree_of(example["devices"]))
    machine.install(python)
    config = machine.configure(TABLE["configs"][example["config"]])
    if "before" in example:
        assert machine.run(config["plugin"], example["before"], config)[0] == 0
    status, reply, said = machine.run(config["plugin"], example["env"], config)
    assert (status, said) == (example["status"], "")
    if example["output"] is None:
        assert reply is None
        return
    assert {name: value for name, value in reply.items() if name in example["output"]} == example["output"]
    if "code" in reply:
        assert (reply["error"], reply["message"]) == (reply["code"], reply["msg"])
        assert ("details" in reply) == ("details" in example["output"])
    else:
        assert set(reply) - set(example["output"]) <= {"numa_locality", "proved"}
