# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a parser does for a text that is four times as long: calls are counted, as time can't be tested.

tests/bench/parsers.py shows the processor's time.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest
from parser_texts import CASES

from ansible_collections.fleet.cdi.plugins.module_utils import manifest
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import in_force
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory, out_of_service
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import messages
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit import json_text, toml_text
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec


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
