# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth of a host as metrics for Prometheus: a file for the textfile collector of node_exporter.

The format is text format 0.0.4 (prometheus.io, "Exposition formats"). The names and labels are those of the device
plugin's metrics where both mean the same: `devices` by `state`, `build_info`. Times are those of the events, because an
age would stand still while nobody writes the file.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Optional

from ..claims.store import read_claims
from ..converge.doctor.view import HostView, take
from ..converge.last_refresh import LastRefresh, last_refresh
from ..device_plugin.process.metrics import Sample, sample_line
from ..layout import Layout
from ..release import guard
from . import device_truth as truths
from .host_report_info import HostTruth, find_now, host_truth

PREFIX = "fleet_cdi_"
STATES = (truths.HEALTHY, truths.UNHEALTHY, truths.RESERVED, truths.UNKNOWN, truths.GONE)
OWNERS = ("kubernetes", "claims", "external")


GAUGES: Mapping[str, str] = {
    "devices": "Devices of this host, by kind and state.",
    "devices_held": "Devices that a request, a claim or a pod holds, by kind.",
    "devices_open": "Devices that a process has open, by kind; absent if not every process can be seen.",
    "grants": "Grants in the ledger, by owner; absent if the ledger can't be read.",
    "claims": "Claims by name.",
    "findings": "Findings of fleet-cdi report, by rule; absent rules have none.",
    "problems": "Findings of fleet-cdi report, all rules together.",
    "ledger_readable": "1 if the ledger can be read and is complete.",
    "spec_written_timestamp_seconds": "When the oldest spec of ours was written, by kind.",
    "refresh_finished_timestamp_seconds": "When the last refresh of this boot ended.",
    "refresh_duration_seconds": "How long the last refresh took.",
    "refresh_success": "1 if no part of the last refresh failed.",
    "refresh_devices_missing": "Devices that were gone at the last refresh and stay in their specs.",
    "build_info": "1, with the release on this host and Python's version.",
}


def metrics_text(places: Layout) -> str:
    """Look at this host once, and return its metrics."""
    view = take(places)
    host = host_truth(view, find_now(view))
    claims = len(read_claims(places.state_dir).claims)
    return render([*samples(view, host, claims), *_of_refresh(last_refresh(places.inventory)), _build(places)])


def render(found: list[Sample]) -> str:
    """Return the samples as text, in the order of GAUGES."""
    lines = []
    for metric, text in GAUGES.items():
        name = PREFIX + metric
        mine = [sample_line(name, one.labels, one.value) for one in found if one.metric == metric]
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", *mine] if mine else []
    return "\n".join(lines) + "\n"


def samples(view: HostView, host: HostTruth, claims: int) -> Iterator[Sample]:
    """Yield the samples of devices, ledger, findings and specs."""
    store = view.running.ledger
    known = store.grants is not None and store.complete
    for kind in sorted({one.device.kind for one in host.devices}):
        mine = [one for one in host.devices if one.device.kind == kind]
        states = Counter(one.real.state for one in mine)
        for state in STATES:
            yield Sample("devices", {"kind": kind, "state": state}, states[state])
        if known:
            yield Sample("devices_held", {"kind": kind}, sum(one.promised.state == truths.HELD for one in mine))
        if all(one.openers is not None for one in mine):
            yield Sample("devices_open", {"kind": kind}, sum(bool(one.openers) for one in mine))
    if known:
        owners = Counter(part.owner for grant in store.grants or () for part in grant.parts)
        for owner in dict.fromkeys((*OWNERS, *sorted(owners))):
            yield Sample("grants", {"owner": owner}, owners[owner])
    yield Sample("ledger_readable", {}, known)
    yield Sample("claims", {}, claims)
    for rule, count in sorted(Counter(one.rule for one in host.findings).items()):
        yield Sample("findings", {"rule": rule}, count)
    yield Sample("problems", {}, len(host.findings))
    written: dict[str, int] = {}
    for path, record in view.wanted.manifest.files.items():
        if record["kind"] and os.path.lexists(path):
            at = int(os.lstat(path).st_mtime)
            written[record["kind"]] = min(at, written.get(record["kind"], at))
    for kind, at in sorted(written.items()):
        yield Sample("spec_written_timestamp_seconds", {"kind": kind}, at)


def _of_refresh(last: Optional[LastRefresh]) -> Iterator[Sample]:
    if last:
        yield Sample("refresh_finished_timestamp_seconds", {}, last.finished)
        yield Sample("refresh_duration_seconds", {}, last.seconds)
        yield Sample("refresh_success", {}, last.ok)
        yield Sample("refresh_devices_missing", {}, last.missing)


def _build(places: Layout) -> Sample:
    release = guard.active(places.prefix) or ""
    labels = {"version": release.rpartition("-")[0], "release": release, "python": platform.python_version()}
    return Sample("build_info", labels, 1)
