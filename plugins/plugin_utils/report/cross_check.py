# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Add to the answers of hosts what only the controller can tell: by its clock, its release, its inventory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.advice import PROVISION
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import HostAnswer, ReportedFinding
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.summary import counted

RULES = ("clock-wrong", "other-release", "same-machine", "not-provisioned")
CLOCK = 120  # seconds by which clocks of host and controller may differ
UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))  # seconds

Wants = Callable[[str], bool]  # whether the settings of a host ask for devices in specs


def cross_checked(answers: Sequence[HostAnswer], release: str, wants: Wants) -> list[HostAnswer]:
    """Return the answers with the findings of the controller. With `release`, each host is to have this release."""
    aliases = Counter(map(_machine, answers))
    found = []
    for answer in answers:
        more = [*_clock(answer), *_release(answer, release), *_aliases(answer, aliases)]
        if not (answer.findings or more or answer.why):
            more += _bare(answer, wants)
        found.append(answer._replace(findings=(*answer.findings, *more)) if more else answer)
    return found


def skew(answer: HostAnswer) -> int:
    """Return by how many seconds the clock of a host is behind that of the controller; 0 if that is usual."""
    seconds = answer.gathered - answer.made if answer.made and answer.gathered else 0
    return seconds if abs(seconds) > CLOCK else 0


def unit_of(seconds: int) -> tuple[int, str]:
    """Return the largest unit that is not longer than `seconds`, which are more than CLOCK."""
    return next(one for one in UNITS if seconds >= one[0])


def _clock(answer: HostAnswer) -> Iterator[ReportedFinding]:
    seconds = skew(answer)
    if seconds:
        size, unit = unit_of(abs(seconds))
        number = round(abs(seconds) / size)
        text = f"{counted(number, unit)} {'behind' if seconds > 0 else 'ahead of'}"
        yield ReportedFinding(
            "clock-wrong",
            "clock",
            f"the clock of the host is {text} that of the controller",
            "set it: `timedatectl`",
            (),
        )


def _release(answer: HostAnswer, release: str) -> Iterator[ReportedFinding]:
    if release and answer.release not in ("", release):
        text = f"release {answer.release} is active, and this controller has release {release}"
        yield ReportedFinding("other-release", "release", text, PROVISION, ())


def _aliases(answer: HostAnswer, machines: Mapping[Any, int]) -> Iterator[ReportedFinding]:
    others = machines[_machine(answer)] - 1
    if others and answer.boot_id and answer.devices:
        text = (
            f"it has the boot id {answer.boot_id} and the devices of {counted(others, 'other host')}, so these names "
            "of the inventory are one machine, whose devices count more than once"
        )
        yield ReportedFinding("same-machine", "inventory", text, "leave one of its names in the inventory", ())


def _machine(answer: HostAnswer) -> Any:
    return answer.boot_id, tuple((one.fields["id"], one.uuid, one.serial) for one in answer.devices)


def _bare(answer: HostAnswer, wants: Wants) -> Iterator[ReportedFinding]:
    if answer.kinds == () and wants(answer.name):
        text = "its settings ask for devices, and the host remembers no kind: no provisioning has come to its end"
        yield ReportedFinding("not-provisioned", "settings", text, PROVISION, ())
