# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work for a text that is four times as long, and for four times as many kinds or device nodes: steps are counted.

tests/bench/parsers.py and tests/bench/kinds.py show the processor's time.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest
from layouts import layout_beside
from parser_texts import CASES

from ansible_collections.fleet.cdi.plugins.module_utils import manifest
from ansible_collections.fleet.cdi.plugins.module_utils.converge import undo
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import cdi_host
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import specs as host_specs
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host.settings import read_settings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import in_force
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory, out_of_service
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import messages
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit import json_text, toml_text
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec
from ansible_collections.fleet.cdi.plugins.module_utils.spec.same_nodes import StrangeNodes
from ansible_collections.fleet.cdi.plugins.module_utils.system.device_nodes import Numbers


def calls(work, content: bytes) -> int:
    """How many functions, ours or built in, one run calls."""
    toml_text.parse.cache_clear()
    counted = 0

    def count(_frame, event, _argument):
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work(content)
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_work_grows_with_the_text(case):
    work, text = case
    assert calls(work, text(2000)) < 4.5 * calls(work, text(500))


def lines(work) -> int:
    """How many lines one run goes through; one of a comprehension counts for each of its items."""
    counted = 0

    def count(_frame, event, _argument):
        nonlocal counted
        counted += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted


def look_at(number: int) -> None:
    """Look at so many device nodes of specs, each of which has two paths."""
    edits = [{"deviceNodes": [{"path": f"/a/{n}"}, {"path": f"/b/{n}"}]} for n in range(number)]
    same = StrangeNodes(edits, ()).look(lambda path: Numbers("c", 1, int(path[3:])))
    assert len(same.also) == 2 * number


def test_work_grows_with_the_number_of_nodes():
    assert lines(lambda: look_at(800)) < 4.5 * lines(lambda: look_at(200))


def entries(number: int) -> dict:
    """Return settings of so many kinds."""
    match = {"subsystem": "mem", "node": ["/dev/null"]}
    usual = {"profile": "rule", "match": match, "group_by": "none", "name_by": ["sysname"]}
    return {f"entry{one}": {**usual, "kind": f"test.fleet.cdi/kind{one}"} for one in range(number)}


@pytest.fixture
def life_of_kinds(tmp_path, monkeypatch):
    """life_of_kinds(number) -> the calls of each run on a host of so many kinds."""
    monkeypatch.setattr(containers, "finder", lambda: lambda _names: containers.RunningContainers(()))

    def life(number: int) -> dict[str, int]:
        root = tmp_path / str(number)
        places = {"spec_dir": f"{root}/cdi", "state_dir": f"{root}/state", "device_list": f"{root}/inventory.json"}
        run = cdi_host.new_run(
            read_settings({**places, "prefix": f"{root}/opt", "devices": entries(number)}), "", False
        )
        none = run._replace(settings={**run.settings, "devices": {}})
        layout = layout_beside(f"{root}/state")
        changed = []

        def specs(of):
            return lambda _content: changed.append(host_specs.converge(of).changed)

        done = {name: calls(specs(of), b"") for name, of in (("first", run), ("again", run), ("none", none))}
        calls(specs(run), b"")
        done["undo"] = calls(lambda _content: changed.append(bool(undo.undo(layout).removed)), b"")
        assert changed == [True, False, True, True, True]
        return done

    life(1)  # imports all that is imported at its first use
    return life


def test_work_grows_with_the_number_of_kinds(life_of_kinds):
    few, many = life_of_kinds(20), life_of_kinds(80)
    assert {name: number for name, number in many.items() if number >= 4 * few[name]} == {}


def of_a_file(name: str, work):
    """`work` on a directory with a file of this name that has the text."""

    def run(content: bytes, directory) -> None:
        (directory / name).write_bytes(content)
        (directory / "a.lock").touch()
        work(directory)

    return run


# Everything that reads JSON: a file of ours that another one may have damaged, and what others write.
READERS = {
    "daemon.json": lambda content, _directory: json_text.parse(content, "x"),
    "spec": lambda content, _directory: codec.decode(content, "x.json"),
    "configuration of an executable": lambda content, _directory: messages.load(content),
    "manifest": of_a_file("manifest.json", lambda directory: manifest.read_manifest(str(directory))),
    "inventory": of_a_file("x", lambda directory: inventory.read(str(directory / "x"), "boot")),
    "devices out of service": of_a_file("device-state.json", lambda directory: out_of_service.in_force(str(directory))),
    "configuration of the device plugin": of_a_file("x", lambda directory: in_force.load(str(directory / "x"))),
    "status of the device plugin": of_a_file("a.json", lambda directory: instance_status.instances_in(str(directory))),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 100000,
        "[" * 100000,
        '{"version": ' + "9" * 5000 + "}",
        '{"version": 1e999}',
        '{"a": "\\ud800"}',
        "null",
    ],
    ids=["objects", "arrays", "digits", "exponent", "surrogate", "null"],
)
def test_no_text_of_json_ends_in_a_traceback(reader, text, tmp_path):
    with suppress(CdiError):
        reader(text.encode(), tmp_path)
