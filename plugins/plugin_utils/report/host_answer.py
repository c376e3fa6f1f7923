# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the answer of one host. Everything in it is foreign text: a host can be broken, or hostile.

A value of another type than expected counts as missing, so half an answer still counts for its half.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

LONGEST = 2000  # characters of a text that are kept
MOST = 4096  # devices of a host, findings of it, processes of a device
CONTAINER = 12  # digits of a container's id that are kept, as engines show it

# States of a device in the report, each a letter: a disagreement, unknown, held, free, out of service, spare
DISAGREES, UNKNOWN, HELD, FREE, OUT, SPARE = "!?HFOS"
TRUTHS = ("wanted", "written", "promised", "real")


class ReportedFinding(NamedTuple):
    """A problem of a host, and the devices that it is about, by their places in the host."""

    rule: str
    subject: str
    problem: str
    next: str
    devices: tuple[int, ...]


class ReportedDevice(NamedTuple):
    """One device of the answer. `fields` are texts by name; holders and openers are tuples of values."""

    fields: Mapping[str, str]
    serial: str
    uuid: str
    holders: tuple[tuple[Any, ...], ...]  # (who, owner, request, state, since)
    openers: tuple[tuple[Any, ...], ...]  # (pid, command, uid, unit, container, engine, pod, job, user)
    state: str


class HostAnswer(NamedTuple):
    """The answer of one host. `why` tells why it is missing or incomplete; "" for a whole one."""

    name: str
    rack: str = ""
    why: str = ""
    gathered: int = 0  # by the controller's clock, in seconds since the epoch
    made: int = 0  # by the host's clock
    uptime: int = 0
    boot_id: str = ""
    release: str = ""
    devices: tuple[ReportedDevice, ...] = ()
    findings: tuple[ReportedFinding, ...] = ()
    links: tuple[tuple[Any, ...], ...] = ()
    nics: tuple[tuple[Any, ...], ...] = ()  # (names, numa_node, pcie_path)
    kinds: Optional[tuple[str, ...]] = None  # that the host remembers from its settings; None: an older release


RACK = "fleet_cdi_rack"  # the variable with the rack of a host
NO_RELEASE = "fleet.cdi is not installed on the host: `ansible-playbook fleet.cdi.provision`"
# Fields of a device that are one text, in the order of the report.
PLAIN = ("id", "kind", "driver", "pci_address", "pci_id", "partition", "nic_relation")
JOINED = {"names": " ", "nodes": " ", "part_of": " ", "pcie_path": "/", "unknown": " "}


def read_answer(name: str, rack: str, result: Any) -> HostAnswer:
    """Return the answer of a host from the result of module host_report_info, or from any other value."""
    result = result if isinstance(result, Mapping) else {}
    document = result.get("report")
    gathered = _number(result.get("gathered"))
    if not isinstance(document, Mapping):
        said = text_of(result.get("msg"))
        lost = "the host can't be reached" if result.get("unreachable") else "the host gave no answer"
        return HostAnswer(name, rack, f"{lost}: {said}" if said else lost, gathered)
    release = text_of(document.get("release"))
    why = "" if release else NO_RELEASE
    rows = [row for row in _list(document.get("devices"))[:MOST] if isinstance(row, Mapping)]
    return HostAnswer(
        name,
        rack,
        why,
        gathered,
        _number(document.get("made")),
        _number(document.get("uptime")),
        text_of(document.get("boot_id")),
        release,
        tuple(_device(row, bool(why)) for row in rows),
        tuple(_findings(document, rows)),
        tuple(_links(document.get("links"), len(rows))),
        tuple(_nics(document.get("nics"))),
        tuple(_texts(document["kinds"])) if isinstance(document.get("kinds"), list) else None,
    )


def answers_of(hostvars: Any, hosts: Any, result: str) -> list[HostAnswer]:
    """Return the answer of each host."""
    found = []
    for host in hosts:
        variables = hostvars[host]
        found.append(read_answer(str(host), _rack(variables), plain(variables.get(result))))
    return found


def _rack(variables: Any) -> str:
    given = variables.get(RACK)
    if given not in (None, ""):
        return str(given)
    return next((str(name) for name in variables.get("group_names", ()) if str(name).startswith("rack")), "")


def plain(value: Any) -> Any:
    """Return the value in plain types: Ansible's own would cost a look-up for each field."""
    return json.loads(json.dumps(value, default=str)) if value is not None else None


def _device(row: Mapping[str, Any], unsure: bool) -> ReportedDevice:
    fields = {key: text_of(row.get(key)) for key in PLAIN}
    fields.update({key: mark.join(_texts(row.get(key))) for key, mark in JOINED.items()})
    numa = row.get("numa_node")
    fields["numa_node"] = str(numa) if isinstance(numa, int) and not isinstance(numa, bool) else ""
    for name in TRUTHS:
        state, text, *_rest = [*_list(row.get(name)), "", ""]
        fields[name] = text_of(state) or "unknown"
        fields[f"{name}_text"] = text_of(text)
    fields["files"] = " ".join(_texts(_nth(row.get("written"), 2)))
    if row.get("openers", ()) is None:
        fields["unknown"] = " ".join(dict.fromkeys((*fields["unknown"].split(), "openers")))
    wrong = any(isinstance(index, int) for index in _list(row.get("findings")))
    state = _state(fields, wrong, unsure)
    holders = tuple(map(_holder, records_of(_nth(row.get("promised"), 2))))
    openers = tuple(dict.fromkeys(map(_opener, records_of(row.get("openers")))))
    return ReportedDevice(fields, text_of(row.get("serial")), text_of(row.get("uuid")), holders, openers, state)


def _state(fields: Mapping[str, str], wrong: bool, unsure: bool) -> str:
    """Return the state of a device: a disagreement comes first, and an unknown truth before any good state."""
    if wrong:
        return DISAGREES
    if unsure or fields["unknown"] or any(fields[name] == "unknown" for name in TRUTHS):
        return UNKNOWN
    if fields["wanted"] == "withdrawn" or fields["real"] == "reserved" or fields["promised"] == "withheld":
        return OUT
    if fields["promised"] == "held":
        return HELD
    return SPARE if fields["wanted"] == "spare" else FREE


def _holder(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*(text_of(one.get(key)) for key in ("who", "owner", "request", "state")), _number(one.get("since")))


def _opener(one: Mapping[str, Any]) -> tuple[Any, ...]:
    texts = [text_of(one.get(key)) for key in ("command", "unit", "container", "engine", "pod", "job", "user")]
    command, unit, container, *rest = texts
    short = container[:CONTAINER] if len(container) == 64 else container
    return (_number(one.get("pid")), command, _number(one.get("uid")), unit, short, *rest)


def _findings(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterable[ReportedFinding]:
    about: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        for index in _list(row.get("findings")):
            if isinstance(index, int) and place not in about.setdefault(index, [])[-1:]:
                about[index].append(place)
    for index, one in enumerate(records_of(document.get("findings"))):
        rule, subject, problem, then = (text_of(one.get(key)) for key in ("rule", "subject", "problem", "next"))
        yield ReportedFinding(rule or "unnamed", subject, problem, then, tuple(about.get(index, ())))


def _links(value: Any, count: int) -> Iterable[tuple[Any, ...]]:
    for link in _list(value)[:MOST]:
        first, second, kind, parallel, *_rest = [*_list(link), None, None, None, None]
        ends = [end for end in (first, second) if isinstance(end, int) and 0 <= end < count]
        if len(ends) == 2:
            yield (*ends, text_of(kind), _number(parallel))


def _nics(value: Any) -> Iterable[tuple[Any, ...]]:
    for one in records_of(value):
        numa = one.get("numa_node")
        place = "/".join(_texts(one.get("pcie_path")))
        yield " ".join(_texts(one.get("names"))), str(numa) if isinstance(numa, int) else "", place


def records_of(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings in a list, at most MOST."""
    return [one for one in _list(value)[:MOST] if isinstance(one, Mapping)]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _nth(value: Any, place: int) -> Any:
    values = _list(value)
    return values[place] if len(values) > place else None


def _texts(value: Any) -> list[str]:
    return [text for text in map(text_of, _list(value)[:MOST]) if text]


def text_of(value: Any) -> str:
    """Return a text that JSON, HTML and CSV can hold: half a surrogate pair becomes an escape."""
    if not isinstance(value, str):
        return ""
    return str(value)[:LONGEST].encode("utf-8", "backslashreplace").decode("utf-8")


def _number(value: Optional[Any]) -> int:
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 2**53 else 0
