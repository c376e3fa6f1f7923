# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what each run of a scenario's playbook did to a file, so that verify.yml can compare a preview with the run.

One JSON object per result that changed something, shows a difference or warns: host, task, action, item, changed, diff,
warnings, parts (of module cdi_host). The file is records/SCENARIO/NN-PLAYBOOK[-check].jsonl in molecule's ephemeral
directory; NN counts the runs.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ansible import context
from ansible.executor.task_result import CallbackTaskResult
from ansible.playbook import Playbook
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record
type: aggregate
short_description: Records what molecule's runs change
description:
  - For verify.yml, which compares the preview of check mode with the real run.
"""


class CallbackModule(CallbackBase):
    """A callback plugin finds its way by this name."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record"
    CALLBACK_NEEDS_ENABLED = True

    _path: str

    def v2_playbook_on_start(self, playbook: Playbook) -> None:
        """Begin the next file."""
        directory = os.path.join(
            os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "records", os.environ["MOLECULE_SCENARIO_NAME"]
        )
        os.makedirs(directory, exist_ok=True)
        name = os.path.splitext(os.path.basename(playbook._file_name))[0]
        check = "-check" if context.CLIARGS["check"] else ""
        number = len(os.listdir(directory)) + 1
        self._path = os.path.join(directory, f"{number:02d}-{name}{check}.jsonl")
        with open(self._path, "x"):  # a run that changes nothing counts too
            pass

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """A task that is no loop, or the sum of one, which its items tell in more detail."""
        if "results" not in result.result:
            self._record(result)

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        """One item of a loop."""
        self._record(result)

    def _record(self, result: CallbackTaskResult) -> None:
        found: dict[str, Any] = {key: result.result.get(key) for key in ("changed", "diff", "warnings", "parts")}
        if not any(found[key] for key in ("changed", "diff", "warnings")):
            return
        line = {
            "host": result.host.get_name(),
            "task": result.task.get_name(),
            "action": result.task.action,
            "item": result.result.get("_ansible_item_label"),
            **found,
        }
        with open(self._path, "a") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")
