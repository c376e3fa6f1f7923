# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi explain: what a message means, on a host without a network and without anything of fleet.cdi."""

from __future__ import annotations

import io
import json
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import call
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.every import EVERY


@pytest.fixture
def explain(capsys):
    """Run `fleet-cdi explain`: (exit code, stdout, stderr)."""

    def run(*words):
        defaults = {"state_dir": "/none", "inventory": "/none", "spec_dirs": ["/none"], "prefix": "/none"}
        status = main(["explain", *words], "0.1.0-test", defaults)
        return (status, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("word", "ids"),
    [
        ("FC1001", ["FC1001"]),
        ("fc1001", ["FC1001"]),
        ("101", ["FC2101"]),
        ("occupied", ["FC3017"]),
        ("node-type", ["FC3015", "FC4008"]),  # a rule of doctor, and one of validate
        ("fleet-cdi: /etc/x: is a symlink to /y; expected a regular file. Remove the link.", ["FC1001"]),
    ],
)
def test_by_id_rule_code_and_message(explain, word, ids):
    status, out, err = explain(word)
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")] == ids


def test_it_tells_what_why_what_to_do_and_where_to_look(explain):
    _status, out, _err = explain("FC1001")
    assert [line.split()[0] for line in out.splitlines() if line[:3].strip()] == [
        "FC1001",
        "means",
        "why",
        "do",
        "more",
    ]


def test_the_next_step_of_a_rule_is_that_of_doctor(explain):
    _status, out, _err = explain("withheld")
    assert "withheld: repair the device; then `fleet-cdi grants release SUBJECT`" in out
    assert "grant-lost: " not in out


def test_without_a_word_it_lists_all(explain):
    status, out, _err = explain()
    assert status == 0
    assert out.splitlines() == [f"{one.id}  {one.title}" for one in EVERY]


def test_as_json(explain):
    _status, out, _err = explain("FC1001", "--json")
    [one] = json.loads(out)["explanations"]
    assert one["id"] == "FC1001" and one["means"] and one["why"] and one["do"] and one["more"] == "ls -ld PATH"


@pytest.mark.parametrize("word", ["FC9999", "no such rule", "", "\ud800"])
def test_an_unknown_word_is_refused(explain, word):
    status, out, err = explain("FC1001", word)
    assert (status, out) == (2, "")
    assert err.startswith("fleet-cdi: explain: found ") and err.endswith(" [FC1151]\n")


def test_the_answer_to_a_module_has_the_id(capsys, monkeypatch):
    request = {"options": {"root": "/none/at/all"}, "check": True}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    monkeypatch.setitem(call.CALLS, "device_info", "explanations.every")  # has no `answer`
    monkeypatch.setattr(
        "ansible_collections.fleet.cdi.plugins.module_utils.explanations.every.answer",
        lambda _options, _check: ({}, ["NVML does not answer (gone); what only NVML knows is left out", "all is well"]),
        raising=False,
    )
    call.main("device_info")
    answer = json.loads(capsys.readouterr().out)
    assert answer["warnings"] == [
        "NVML does not answer (gone); what only NVML knows is left out [FC1208]",
        "all is well",
    ]
