# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of a module: run the code of the release on the host.

There are four ways, and each is for hosts where those before it can't be used:

1. Start the launcher of the installed release, with the task's options on its standard input. Nothing else is sent.
2. Start the code in the release's archive in the same way, on hosts without the release, where the action knows the
   interpreter.
3. Run the module (plugins/module_utils/on_host.py), which starts the launcher. Ansible sends 160 KiB for a module, and
   the host compiles them. This is for connections and become methods that can't pass standard input.
4. Run the module with the release's archive.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Optional

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.arg_spec import ModuleArgumentSpecValidator
from ansible.plugins.action import ActionBase

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.on_host import FROM_ARCHIVE
from ansible_collections.fleet.cdi.plugins.module_utils.release import build
from ansible_collections.fleet.cdi.plugins.module_utils.safe_text import one_line

MODULE_UTILS = os.path.dirname(os.path.dirname(os.path.abspath(build.__file__)))
OURS = ("release", "archive")
NOT_FOUND = 127  # exit status of POSIX's shells for a command that does not exist
# What Ansible would obey in a result, for this host or for all (a variable, an artifact of AWX). No module of ours
# returns them, so they can only come from a changed host. Texts that it only shows are those of TOLD.
OBEYED = ("add_host", "add_group", "ansible_facts", "ansible_stats")
TOLD = ("deprecations", "warnings")
CHECKS = ("mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by")


@lru_cache(maxsize=1)
def release() -> build.Release:
    """Return the release of this controller's collection; built once per process, in a few milliseconds."""
    return build.build(MODULE_UTILS)


class OnHost(ActionBase):
    """Run a module's code of this controller's release on the host."""

    _supports_async = False
    _requires_connection = True
    _module_arguments: dict[str, Any]

    def __init_subclass__(cls) -> None:
        """Load the module's arguments and the release. Ansible imports an action before it forks for the hosts."""
        cls._module_arguments = import_module(cls.__module__.replace(".action.", ".modules.")).MODULE
        release()

    def run(self, tmp: Optional[str] = None, task_vars: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        for option in OURS:
            if option in self._task.args:
                why = f"{option}: is filled in by {self._task.action} itself; remove it from the task"
                raise AnsibleActionFail(with_id(why))
        try:
            return self._done({**self._task.args, "release": release().id}, task_vars)
        except AnsibleConnectionFailure:  # Ansible calls such a host unreachable
            raise
        except AnsibleError as error:  # an exception would ignore failed_when, by which a playbook judges all hosts
            return {"failed": True, "msg": str(error)}

    def _done(self, arguments: dict[str, Any], task_vars: Optional[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of the module for these arguments, by the first way that can be used."""
        result = self._answered(arguments)
        if result is None:
            result = self._module(arguments, task_vars)
        if not result.pop("needs_archive", False):
            return result
        shell = self._connection._shell
        if shell.tmpdir is None:  # with pipelining no directory exists yet; Ansible removes it after the task
            self._make_tmp_path()
        archive = shell.join_path(shell.tmpdir, f"{release().id}.zip")
        self._transfer_data(archive, build.pack(release()))
        self._fixup_perms2((shell.tmpdir, archive))  # for become with an ordinary user
        arguments = {**arguments, "archive": archive}
        python = self._archive_python(arguments)
        result = self._answered(arguments, (python, "-I", "-c", FROM_ARCHIVE, archive)) if python else None
        if result is None or result.pop("needs_archive", False):
            return self._module(arguments, task_vars)
        return result

    def _archive_python(self, _arguments: Mapping[str, Any]) -> str:
        """Return the interpreter on the host for the code in the archive; "" if the module has to look for one."""
        return ""

    def _answered(self, arguments: dict[str, Any], program: Sequence[str] = ()) -> Optional[dict[str, Any]]:
        """Return the answer of the installed release, or of `program`; None if the module has to run."""
        options = self._options(arguments)
        if options is None or not self._passes_stdin():
            return None
        mark = os.urandom(16).hex()
        request = {"options": options, "check": self._task.check_mode, "verbosity": self._display.verbosity}
        launcher = f"{options['prefix']}/lib/{options['release']}/bin/fleet-cdi"
        call = type(self).__module__.rpartition(".")[2]
        words = [*(program or (launcher, "call")), call]
        command = f"{self._compute_environment_string()} {shlex.join(words)}".strip()
        said = self._low_level_execute_command(command, in_data=json.dumps({**request, "mark": mark}).encode())
        found = self._answer(said["stdout"], mark, words[0])
        # The shell found no such program or no such interpreter, so a module would not find it either.
        return {"needs_archive": True} if found is None and said.get("rc") == NOT_FOUND else found

    def _options(self, arguments: dict[str, Any]) -> Optional[dict[str, Any]]:
        """Return all options of the module, of their types; None if the module has to judge them.

        A home directory and a variable in a path are those of the host.
        """
        specs = self._module_arguments["argument_spec"]
        paths = [value for name, value in arguments.items() if "path" in _types(specs.get(name, {}))]
        if any(sign in text for text in _texts(paths) for sign in "~$"):
            return None
        checks = {name: self._module_arguments.get(name) for name in CHECKS}
        result = ModuleArgumentSpecValidator(self._module_arguments["argument_spec"], **checks).validate(arguments)
        return None if result.error_messages else dict(result.validated_parameters)

    def _passes_stdin(self) -> bool:
        """Return whether a command gets its standard input through the connection and the become method.

        Ansible gives a command with input no terminal. sudo asks for its password without one, and fails at once if its
        configuration needs one. Other methods may wait, so they get input only if the user has set `pipelining`.
        """
        become = self._connection.become
        without_terminal = become is None or become.name == "sudo"
        return self._connection.has_pipelining and (without_terminal or self._is_pipelining_enabled("new"))

    def _answer(self, text: str, mark: str, launcher: str) -> Optional[dict[str, Any]]:
        """Return the result in the output of `fleet-cdi call`; None if it did not run to its end.

        Login scripts and become methods may print around it.
        """
        _before, begun, rest = text.partition(mark)
        document, ended, _after = rest.partition(mark)
        if not begun:
            return None
        if not ended:
            return {
                "failed": True,  # an exception would ignore failed_when
                "msg": with_id(f"{launcher}: its answer ends after {len(document)} characters. Run the task again."),
            }
        try:
            answer = json.loads(document)
            told = {"failed": True, "msg": answer["error"]} if "error" in answer else answer["result"]
            result = {key: value for key, value in _harmless(told).items() if key not in TOLD}
            warnings = [one_line(one) for one in answer["warnings"]]
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            why = f"{launcher}: its answer is damaged ({type(error).__name__}). Run the task again."
            return {"failed": True, "msg": with_id(why)}
        if not self._task.diff:
            result.pop("diff", None)
        if warnings:
            result["warnings"] = warnings
        return {"changed": False, **result}

    def _module(self, arguments: dict[str, Any], task_vars: Optional[dict[str, Any]]) -> dict[str, Any]:
        given = dict(arguments)  # Ansible adds arguments of its own
        result = _harmless(self._execute_module(self._task.action, module_args=given, task_vars=task_vars))
        if self._discovered_interpreter_key:  # the controller found it, and need not look again
            result["ansible_facts"] = {self._discovered_interpreter_key: self._discovered_interpreter}
        if result.get("failed") and "module_stdout" in result and not result.get("_ansible_parsed"):
            result["msg"] = _no_answer(result, self._used_interpreter)
        return result


def _harmless(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a host without what Ansible would obey. `_ansible_parsed` is Ansible's own."""
    return {
        key: value
        for key, value in result.items()
        if key not in OBEYED and (key == "_ansible_parsed" or not key.startswith("_ansible_"))
    }


def _no_answer(result: Mapping[str, Any], python: Optional[str]) -> str:
    """Return the message for a module that ended without a result. Ansible says only that it can't read the result."""
    lines = [line.strip() for name in ("stdout", "stderr") for line in str(result.get(f"module_{name}")).splitlines()]
    said = next((line for line in reversed(lines) if line), "nothing")
    program = (python or "the Python of the host").removeprefix("#!")
    return with_id(
        f"{program}: a module ended without an answer (exit status {result.get('rc')}): {said}. Repair this Python, or "
        "name another one with ansible_python_interpreter."
    )


def _types(spec: dict[str, Any]) -> tuple[Any, Any]:
    """Return the type of an option and that of its items."""
    return spec.get("type"), spec.get("elements")


def _texts(value: Any) -> list[str]:
    """Return all texts in a value, at any depth, without the keys of mappings."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, (list, tuple)):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []
