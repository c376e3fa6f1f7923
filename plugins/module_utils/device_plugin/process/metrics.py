# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Count for Prometheus, and serve the metrics by HTTP.

The format is text format 0.0.4 (prometheus.io, "Exposition formats"). Gauges are computed at each request, from the
state itself, so that they are always right: the daemon passes a function for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ...records import CdiError
from ...safe_text import one_line
from ..config.faults import CLASSES
from .instance_status import STATES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
PATIENCE = 5.0  # seconds that a client may take to send the request, or to read the answer
LONGEST = 8192  # bytes of a request
CLIENTS = 16  # at a time; one more sends the one that is here longest away

# All values of labels. Text from outside must not become a label: each value is a series that is kept for months.
OTHER = "other"
LABELS: Mapping[str, Sequence[str]] = {
    "state of devices": ("healthy", "unhealthy", "taken"),
    "state": STATES,
    "fault": (*sorted(CLASSES), OTHER),
    "registration": ("arrival", "conflict", "final", "notified", "restart", "serve", "socket", "stream", OTHER),
    "allocation": (*sorted(CLASSES), "defect", "error", "request", "several", "shutdown", "time", OTHER),
    "delivery": ("cdi", "annotations", "expanded", "cdi+annotations", "cdi+annotations+expanded", OTHER),
    "result": ("ok", "error"),
}


class Metric(NamedTuple):
    """A metric. `label`: its name besides resource and device, and the entry of LABELS with its values."""

    kind: str
    help: str
    label: tuple[str, str] = ("", "")
    of_resource: bool = True


# All metrics. The names process_* are those of the Prometheus client libraries.
METRICS: Mapping[str, Metric] = {
    "devices": Metric("gauge", "Devices that the kubelet was told of, by state.", ("state", "state of devices")),
    "device_fault": Metric("gauge", "1 for each Unhealthy device, by class of the reason.", ("reason", "fault")),
    "registered": Metric("gauge", "1 while the kubelet listens to the resource."),
    "resource_state": Metric("gauge", "1 for the state that the registration of a resource is in.", ("state", "state")),
    "streams": Metric("gauge", "Open ListAndWatch streams."),
    "registrations_total": Metric("counter", "Registrations after which the kubelet's ListAndWatch arrived."),
    "registration_failures_total": Metric(
        "counter", "Registrations that failed, by reason.", ("reason", "registration")
    ),
    "stream_ends_total": Metric("counter", "Streams that the kubelet ended."),
    "updates_total": Metric("counter", "Lists that were made for ListAndWatch."),
    "allocations_total": Metric(
        "counter", "Containers that got their devices, by the way in which they did.", ("delivery", "delivery")
    ),
    "allocation_failures_total": Metric(
        "counter", "Calls of Allocate and PreStartContainer that were refused, by reason.", ("reason", "allocation")
    ),
    "preferences_total": Metric("counter", "Answers to GetPreferredAllocation."),
    "preference_fallbacks_total": Metric("counter", "Of these, the ones that fell back to the first that fit."),
    "released_total": Metric("counter", "Holds that went back to the ledger because no pod has the device any more."),
    "register_seconds": Metric("histogram", "From the first try to register until ListAndWatch arrived."),
    "allocate_seconds": Metric("histogram", "What Allocate took."),
    "prefer_seconds": Metric("histogram", "What GetPreferredAllocation took."),
    "reloads_total": Metric("counter", "Configurations that were read, by result.", ("result", "result"), False),
    "look_seconds": Metric("histogram", "What one look at specs, inventory, devices and ledger took.", ("", ""), False),
    "polling": Metric("gauge", "1 where the host has no inotify left and files are looked at every second."),
    "config_error": Metric("gauge", "1 where the configuration has an error and the one before is in force."),
    "build_info": Metric("gauge", "1, with the collection's version, the release on this host and Python's version."),
    "process_cpu_seconds_total": Metric(
        "counter", "User and system CPU time of this instance, in seconds.", ("", ""), False
    ),
    "process_open_fds": Metric("gauge", "Open file descriptors."),
    "process_max_fds": Metric("gauge", "Most file descriptors that may be open."),
    "process_resident_memory_bytes": Metric("gauge", "Resident memory of this instance."),
    "process_virtual_memory_bytes": Metric("gauge", "Virtual memory of this instance."),
    "process_start_time_seconds": Metric("gauge", "When this instance started, in seconds of the epoch."),
}
PREFIX = "fleet_cdi_plugin_"

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value of a metric."""

    metric: str
    labels: Mapping[str, str]
    value: float


class Metrics:
    """All counters and histograms. Only one thread may write and render."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], list[float]] = {}
        self._begin(False)

    def begin(self, resource: str) -> None:
        """Start all counters of a resource at 0: Prometheus computes no rate of a counter that appears with 1."""
        self._begin(True, resource=resource)

    def _begin(self, of_resource: bool, **labels: str) -> None:
        for name, metric in METRICS.items():
            label, values = metric.label
            if metric.of_resource != of_resource or name.startswith("process_"):
                continue
            if metric.kind == "counter":
                for value in LABELS[values] if label else ("",):
                    self.count(name, 0, **labels, **({label: value} if label else {}))
            elif metric.kind == "histogram":
                self._cells(name, labels)

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        key = (metric, tuple(sorted(_fixed(metric, labels).items())))
        self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, metric: str, value: float, **labels: str) -> None:
        """Add `value` to a histogram."""
        cells = self._cells(metric, labels)
        for index, limit in enumerate(BUCKETS):
            if value <= limit:
                cells[index] += 1
        cells[-2] += value
        cells[-1] += 1

    def _cells(self, metric: str, labels: Mapping[str, str]) -> list[float]:
        """Return the cells of a histogram: the buckets, the sum, the count."""
        key = (metric, tuple(sorted(labels.items())))
        return self._histograms.setdefault(key, [0.0] * (len(BUCKETS) + 2))

    def forget(self, resource: str) -> None:
        """Drop the counts of a resource that is no longer served."""
        mine = ("resource", resource)
        self._counts = {key: value for key, value in self._counts.items() if mine not in key[1]}
        self._histograms = {key: cells for key, cells in self._histograms.items() if mine not in key[1]}

    def render(self, gauges: Iterable[Sample] = ()) -> str:
        """Return all metrics as text, with the samples of `gauges`."""
        samples: dict[str, list[str]] = {}
        for sample in gauges:
            samples.setdefault(sample.metric, []).append(_line(sample.metric, _fixed(*sample[:2]), sample.value))
        for (metric, labels), value in sorted(self._counts.items()):
            samples.setdefault(metric, []).append(_line(metric, dict(labels), value))
        for (metric, labels), cells in sorted(self._histograms.items()):
            samples.setdefault(metric, []).extend(_histogram(metric, dict(labels), cells))
        lines = []
        for metric, (kind, text, *_rest) in METRICS.items():
            if metric in samples:
                name = full_name(metric)
                lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples[metric]]
        return "\n".join(lines) + "\n"


def full_name(metric: str) -> str:
    """Return the exported name of a metric of METRICS."""
    return metric if metric.startswith("process_") else PREFIX + metric


def _fixed(metric: str, labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels, with OTHER for a value that LABELS does not have."""
    label, values = METRICS[metric].label
    return {**labels, label: OTHER} if label in labels and labels[label] not in LABELS[values] else labels


def _histogram(metric: str, labels: Mapping[str, str], cells: Sequence[float]) -> list[str]:
    limits = [*(f"{limit:g}" for limit in BUCKETS), "+Inf"]
    counts = [*cells[: len(BUCKETS)], cells[-1]]
    lines = [_line(f"{metric}_bucket", {**labels, "le": le}, count) for le, count in zip(limits, counts)]
    return [*lines, _line(f"{metric}_sum", labels, cells[-2]), _line(f"{metric}_count", labels, cells[-1])]


def _line(metric: str, labels: Mapping[str, str], value: float) -> str:
    return sample_line(full_name(metric), labels, value)


def sample_line(name: str, labels: Mapping[str, str], value: float) -> str:
    """Return one sample of the exported metric `name`; any text may be a label's value."""
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    number = f"{value:.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.10g}"
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(text: str) -> str:
    lines = (one_line(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return "\\n".join(lines)  # the escape of the format


def address(text: str) -> tuple[str, int]:
    """Return host and port of "127.0.0.1:9400", "[::1]:9400" or ":9400" (every address). Raises CdiError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CdiError(f"metrics: found {text!r}; expected host:port, as 127.0.0.1:9400")
    return host.strip("[]"), int(port)


async def serve(where: str, text: Callable[[], str], lacking: Callable[[], str] = str) -> Any:
    """Answer GET /metrics with the result of `text`; return an asyncio.Server. Raises CdiError, also for a used port.

    For the probes of a pod, /healthz answers 200 while the daemon works. /readyz answers 200 if `lacking` returns "",
    otherwise 503 with the text of `lacking`.
    """
    host, port = address(where)
    clients: dict[Any, None] = {}  # in the order in which they came

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients[writer] = None
        if len(clients) > CLIENTS:  # else clients that say nothing would keep others away, and the kubelet's probes
            oldest = next(iter(clients))
            del clients[oldest]
            oldest.transport.abort()
        try:
            writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until all is sent
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            writer.write(_response(head, text, lacking))
            await asyncio.wait_for(writer.drain(), PATIENCE)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that sends nothing or too much, or disconnected
        finally:
            clients.pop(writer, None)
            writer.transport.abort()  # `close` would wait for ever for a client that does not read

    try:
        return await asyncio.start_server(answer, host or None, port, limit=LONGEST)
    except OSError as error:
        raise CdiError(f"metrics: can't listen on {where}: {error.strerror or error}; choose another address") from None


def _response(head: bytes, text: Callable[[], str], lacking: Callable[[], str]) -> bytes:
    words = head.split(b"\r\n", 1)[0].split(b" ")
    path = words[1].split(b"?")[0] if len(words) == 3 else b""
    if words[0] not in (b"GET", b"HEAD"):
        status, body = "405 Method Not Allowed", "GET /metrics\n"
    elif path == b"/metrics":
        status, body = "200 OK", text()
    elif path == b"/healthz" or (path == b"/readyz" and not lacking()):
        status, body = "200 OK", "ok\n"
    elif path == b"/readyz":
        status, body = "503 Service Unavailable", f"{one_line(lacking())}\n"
    else:
        status, body = "404 Not Found", "GET /metrics\n"
    content = body.encode()
    lines = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {CONTENT_TYPE}",
        f"Content-Length: {len(content)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + (b"" if words[0] == b"HEAD" else content)
