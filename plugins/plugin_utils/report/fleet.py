# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet: one document with a table of texts, and a column for each field.

Devices that differ only in serial number, uuid, holders and processes share one row of `shapes`, so 40,000 devices stay
below 4 MB. Places in `strings` stand for texts; place 0 is "". The marks {uuid}, {serial} and {request} in a text stand
for those of its device or holder, and {brace} for "{", so that no text of a host is taken for a mark.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.fleet.cdi.plugins.plugin_utils.report.causes import CauseKey, causes
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.cross_check import skew
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import (
    JOINED,
    PLAIN,
    TRUTHS,
    HostAnswer,
    ReportedDevice,
)

FORMAT, VERSION = "fleet.cdi/report", 1
SHAPE = (
    *PLAIN,
    *JOINED,
    "numa_node",
    *(field for name in TRUTHS for field in (name, f"{name}_text")),
    "files",
)


_MARK = re.compile(r"\{(uuid|serial|request|brace)\}")


class _Table:
    """Values, each once, by their place. Place 0 is the empty value."""

    def __init__(self, empty: Hashable) -> None:
        self.values = [empty]
        self._places: dict[Hashable, int] = {empty: 0}

    def __call__(self, value: Hashable) -> int:
        """Return the place of a value."""
        place = self._places.get(value)
        if place is None:
            place = self._places[value] = len(self.values)
            self.values.append(value)
        return place


class Rows(NamedTuple):
    """A row for each device: host, device and the findings of the host that are about it."""

    host: HostAnswer
    device: ReportedDevice
    problems: tuple[str, ...]


def order(answers: Iterable[HostAnswer]) -> list[HostAnswer]:
    """Return the answers by rack and name, numbers in order."""
    return sorted(answers, key=lambda one: (_natural(one.rack), _natural(one.name)))


def fleet_report(answers: Sequence[HostAnswer], made: int, title: str = "", link: str = "") -> dict[str, Any]:
    """Return the report of hosts in `order`, for JSON. `link` is a template with {host}, {device}, {serial}, {uuid}."""
    text, shapes, holders, openers = _Table(""), _Table(()), _Table(()), _Table(())
    wiring = _Table(((), ()))
    devices: dict[str, list[Any]] = {name: [] for name in ("shape", "serial", "uuid", "held", "open")}
    states: list[str] = []
    hosts: dict[str, list[Any]] = {
        name: []
        for name in ("name", "rack", "why", "gathered", "skew", "uptime", "boot_id", "release", "wiring", "devices")
    }
    for answer in answers:
        row = (
            text(answer.name),
            text(answer.rack),
            text(answer.why),
            answer.gathered,
            skew(answer),
            answer.uptime,
            text(answer.boot_id),
            text(answer.release),
            wiring((_placed(answer.links, text), _placed(answer.nics, text))),
            len(answer.devices),
        )
        for column, value in zip(hosts.values(), row):
            column.append(value)
        for device in answer.devices:
            marks = _marks(uuid=device.uuid, serial=device.serial)
            values = (
                shapes(tuple(text(_marked(device.fields[name], marks)) for name in SHAPE)),
                device.serial,
                device.uuid,
                holders(_placed(map(_marked_holder, device.holders), text)),
                openers(_placed(device.openers, text)),
            )
            for column, one in zip(devices.values(), values):
                column.append(one)
            states.append(device.state)
    found = causes(answers)
    return {
        "format": FORMAT,
        "version": VERSION,
        "made": made,
        "title": title,
        "link": link,
        "shape_fields": SHAPE,
        "hosts": hosts,
        "devices": {**devices, "state": "".join(states)},
        "causes": [_cause(key, places, answers) for key, places in found.items()],
        "findings": _findings(found, answers, text),
        "changes": [],
        "shapes": shapes.values,
        "holders": holders.values,
        "openers": openers.values,
        "wiring": wiring.values,
        "strings": text.values,
    }


def rows(answers: Iterable[HostAnswer]) -> Iterable[Rows]:
    """Yield a row for each device."""
    for answer in answers:
        problems: list[list[str]] = [[] for _device in answer.devices]
        for one in answer.findings:
            for place in one.devices:
                problems[place].append(one.problem)
        for device, mine in zip(answer.devices, problems):
            yield Rows(answer, device, tuple(mine))


def _cause(key: CauseKey, places: Sequence[tuple[int, int]], answers: Sequence[HostAnswer]) -> dict[str, Any]:
    concerned = {
        (place, device) for place, index in places if index >= 0 for device in answers[place].findings[index].devices
    }
    return {**key._asdict(), "hosts": sorted({place for place, _index in places}), "devices": len(concerned)}


def _findings(
    found: Mapping[CauseKey, Sequence[tuple[int, int]]], answers: Sequence[HostAnswer], text: _Table
) -> dict[str, list[Any]]:
    """Return place of a host -> its findings: cause, subject, problem, next step, places of devices in the host."""
    listed: dict[str, list[Any]] = {}
    for number, places in enumerate(found.values()):
        for place, index in places:
            if index >= 0:
                one = answers[place].findings[index]
                row = [number, text(one.subject), text(one.problem), text(one.next), list(one.devices)]
                listed.setdefault(str(place), []).append(row)
    return listed


def _placed(records: Iterable[tuple[Any, ...]], text: _Table) -> tuple[tuple[int, ...], ...]:
    """Return the records with places instead of texts. A field of a record is always a text, or always a number."""
    return tuple(tuple(text(value) if isinstance(value, str) else value for value in record) for record in records)


def _marks(**words: str) -> list[tuple[str, str]]:
    """Return each word with the mark that stands for it, the longest first."""
    named = [("{", "{brace}"), *((word, f"{{{name}}}") for name, word in words.items() if word)]
    return sorted(named, key=lambda one: -len(one[0]))


def _marked(text: str, marks: Sequence[tuple[str, str]]) -> str:
    """Return a text with marks, so that devices that differ in words have one shape. No mark is in another."""
    for place, (word, mark) in enumerate(marks):
        if word in text:
            return mark.join(_marked(part, marks[place + 1 :]) for part in text.split(word))
    return text


def unmarked(text: str, **words: str) -> str:
    """Return the text that the marks in `text` were put into; `words` are those of its device or holder."""
    return _MARK.sub(lambda mark: {"brace": "{", **words}.get(mark[1], mark[0]), text)


def _marked_holder(holder: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a holder with a mark for the request-id in its description."""
    who, owner, request, *rest = holder
    return (_marked(who, _marks(request=request)), owner, request, *rest)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)[:64]]
