# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare two reports of a fleet: which devices appeared, are gone, are other cards now, or have other holders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils import documents
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import FORMAT, VERSION, unmarked

APPEARED, GONE, SWAPPED, HOLDERS, STATE = "appeared", "gone", "swapped", "holders", "state"


class SeenDevice(NamedTuple):
    """A device in one of the reports."""

    name: str
    unique: str  # uuid or serial number
    holders: tuple[str, ...]
    state: str


def report_at(path: str) -> Mapping[str, Any]:
    """Return the report in the file at `path`. Raises CdiError as `read_report` does, and if it can't be read."""
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CdiError(f"{path}: can't be read ({why}); expected a report.json of playbook fleet.cdi.report") from None
    return read_report(content, path)


def read_report(content: str, name: str) -> Mapping[str, Any]:
    """Return the report in a text of JSON. Raises CdiError, with `name`, if it is not a report that we can read."""
    try:
        report = json.loads(content)
        found = (report["format"], report["version"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CdiError(
            f"{name}: is not a report ({error}); expected a report.json of playbook fleet.cdi.report"
        ) from None
    if found != (FORMAT, VERSION):
        raise CdiError(f"{name}: found {found[0]!r} of version {found[1]!r}; expected {FORMAT!r} of version {VERSION}")
    return dict(report)


def compare_reports(old: Mapping[str, Any], new: Mapping[str, Any], name: str = "") -> list[list[Any]]:
    """Return the changes: sort, host, id, name, before, after. Hosts that only one report knows are left out.

    A host that gave no answer in one of the reports is left out too: its devices are unknown, and not gone.
    Raises CdiError if `old`, called `name`, is damaged.
    """
    try:
        before = _devices(old)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CdiError(
            f"{name}: is damaged ({documents.misfit(error)}); expected a report.json of playbook fleet.cdi.report"
        ) from None
    after = _devices(new)
    return [change for host in after if host in before for change in _changes(host, before[host], after[host])]


def _changes(host: str, before: Mapping[str, SeenDevice], after: Mapping[str, SeenDevice]) -> Iterable[list[Any]]:
    for id_ in dict.fromkeys((*before, *after)):
        old, new = before.get(id_), after.get(id_)
        if old is None and new is not None:
            yield [APPEARED, host, id_, new.name, "", new.unique]
        elif new is None and old is not None:
            yield [GONE, host, id_, old.name, old.unique, ""]
        elif old is not None and new is not None:
            if old.unique and new.unique and old.unique != new.unique:
                yield [SWAPPED, host, id_, new.name, old.unique, new.unique]
            if old.holders != new.holders:
                yield [HOLDERS, host, id_, new.name, "; ".join(old.holders), "; ".join(new.holders)]
            bad = "!?"
            if old.state != new.state and (old.state in bad or new.state in bad):
                yield [STATE, host, id_, new.name, old.state, new.state]


def _devices(report: Mapping[str, Any]) -> dict[str, dict[str, SeenDevice]]:
    """Return host -> id -> device, of hosts that gave an answer."""
    strings: Sequence[str] = report["strings"]
    fields = list(report["shape_fields"])
    devices, hosts = report["devices"], report["hosts"]
    at = [fields.index(name) for name in ("id", "kind", "names", "real")]
    found: dict[str, dict[str, SeenDevice]] = {}
    end = 0
    for name, why, count in zip(hosts["name"], hosts["why"], hosts["devices"]):
        start, end = end, end + count
        if why:
            continue
        mine = found.setdefault(str(strings[name]), {})
        for place in range(start, end):
            shape = report["shapes"][devices["shape"][place]]
            uuid, serial = devices["uuid"][place], devices["serial"][place]
            texts = [unmarked(strings[shape[column]], uuid=uuid, serial=serial) for column in at]
            id_, kind, names, real = texts
            if real == "gone":  # the settings offer it, and it is not there
                continue
            holders = report["holders"][devices["held"][place]]
            mine[id_] = SeenDevice(
                f"{kind}={names.partition(' ')[0]}",
                uuid or serial,
                tuple(unmarked(strings[hold[0]], request=strings[hold[2]]) for hold in holders),
                devices["state"][place],
            )
    return found
