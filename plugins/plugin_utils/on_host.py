# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of plugins/module_utils/on_host.py: name the release, and send its archive if it is missing."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.fleet.cdi.plugins.module_utils.release import build

MODULE_UTILS = os.path.dirname(os.path.dirname(os.path.abspath(build.__file__)))
OURS = ("release", "archive")


@lru_cache(maxsize=1)
def release() -> build.Release:
    """Return the release of this controller's collection; built once per process, in a few milliseconds."""
    return build.build(MODULE_UTILS)


class OnHost(ActionBase):
    """Run the module once if the release is installed, otherwise a second time with the archive."""

    _supports_async = False
    _requires_connection = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        for option in OURS:
            if option in self._task.args:
                raise AnsibleActionFail(
                    f"{option}: is filled in by {self._task.action} itself; remove it from the task"
                )
        arguments = {**self._task.args, "release": release().id}
        result = self._module(arguments, task_vars)
        if not result.pop("needs_archive", False):
            return result
        shell = self._connection._shell
        if shell.tmpdir is None:  # with pipelining no directory exists yet; Ansible removes it after the task
            self._make_tmp_path()
        archive = shell.join_path(shell.tmpdir, f"{release().id}.zip")
        self._transfer_data(archive, build.pack(release()))
        self._fixup_perms2((shell.tmpdir, archive))  # for become with an ordinary user
        return self._module({**arguments, "archive": archive}, task_vars)

    def _module(self, arguments: dict[str, Any], task_vars: Optional[dict[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(self._task.action, module_args=arguments, task_vars=task_vars)
        return result
