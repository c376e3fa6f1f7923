# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi device disable|enable: take devices out of service, or put them back."""

from __future__ import annotations

import re
import time
from typing import Any

from ..converge.kinds.device_state import WantedDeviceState, converge_states, instant, moment
from ..layout import Layout
from ..records import CdiError
from .change_log import log_verb, state_line
from .taken_options import refuse_options
from .terminal import complain, say, say_document

SECONDS = {"m": 60, "h": 3600, "d": 86400}


def run(arguments: Any, paths: Layout) -> int:
    """Do the action and print the result; return 1 if a spec could not be made as decided. Raises CdiError."""
    if arguments.action not in ("disable", "enable"):
        raise CdiError(f"device: found {arguments.action!r}; expected disable or enable")
    refuse_options(arguments)
    reason = until = ""
    if arguments.action == "disable":
        reason = " ".join((arguments.reason or "").split())
        if not reason:
            raise CdiError("--reason: found none; expected one line that tells the next operator why")
        until = _until(arguments.until)
        if until and until <= moment(time.time()):
            raise CdiError(f"--until: found {arguments.until!r}, which is over; expected a time to come")
    wanted = [WantedDeviceState(name, reason, until) for name in arguments.name]
    outcome = converge_states(wanted, paths, arguments.check)
    for text in outcome.report.warnings:
        complain(f"warning: {text}")
    for text in outcome.report.failed:
        complain(f"{'failed' if text in outcome.unmet else 'warning'}: {text}")
    after = {id_: state._asdict() if state else None for id_, (_before, state) in outcome.devices.items()}
    lines = [state_line({"id": id_, **(state or {"reason": ""})}) for id_, state in after.items()]
    if outcome.changed and not arguments.check:
        log_verb("device", lines)
    if arguments.json:
        devices = [{"id": id_, "disabled": state} for id_, state in after.items()]
        say_document({"devices": devices, "changed": outcome.changed})
    else:
        for line in lines:
            say(line)
        for path in outcome.changed:
            say(f"{'would be changed' if arguments.check else 'changed'}: {path}")
    return 1 if outcome.unmet else 0


def _until(text: Any) -> str:
    """Return the time that --until names: a date, a time, or a duration from now. Raises CdiError."""
    if not text:
        return ""
    found = re.match(r"([0-9]{1,6})([mhd])\Z", text)
    return moment(time.time() + int(found[1]) * SECONDS[found[2]]) if found else instant(text)
