# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi device disable|enable: take one device out of service, or put it back."""

from __future__ import annotations

import re
import time
from typing import Any

from ..converge.kinds.device_state import WantedDeviceState, converge_state, instant, moment
from ..layout import Layout
from ..records import CdiError
from .change_log import log_verb, state_line
from .terminal import complain, say, say_document

SECONDS = {"m": 60, "h": 3600, "d": 86400}


def run(arguments: Any, paths: Layout) -> int:
    """Do the action and print the result. Raises CdiError."""
    if arguments.action not in ("disable", "enable"):
        raise CdiError(f"device: found {arguments.action!r}; expected disable or enable")
    wanted = WantedDeviceState(arguments.name)
    if arguments.action == "disable":
        reason = " ".join((arguments.reason or "").split())
        if not reason:
            raise CdiError("--reason: found none; expected one line that tells the next operator why")
        wanted = wanted._replace(reason=reason, until=_until(arguments.until))
        if wanted.until and wanted.until <= moment(time.time()):
            raise CdiError(f"--until: found {arguments.until!r}, which is over; expected a time to come")
    outcome = converge_state(wanted, paths, arguments.check)
    for text in (*outcome.report.warnings, *outcome.report.failed):
        complain(f"warning: {text}")
    line = state_line({"id": outcome.id, **(outcome.after._asdict() if outcome.after else {"reason": ""})})
    if outcome.changed and not arguments.check:
        log_verb("device", [line])
    if arguments.json:
        after = outcome.after._asdict() if outcome.after else None
        say_document({"id": outcome.id, "disabled": after, "changed": outcome.changed})
    else:
        say(line)
        for path in outcome.changed:
            say(f"{'would be changed' if arguments.check else 'changed'}: {path}")
    return 0


def _until(text: Any) -> str:
    """Return the time that --until names: a date, a time, or a duration from now. Raises CdiError."""
    if not text:
        return ""
    found = re.match(r"([0-9]{1,6})([mhd])\Z", text)
    return moment(time.time() + int(found[1]) * SECONDS[found[2]]) if found else instant(text)
