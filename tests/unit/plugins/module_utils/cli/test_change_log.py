# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules and verbs leave in the log of a host, with /dev/null of this machine as the device."""

from __future__ import annotations

import io
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import change_log, system_log
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cli.memory import only_where_it_is

arg_spec = pytest.importorskip("ansible.module_utils.common.arg_spec")
pytestmark = only_where_it_is

ENTRY = {"profile": "rule", "match": {"subsystem": "mem", "node": ["/dev/null"]}, "group_by": "none"}


class LoggedHost:
    """A host in a directory, and the lines that its log got since the last look."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.top, self.monkeypatch, self.capsys = top, monkeypatch, capsys
        self.spec = top / "cdi/v.com-mem.json"
        self._lines: list[str] = []
        monkeypatch.setattr(change_log, "write_log", self._lines.extend)

    def lines(self) -> list[str]:
        found, self._lines[:] = list(self._lines), []
        return found

    def call(self, module: str, check: bool = False, **options: Any) -> dict[str, Any]:
        """Run the host's half of a module."""
        paths = {"state_dir": f"{self.top}/state", "prefix": f"{self.top}/opt", "release": "r", "archive": "a"}
        spec = import_module(f"ansible_collections.fleet.cdi.plugins.modules.{module}").MODULE["argument_spec"]
        found = arg_spec.ArgumentSpecValidator(spec).validate({**paths, **options})
        assert not found.error_messages
        request = {"options": found.validated_parameters, "check": check}
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
        assert main(["call", module], "r", {}) == 0
        answer: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return answer

    def verb(self, *words: str) -> str:
        """Run a verb of fleet-cdi; return what it printed."""
        paths = {"state_dir": f"{self.top}/state", "inventory": f"{self.top}/inventory.json", "prefix": ""}
        main(list(words), "r", {**paths, "spec_dirs": [f"{self.top}/cdi"]})
        return self.capsys.readouterr().out

    def write_spec(self, check: bool = False, **more: Any) -> dict[str, Any]:
        paths = {"spec_dir": f"{self.top}/cdi", "device_list": f"{self.top}/inventory.json"}
        entry = {**ENTRY, "kind": "v.com/mem", **more}
        return self.call("spec", check, devices={"one": entry}, **paths)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> LoggedHost:
    return LoggedHost(tmp_path, monkeypatch, capsys)


def test_a_module_leaves_a_line_for_each_change(host: LoggedHost) -> None:
    host.write_spec(check=True)
    assert host.lines() == []
    answer = host.write_spec()
    assert host.lines() == [
        f"spec: v.com/mem: + 0 ({host.spec})",
        f"spec: v.com/mem: + 0 ({host.top}/inventory.json)",
    ], answer
    host.write_spec()
    assert host.lines() == []


def test_a_module_that_fails_leaves_its_reason(host: LoggedHost) -> None:
    answer = host.write_spec(match={"node": "/dev/absent"}, required=True)
    assert host.lines() == [f"spec: failed: {answer['error']}"]
    host.call("spec_info", spec_dirs=["\0"])
    assert host.lines() == []  # it changes nothing, whatever it says


def test_verbs_leave_what_they_print(host: LoggedHost) -> None:
    host.write_spec()
    host.lines()
    for words in (["device", "disable", "v.com/mem=0", "--reason", "fan"], ["device", "enable", "v.com/mem=0"]):
        host.verb(*words, "--check")
        assert host.lines() == []
        printed = host.verb(*words).splitlines()
        assert host.lines() == [f"device: {printed[0]}"]
    assert host.verb("grants", "give", "v.com/mem", "claims") == "v.com/mem is for claims\n"
    assert host.lines() == ["grants: v.com/mem is for claims"]
    os.remove(host.spec)
    host.verb("refresh")
    assert host.lines() == [f"refresh: changed: {host.spec}"]
    host.verb("undo", "--check")
    assert host.lines() == []
    host.verb("undo")
    assert f"undo: removed: {host.spec}" in host.lines()


def test_a_unit_does_not_say_it_twice(host: LoggedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    number = os.open(host.top, os.O_RDONLY)
    monkeypatch.setattr(change_log, "STDOUT", number)
    stream = os.fstat(number)
    monkeypatch.setenv("JOURNAL_STREAM", f"{stream.st_dev}:{stream.st_ino}")
    change_log.log_verb("refresh", ["changed: /a"])
    assert host.lines() == []
    monkeypatch.setenv("JOURNAL_STREAM", "1:1")
    change_log.log_verb("refresh", ["changed: /a"])
    assert host.lines() == ["refresh: changed: /a"]
    os.close(number)


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ({"after_header": "/a", "before": "", "after": "text"}, "made: /a"),
        ({"after_header": "/a", "before": "text", "after": ""}, "removed: /a"),
        ({"after_header": "/a", "before": "one", "after": "password=two"}, "changed: /a"),
        ({"before": {"release": "1"}, "after": {"release": "2", "link": "x"}}, "changed: release: release and link"),
        (
            {"after_header": "systemd", "before": {"enabled": ()}, "after": {"enabled": ("a",)}},
            "changed: systemd: enabled",
        ),
    ],
)
def test_a_line_names_what_changed_and_no_value(part: dict[str, Any], line: str) -> None:
    assert list(change_log.change_lines(part)) == list(change_log.change_lines([part])) == [line]


def test_what_the_driver_made_is_told_in_place_of_a_change_without_a_diff(host: LoggedHost) -> None:
    change_log.log_result("cdi_host", {"changed": True, "diff": [], "made": ["/dev/nvidia0", "/dev/nvidiactl"]})
    assert host.lines() == ["cdi_host: made: /dev/nvidia0", "cdi_host: made: /dev/nvidiactl"]
    diff = {"after_header": "/a", "before": "", "after": "text"}
    change_log.log_result("cdi_host", {"changed": True, "diff": [diff], "made": ["/dev/nvidia0"]})
    assert host.lines() == ["cdi_host: made: /dev/nvidia0", "cdi_host: made: /a"]


def test_the_change_of_a_device_by_a_module_is_a_sentence(host: LoggedHost) -> None:
    state = {"id": "pci:1", "reason": "fan", "until": "", "since": "2026-01-01T00:00:00Z"}
    change_log.log_result("device_state", {"changed": True, "diff": [], **state})
    assert host.lines() == ["device_state: pci:1 is out of service until it is enabled: fan"]


def test_a_change_without_a_diff_and_a_problem_are_told(host: LoggedHost) -> None:
    change_log.log_result("cdi_host", {"changed": True, "diff": [], "failed": True, "msg": "specs: no device"})
    assert host.lines() == ["cdi_host: changed", "cdi_host: failed: specs: no device"]


def test_what_a_log_gets_is_found_by_the_support_archive() -> None:
    from ansible_collections.fleet.cdi.plugins.module_utils.bundle import members

    command = members.COMMANDS["syslog.txt"]
    assert command[command.index("--identifier") + 1] == system_log.NAME
