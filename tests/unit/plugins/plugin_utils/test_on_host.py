# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action starts the installed release directly where that is safe, and runs the module everywhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from ansible.errors import AnsibleActionFail
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from ansible_collections.fleet.cdi.plugins.action import cdi_host
from ansible_collections.fleet.cdi.plugins.action.spec_info import ActionModule
from ansible_collections.fleet.cdi.plugins.plugin_utils.on_host import release

Prints = Callable[[str, str], str]  # mark and answer -> what the controller reads

MODULE = {"changed": False, "by": "module"}
LAUNCHER = f"/opt/cdi/lib/{release().id}/bin/fleet-cdi"


class Host:
    """A host behind a connection: what it was sent, and what it prints around an answer."""

    def __init__(
        self, prints: Prints, become: Optional[str] = None, passes: bool = True, pipelining: bool = False
    ) -> None:
        self.prints = prints
        self.command = ""
        self.status = 0
        self.options: dict[str, Any] = {}
        self.answer: dict[str, Any] = MODULE
        self.smuggled: dict[str, Any] = {}
        self.modules: list[dict[str, Any]] = []
        self.connection = connection_loader.get("local", PlayContext(), None)
        self.connection.set_options(direct={"pipelining": pipelining})
        self.connection.has_pipelining = passes
        self.connection.become = become and SimpleNamespace(name=become, pipelining=become != "su")

    def run(self, sent: Optional[list[str]] = None, action: Any = ActionModule, **arguments: Any) -> dict[str, Any]:
        """Return the result of fleet.cdi.spec_info, or of `action`; note in `sent` which files went to the host."""
        task = SimpleNamespace(
            args=arguments, action="fleet.cdi.spec_info", async_val=0, check_mode=True, diff=False, environment=None
        )
        action = action(task, self.connection, PlayContext(), None, None, None)
        action._low_level_execute_command = self._execute
        action._execute_module = self._module
        action._transfer_data = lambda path, _data: (sent if sent is not None else []).append(path)
        action._fixup_perms2 = lambda _paths: None
        result: dict[str, Any] = action.run(task_vars={})
        return result

    def _execute(self, command: str, in_data: bytes) -> dict[str, Any]:
        request = json.loads(in_data)
        self.command, self.options = command, request["options"]
        result = {"changed": True, "by": "launcher", "diff": [], **self.smuggled}
        stdout = self.prints(request["mark"], json.dumps({"result": result, "warnings": []}))
        return {"stdout": stdout, "rc": self.status}

    def _module(self, _name: str, module_args: dict[str, Any], **_others: Any) -> dict[str, Any]:
        self.modules.append(module_args)
        return dict(self.answer)


def plainly(mark: str, answer: str) -> str:
    """As an installed release prints it."""
    return f"{mark}{answer}{mark}\n"


def test_the_release_gets_the_options_of_the_module_with_their_types() -> None:
    host = Host(plainly)
    assert host.run(spec_dirs="/a,/b") == {"changed": True, "by": "launcher"}
    assert host.command == f"{LAUNCHER} call spec_info"
    assert host.options["spec_dirs"] == ["/a", "/b"]
    assert host.options["state_dir"] == "/var/lib/cdi"
    assert not host.modules


@pytest.mark.parametrize(
    "smuggled",
    [
        {"_ansible_no_log": True},
        {"add_host": {"host_name": "evil"}},
        {"add_group": "evil"},
        {"ansible_facts": {"discovered_interpreter_python": "/tmp/evil"}},
        {"ansible_stats": {"data": ["evil"]}},  # ends the run for all hosts
        {"warnings": ["evil"], "deprecations": [{"msg": "evil"}]},
    ],
)
def test_a_host_tells_the_controller_nothing_that_ansible_obeys(smuggled: dict[str, Any]) -> None:
    host = Host(plainly)
    host.smuggled = smuggled
    assert host.run() == {"changed": True, "by": "launcher"}


@pytest.mark.parametrize(
    "smuggled", [{"ansible_facts": {"fleet_cdi_upgrade_node": "b"}}, {"ansible_stats": {"data": []}}]
)
def test_nor_does_a_module_on_a_host_that_hides_its_release(smuggled: dict[str, Any]) -> None:
    host = Host(lambda _mark, _answer: "")
    host.answer = {**MODULE, "warnings": ["kept"], **smuggled}
    assert host.run() == {**MODULE, "warnings": ["kept"]}


def test_the_interpreter_that_the_controller_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"_key": "discovered_interpreter_python", "": "/usr/bin/python3"}
    for name, value in found.items():
        fixed = property(lambda _self, value=value: value, lambda _self, _new: None)
        monkeypatch.setattr(ActionModule, f"_discovered_interpreter{name}", fixed, raising=False)
    host = Host(lambda _mark, _answer: "")
    host.answer = {**MODULE, "ansible_facts": {"discovered_interpreter_python": "/tmp/evil", "more": "evil"}}
    assert host.run()["ansible_facts"] == {"discovered_interpreter_python": "/usr/bin/python3"}


@pytest.mark.parametrize(
    "answer",
    [
        "no JSON",
        "[" * 100_000,
        "9" * 5000,
        "[]",
        "{}",
        '"error"',
        '{"result": [], "warnings": []}',
        '{"result": {}}',
        '{"result": {}, "warnings": [1]}',
        '{"result": {}, "warnings": 1}',
    ],
)
def test_an_answer_of_another_form_is_an_error(answer: str) -> None:
    """An exception would ignore failed_when, by which a playbook judges all hosts."""
    host = Host(lambda mark, _answer: plainly(mark, answer))
    result = host.run()
    assert result["failed"] and "its answer is damaged" in result["msg"]
    assert not host.modules


def test_a_warning_of_a_host_drives_no_terminal() -> None:
    said = json.dumps({"result": {}, "warnings": ["\x1b]0;title\x07"]})
    assert Host(lambda mark, _answer: plainly(mark, said)).run()["warnings"] == ["\\x1b]0;title\\x07"]


@pytest.mark.parametrize(
    "prints",
    [
        lambda mark, answer: f"Welcome!\n{{}}\n{mark}{answer}{mark}\nBye\n",  # a login script
        lambda mark, answer: f"[sudo] password: {mark}{answer}{mark}",
        lambda mark, answer: f"\r\n{mark}{answer}{mark}\r\n",  # a terminal
    ],
)
def test_text_around_an_answer_does_no_harm(prints: Prints) -> None:
    assert Host(prints).run()["by"] == "launcher"


@pytest.mark.parametrize("text", ["", "sh: 1: fleet-cdi: not found\n", "{}", '{"result": {"changed": true}}'])
def test_the_module_runs_where_the_release_does_not_answer(text: str) -> None:
    host = Host(lambda _mark, _answer: text)
    assert host.run() == MODULE
    assert host.command
    assert host.modules[0]["release"] == release().id


def test_a_host_without_the_release_gets_its_archive_with_the_first_module() -> None:
    host = Host(lambda _mark, _answer: "sh: 1: fleet-cdi: not found")
    host.status = 127
    host.connection._shell.tmpdir = "/tmp/x"
    sent: list[str] = []
    assert host.run(sent=sent) == MODULE
    assert sent == [f"/tmp/x/{release().id}.zip"]
    assert [one["archive"] for one in host.modules] == sent


@pytest.mark.parametrize(
    ("settings", "starts", "modules"),
    [
        ({}, "/usr/bin/python3 -I -c ", 0),
        ({"python": "/opt/my python"}, "'/opt/my python' -I -c ", 0),
        ({"python": "python3"}, "", 1),  # a module finds what this means
    ],
)
def test_cdi_host_starts_the_archive_with_the_interpreter_of_the_settings(
    settings: dict[str, Any], starts: str, modules: int
) -> None:
    host = Host(lambda mark, answer: plainly(mark, answer) if " -c " in host.command else "sh: 1: fleet-cdi: not found")
    host.status = 127
    host.connection._shell.tmpdir = "/tmp/x"
    result = host.run(action=cdi_host.ActionModule, settings=settings)
    archive = f"/tmp/x/{release().id}.zip"
    assert result == ({"changed": True, "by": "launcher"} if starts else MODULE)
    assert not starts or (host.command.startswith(starts) and host.command.endswith(f" {archive} cdi_host"))
    assert [one["archive"] for one in host.modules] == [archive] * modules


def test_an_answer_that_was_cut_off_is_an_error() -> None:
    """The release may have changed the host, so the module would say that nothing changed."""
    host = Host(lambda mark, answer: f"{mark}{answer[:7]}")
    result = host.run()
    assert result["failed"] and "its answer ends after 7 characters" in result["msg"]
    assert not host.modules


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            {"module_stdout": "", "module_stderr": "Traceback\nImportError: no module named site\n"},
            "ImportError: no module",
        ),
        ({"module_stdout": "/bin/sh: python3: not found\r\n", "module_stderr": ""}, "/bin/sh: python3: not found"),
        ({"module_stdout": "", "module_stderr": ""}, "nothing"),
    ],
)
def test_a_python_that_runs_no_module_is_named(said: dict[str, str], expected: str) -> None:
    """Ansible says only that it can't read the result as JSON."""
    host = Host(lambda _mark, _answer: "", passes=False)
    host.answer = {"failed": True, "_ansible_parsed": False, "rc": 1, "msg": "Module result ...", **said}
    assert f"a module ended without an answer (exit status 1): {expected}" in host.run()["msg"]


@pytest.mark.parametrize(
    ("become", "pipelining", "passes", "by"),
    [
        (None, False, True, "launcher"),
        ("sudo", False, True, "launcher"),
        ("doas", False, True, "module"),  # it may wait for a password on a terminal
        ("doas", True, True, "launcher"),
        ("su", True, True, "module"),
        (None, False, False, "module"),  # a connection that passes no standard input
        (None, True, False, "module"),
    ],
)
def test_how_a_user_comes_in_decides(become: Optional[str], pipelining: bool, passes: bool, by: str) -> None:
    host = Host(plainly, become, passes, pipelining)
    assert host.run()["by"] == by
    assert bool(host.command) == (by == "launcher")


@pytest.mark.parametrize(
    "arguments",
    [
        {"spec_dirs": ["~/cdi"]},  # the home directory on the host
        {"state_dir": "$HOME/cdi"},
        {"unknown": 1},
        {"spec_dirs": {"not": "a list"}},
        {"state_dir": ["/a"], "spec_dirs": 5.5, "device_list": {}, "prefix": "~root/cdi"},
    ],
)
def test_the_module_judges_what_only_it_can(arguments: dict[str, Any]) -> None:
    host = Host(plainly)
    assert host.run(**arguments) == MODULE
    assert not host.command


@pytest.mark.parametrize("option", ["release", "archive"])
def test_a_task_may_not_set_what_the_action_fills_in(option: str) -> None:
    with pytest.raises(AnsibleActionFail, match=f"{option}: is filled in by fleet.cdi.spec_info itself"):
        Host(plainly).run(**{option: "x"})


def test_errors_and_warnings_of_the_release_are_those_of_the_task() -> None:
    answer = json.dumps({"error": "/etc/cdi/a.json: found no JSON", "warnings": ["old"]})
    result = Host(lambda mark, _answer: plainly(mark, answer)).run()
    assert result == {"changed": False, "failed": True, "msg": "/etc/cdi/a.json: found no JSON", "warnings": ["old"]}


def test_settings_as_text_are_what_they_say() -> None:
    """`ansible -m fleet.cdi.cdi_host -a "settings={...}"` gives a text."""
    host = Host(plainly)
    host.run(action=cdi_host.ActionModule, settings='{"prefix": "/srv/cdi", "devices": {}}')
    assert host.options["settings"] == {"prefix": "/srv/cdi", "devices": {}} and host.options["prefix"] == "/srv/cdi"
    host.run(action=cdi_host.ActionModule, settings="no mapping")
    assert host.modules[-1]["settings"] == "no mapping", "the module says why"


def test_what_a_task_can_not_do_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception would ignore failed_when, and a playbook that judges all hosts would know nothing of this one."""

    def refuse(*_arguments: Any) -> dict[str, Any]:
        raise AnsibleActionFail("no")

    monkeypatch.setattr(cdi_host.ActionModule, "_settings", refuse)
    assert Host(plainly).run(action=cdi_host.ActionModule) == {"failed": True, "msg": "no"}


def test_settings_that_cant_be_merged_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """ansible-core since 2.19 adds the text of a cause to that of an error, after its id."""
    monkeypatch.setattr(cdi_host.ActionModule, "_templated", lambda *_arguments: {"cdi_host_devices": []})
    said = Host(plainly).run(action=cdi_host.ActionModule)["msg"]
    assert said.startswith("cdi_host_devices: found [] (a list)") and said.endswith("[FC1101]")
