# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs module fleet.cdi.cdi_host with the release's code, and installs the packages that it asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Optional

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.common.validation import check_type_dict

from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import cdi_host
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import settings as host_settings
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings
from ansible_collections.fleet.cdi.plugins.plugin_utils.old_name import warn_of_old_name
from ansible_collections.fleet.cdi.plugins.plugin_utils.on_host import OnHost

settings.old_names(())  # reads settings.yml once, before Ansible forks for the hosts

REQUIRED = (
    "{packages}: could not be installed: {why}. The device plugin does not run without. Install it by hand, set "
    "cdi_host_install_packages to false and run the role again."
)
OPTIONAL = (
    "{packages}: could not be installed: {why}. Discovery works without, but it lacks the links, serial numbers and "
    "properties that only udev knows. Install it by hand, or set cdi_host_install_packages to false to continue "
    "without it."
)


class ActionModule(OnHost):
    """See OnHost. A task without `settings` gets those of the host's variables."""

    def _done(self, arguments: dict[str, Any], task_vars: Optional[dict[str, Any]]) -> dict[str, Any]:
        variables = task_vars or {}
        given = arguments.get("settings")
        if given is None:
            given = self._settings(variables, arguments.get("state") == "absent")
        try:
            given = check_type_dict(given)  # `-a "settings={...}"` on the command line is a text
        except TypeError:
            return super()._done(arguments, task_vars)  # the module says why
        arguments = {"parts": _parts(variables), **arguments, "settings": given}
        if "prefix" in given:
            arguments.setdefault("prefix", given["prefix"])
        result = super()._done(arguments, task_vars)
        failed: list[str] = []
        if "needs_packages" in result:
            changed, failed = self._packages(result.pop("needs_packages"), variables)
            result["changed"] = result["changed"] or changed
        if result.pop("again", False):
            # What could not be installed is not asked for again.
            more = super()._done({**arguments, "settings": {**given, "install_packages": False}}, task_vars)
            result = merged(result, more)
        if failed:
            result["warnings"] = [*result.get("warnings", []), *failed]
        return result

    def _archive_python(self, arguments: Mapping[str, Any]) -> str:
        """Return the interpreter that the release gets."""
        python = arguments["settings"].get("python", "/usr/bin/python3")
        return python if isinstance(python, str) and python.startswith("/") else ""

    def _settings(self, variables: Mapping[str, Any], absent: bool) -> dict[str, Any]:
        """Return the settings of the host by its variables, with `absent` those of a removal. Raises AnsibleActionFail.

        No other variable is templated: what a run does not read can't stop it.
        """
        role = self._templated(variables, "cdi_host_", host_settings.OF_REMOVAL if absent else ())
        if settings.wants_device_plugin(role):
            role.update(self._templated(variables, "cdi_device_plugin_"))
        for old, new in settings.old_names(role).items():
            warn_of_old_name(old, new)
        try:
            return settings.host_settings(role)
        except CdiError as error:
            raise AnsibleActionFail(with_id(str(error))) from None

    def _templated(self, variables: Mapping[str, Any], prefix: str, only: Collection[str] = ()) -> dict[str, Any]:
        """Return the values of the variables with this prefix; with `only`, of those alone, given without it."""
        names = [name for name in variables if name.startswith(prefix)]
        return {
            name: self._templar.template(variables[name]) for name in names if not only or name[len(prefix) :] in only
        }

    def _packages(self, needed: Mapping[str, list[str]], variables: Mapping[str, Any]) -> tuple[bool, list[str]]:
        """Install packages by the module of the distribution; return (something changed, the failures that may be).

        Raises AnsibleActionFail if a package is missing without which nothing works.
        """
        any_changed, failures = False, []
        for names, text in ((needed["required"], REQUIRED), (needed["optional"], OPTIONAL)):
            changed, why = self._install(names, variables) if names else (False, "")
            if why and text is REQUIRED:
                raise AnsibleActionFail(with_id(text.format(packages=", ".join(names), why=why)))
            any_changed = any_changed or changed
            failures += [with_id(text.format(packages=", ".join(names), why=why))] if why else []
        return any_changed, failures

    def _install(self, names: list[str], variables: Mapping[str, Any]) -> tuple[bool, str]:
        """Install packages; return (something changed, why that failed, or "")."""
        task = self._task.copy()
        task.args = {"name": names, "state": "present"}
        action = self._shared_loader_obj.action_loader.get(
            "ansible.builtin.package",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        try:
            done = action.run(task_vars=dict(variables))
        except AnsibleError as error:  # no package manager of this host, say
            return False, str(error)
        why = str(done.get("msg") or "no reason given") if done.get("failed") else ""
        return bool(done.get("changed")), why


def merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of two runs as that of one: what either changed, and the state after the second."""
    result = {**first, **then, "changed": bool(first["changed"] or then.get("changed"))}
    if "parts" in first and "parts" in then:
        result["parts"] = {**then["parts"], "release": first["parts"]["release"]}
    for name in ("diff", "warnings"):
        if name in first or name in then:
            result[name] = [*first.get(name, []), *then.get(name, [])]
    return result


def _parts(variables: Mapping[str, Any]) -> list[str]:
    """Return the parts that the tags of the command line name; all of them without such a tag."""
    asked = [name for name in cdi_host.PARTS if name in (variables.get("ansible_run_tags") or ())]
    return [name for name in asked or cdi_host.PARTS if name not in (variables.get("ansible_skip_tags") or ())]
