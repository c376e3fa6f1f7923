# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet as a table of devices, for spreadsheets: CSV (RFC 4180)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import Rows, rows
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import HostAnswer

STATES = {"!": "disagrees", "?": "unknown", "H": "held", "F": "free", "O": "out of service", "S": "spare", "": "agrees"}
HEADER = (
    "host",
    "rack",
    "device",
    "id",
    "serial",
    "uuid",
    "pci_address",
    "numa_node",
    "driver",
    "state",
    "wanted",
    "written",
    "promised",
    "holders",
    "real",
    "open_in",
    "problems",
)
MOST = 20  # problems of a device in its cell: each may be about all devices of the host
# A spreadsheet takes a cell that begins with one of these for a formula (OWASP, "CSV Injection").
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_text(answers: Iterable[HostAnswer]) -> str:
    """Return one line for each device, and one for each host without devices."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(HEADER)
    for answer in answers:
        lines = list(map(_line, rows([answer]))) or [
            [answer.name, answer.rack, *[""] * 7, STATES["?"] if answer.why else "", *[""] * 6, answer.why]
        ]
        writer.writerows([cell(value) for value in line] for line in lines)
    return out.getvalue()


def cell(value: str) -> str:
    """Return a cell that no spreadsheet takes for a formula, on one line."""
    plain = " ".join(value.replace("\0", " ").splitlines()) if "\n" in value or "\r" in value else value
    return f"'{plain}" if value.startswith(FORMULA) else plain


def opener_text(opener: tuple[object, ...]) -> str:
    """Describe a process that has a device open."""
    pid, command, uid, unit, container, engine, pod, job, user = opener
    words = {"user": user or uid, "container": container, "engine": engine, "pod": pod, "job": job, "unit": unit}
    return " ".join([f"pid {pid} {command}", *(f"{name} {word}" for name, word in words.items() if word != "")])


def _line(row: Rows) -> list[str]:
    fields, device = row.device.fields, row.device
    return [
        row.host.name,
        row.host.rack,
        f"{fields['kind']}={fields['names'].partition(' ')[0]}",
        fields["id"],
        device.serial,
        device.uuid,
        fields["pci_address"],
        fields["numa_node"],
        fields["driver"],
        STATES[device.state],
        *_states(fields),
        "; ".join(str(holder[0]) for holder in device.holders),
        fields["real"],
        "unknown" if "openers" in fields["unknown"].split() else "; ".join(map(opener_text, device.openers)),
        "; ".join((*row.problems[:MOST], *_more(len(row.problems) - MOST))),
    ]


def _more(count: int) -> Iterator[str]:
    if count > 0:
        yield f"and {count} more"


def _states(fields: Mapping[str, str]) -> Iterator[str]:
    yield from (fields["wanted"], fields["files"] or fields["written"], fields["promised"])
