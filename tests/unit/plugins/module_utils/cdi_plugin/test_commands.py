# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Odd and bad calls: the table of commands.yml."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import commands
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus

CASES = yaml.safe_load(Path(__file__).with_name("commands.yml").read_text(encoding="utf-8"))
GOOD = {"CDI_VERSION": "0.0.1", "CDI_COMMAND": "ADD", "CDI_REQUEST": "gpu:1", "CDI_REQUEST_ID": "r1"}
CONFIG = {"cdiVersion": "0.0.1", "name": "GPUs", "type": "gpu", "plugin": "drm", "args": {}}
# What a table can't well spell out. LONG is as long as one variable of an environment can be on Linux.
# BYTE is one that is no UTF-8, as os.environ has it.
SPECIAL = {"BYTE": "\udcff", "LONG": "x" * 130_000, "HUGE": " " * (1 << 20) + "{}", "DEEP": "[" * 100_000}


def merged(good, differing):
    return {name: value for name, value in {**good, **differing}.items() if value is not None}


@pytest.fixture(scope="module")
def machine(hosts):
    """A host with two GPUs and their pool; each case has a store of its own."""
    machine = hosts(gpus((4096, 8192)))
    machine.configure(CONFIG)
    return machine


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(machine, tmp_path, case):
    place = machine.host._replace(state_dir=str(tmp_path / "state"))
    if not case.get("refresh", True):
        place = place._replace(inventory=str(tmp_path / "inventory.json"))
    config = merged(CONFIG, {**case.get("config", {}), **({"args": case["args"]} if "args" in case else {})})
    variables = merged(GOOD, case.get("env", {}))
    for word, meaning in SPECIAL.items():
        variables = {name: value.replace(word, meaning) for name, value in variables.items()}
    text = SPECIAL.get(case.get("stdin"), case.get("stdin", json.dumps(config))).replace("BYTE", SPECIAL["BYTE"])
    stdin = text.encode("utf-8", "surrogateescape")
    status, out, _undo = commands.answer(case.get("plugin", "drm"), variables, place, lambda: stdin)
    reply = json.loads(out)
    assert out.isascii()
    if "code" in case:
        assert (reply.get("code"), status) == (case["code"], case.get("status", 1)), reply
        assert (reply["error"], reply["message"]) == (reply["code"], reply["msg"])
        assert reply["message"] == errors.MESSAGES[case["code"]]
        assert re.search(case.get("details", ""), reply.get("details", "")), reply
        assert len(out) < 1000
        assert not (tmp_path / "state/ledger.db").exists() or case["code"] in (5, 100)
    else:
        assert status == 0, reply
        assert {name: reply.get(name) for name in case["reply"]} == case["reply"], reply
        assert "devices" in reply or variables["CDI_COMMAND"].lower() != "add"
    assert reply["cdiVersion"] == case.get("version", reply["cdiVersion"])


def test_every_code_of_the_proposal_has_a_case():
    assert {1, 2, 3, 4, 5} <= {case.get("code") for case in CASES}


def test_names_of_cases_are_unique():
    names = [case["name"] for case in CASES]
    assert len(names) == len(set(names))


def test_the_environment_of_the_process_is_taken_as_bytes(hosts, python):
    """What no encoding explains reaches the executable as it is, and its reply is JSON all the same."""
    machine = hosts(gpus(count=1))
    machine.install(python)
    variables = {"CDI_VERSION": b"\xff\xfe", "CDI_COMMAND": b"ADD"}
    status, reply, said = machine.run("drm", {os.fsencode(k): v for k, v in variables.items()}, CONFIG)
    assert (status, reply["code"], said) == (1, 1, "")
    assert reply["details"] == r"Unsupported version: \udcff\udcfe"
