# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the host's half of a module: one JSON request on stdin, one JSON answer on stdout."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from ..explanations.shown import with_id
from ..records import CdiError
from ..safe_text import one_line
from .change_log import log_answer

# Module -> the file whose `answer(options, check)` returns (result, warnings). Imported when called.
CALLS = {
    "cdi_host": "converge.host.cdi_host",
    "cdi_plugin": "converge.kinds.cdi_plugin",
    "cdi_plugin_info": "claims.cdi_plugin_info",
    "claim": "claims.claim",
    "claim_info": "claims.claim_info",
    "container_runtime": "converge.runtime.container_runtime",
    "container_runtime_info": "converge.runtime.container_runtime_info",
    "device_info": "discovery.device_info",
    "device_plugin_config": "converge.services.device_plugin_config",
    "device_plugin_info": "converge.services.device_plugin_info",
    "device_plugin_service": "converge.services.device_plugin_service",
    "device_state": "converge.kinds.device_state",
    "host_drain": "converge.host_drain",
    "host_release": "release.host_release",
    "host_release_info": "release.host_release_info",
    "host_report_info": "report.host_report_info",
    "pod_devices": "claims.pods.pod_devices",
    "refresh_service": "converge.services.refresh_service",
    "refresh_service_info": "converge.services.refresh_service_info",
    "spec": "converge.kinds.spec",
    "spec_info": "converge.kinds.spec_info",
}


def main(call: str) -> int:
    """Read {"options", "check", "verbosity"} from stdin, print {"result", "warnings"} or {"error", "warnings"}.

    A CdiError becomes "error". `verbosity` is the number of -v of Ansible: from 1 on, a diff of devices is complete.
    A request may have a "mark", which is then printed before and after the answer: the caller's connection prints too.
    """
    request = json.load(sys.stdin)
    answer: dict[str, Any] = {"warnings": []}
    try:
        room = import_module(f"ansible_collections.fleet.cdi.plugins.module_utils.{CALLS[call]}")
        answer["result"], answer["warnings"] = room.answer(request["options"], request["check"])
        if not request.get("verbosity") and isinstance(answer["result"].get("diff"), list):
            show = import_module("ansible_collections.fleet.cdi.plugins.module_utils.converge.module_diff")
            answer["result"]["diff"] = [show.brief(part) for part in answer["result"]["diff"]]
    except CdiError as error:
        answer["error"] = str(error)
    # Ansible shows these two unchanged; the result is data, and Ansible shows it as JSON.
    shown: dict[str, Any] = {"warnings": [with_id(one_line(text)) for text in answer["warnings"]]}
    if "error" in answer:
        shown["error"] = with_id(one_line(answer["error"]))
    mark = request.get("mark", "")
    sys.stdout.write(f"{mark}{json.dumps({**answer, **shown})}{mark}\n")
    sys.stdout.flush()
    log_answer(call, {**answer, **shown}, request["check"])
    return 0
