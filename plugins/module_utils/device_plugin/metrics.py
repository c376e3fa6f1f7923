# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters and histograms, as Prometheus reads them, and the little HTTP that hands them out. Private API of fleet.cdi.

Text format 0.0.4 (prometheus.io, "Exposition formats"). What has a state is not counted but looked at when somebody
asks, so that it can't go wrong: the daemon gives a function for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.safe_text import one_line

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
PATIENCE = 5.0  # seconds that a client may take to say what it wants, or to read it
LONGEST = 8192  # bytes of a request
CLIENTS = 16  # at a time; more are turned away

# Name -> (type, help). Every sample that is given out is of one of these.
METRICS: Mapping[str, tuple[str, str]] = {
    "devices": ("gauge", "Devices that the kubelet was told of, by state."),
    "device_fault": ("gauge", "1 for each device that is Unhealthy, with the reason."),
    "registered": ("gauge", "1 while the kubelet listens to the resource."),
    "resource_state": ("gauge", "1 for the state that the registration of a resource is in."),
    "streams": ("gauge", "Open ListAndWatch streams."),
    "registrations_total": ("counter", "Registrations after which the kubelet's ListAndWatch arrived."),
    "registration_failures_total": ("counter", "Registrations that failed, by reason."),
    "stream_ends_total": ("counter", "Streams that the kubelet ended."),
    "updates_total": ("counter", "Lists that were made for ListAndWatch."),
    "allocations_total": ("counter", "Containers that got their devices."),
    "allocation_failures_total": ("counter", "Containers that were refused, by reason."),
    "preferences_total": ("counter", "Answers to GetPreferredAllocation."),
    "preference_fallbacks_total": ("counter", "Of these, the ones that fell back to the first that fit."),
    "released_total": ("counter", "Holds that went back to the ledger because no pod has the device any more."),
    "reloads_total": ("counter", "Configurations that were read, by result."),
    "polling": ("gauge", "1 where the host has no inotify left and files are looked at every second."),
    "config_error": ("gauge", "1 where a configuration waits to be mended and the one before is in force."),
    "start_time_seconds": ("gauge", "When this instance started, in seconds of the epoch."),
    "resident_memory_bytes": ("gauge", "Resident memory of this instance."),
    "register_seconds": ("histogram", "From the first try to register until ListAndWatch arrived."),
    "allocate_seconds": ("histogram", "What Allocate took."),
    "prefer_seconds": ("histogram", "What GetPreferredAllocation took."),
    "look_seconds": ("histogram", "What one look at specs, inventory, devices and ledger took."),
}
PREFIX = "fleet_cdi_plugin_"

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value of a metric."""

    metric: str
    labels: Mapping[str, str]
    value: float


class Metrics:
    """What is counted. One thread alone writes and renders."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], list[float]] = {}

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        key = (metric, tuple(sorted(labels.items())))
        self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, metric: str, value: float, **labels: str) -> None:
        """Put `value` into a histogram."""
        key = (metric, tuple(sorted(labels.items())))
        cells = self._histograms.setdefault(key, [0.0] * (len(BUCKETS) + 2))  # the buckets, the sum, how many
        for index, limit in enumerate(BUCKETS):
            if value <= limit:
                cells[index] += 1
        cells[-2] += value
        cells[-1] += 1

    def forget(self, resource: str) -> None:
        """Drop what was counted of a resource that is served no more."""
        mine = ("resource", resource)
        self._counts = {key: value for key, value in self._counts.items() if mine not in key[1]}
        self._histograms = {key: cells for key, cells in self._histograms.items() if mine not in key[1]}

    def render(self, gauges: Iterable[Sample] = ()) -> str:
        """All of it as text, with the samples of `gauges`."""
        samples: dict[str, list[str]] = {}
        for sample in gauges:
            samples.setdefault(sample.metric, []).append(_line(sample.metric, sample.labels, sample.value))
        for (metric, labels), value in sorted(self._counts.items()):
            samples.setdefault(metric, []).append(_line(metric, dict(labels), value))
        for (metric, labels), cells in sorted(self._histograms.items()):
            samples.setdefault(metric, []).extend(_histogram(metric, dict(labels), cells))
        lines = []
        for metric, (kind, text) in METRICS.items():
            if metric in samples:
                lines += [f"# HELP {PREFIX}{metric} {text}", f"# TYPE {PREFIX}{metric} {kind}", *samples[metric]]
        return "\n".join(lines) + "\n"


def _histogram(metric: str, labels: Mapping[str, str], cells: Sequence[float]) -> list[str]:
    limits = [*(f"{limit:g}" for limit in BUCKETS), "+Inf"]
    counts = [*cells[: len(BUCKETS)], cells[-1]]
    lines = [_line(f"{metric}_bucket", {**labels, "le": le}, count) for le, count in zip(limits, counts)]
    return [*lines, _line(f"{metric}_sum", labels, cells[-2]), _line(f"{metric}_count", labels, cells[-1])]


def _line(metric: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return f"{PREFIX}{metric}{{{inside}}} {value:.10g}" if inside else f"{PREFIX}{metric} {value:.10g}"


def _escaped(text: str) -> str:
    lines = (one_line(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return "\\n".join(lines)  # the format's own escape


def address(text: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:9400", "[::1]:9400" or ":9400" (every address). Raises CdiError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CdiError(f"metrics: found {text!r}; expected host:port, as 127.0.0.1:9400")
    return host.strip("[]"), int(port)


async def serve(where: str, text: Callable[[], str], lacking: Callable[[], str] = str) -> Any:
    """Answer GET /metrics with what `text` gives; returns an asyncio.Server. Raises CdiError, also for a taken port.

    For the probes of a pod: /healthz answers while the daemon works, /readyz with 503 and what `lacking` says, "" for
    nothing.
    """
    host, port = address(where)
    clients: set[Any] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.add(writer)
        try:
            if len(clients) <= CLIENTS:
                writer.transport.set_write_buffer_limits(0)  # so that `drain` waits for all of it
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
                writer.write(_response(head, text, lacking))
                await asyncio.wait_for(writer.drain(), PATIENCE)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that says nothing, or too much, or went away
        finally:
            clients.discard(writer)
            writer.transport.abort()  # to close it would wait for whoever does not read, for ever

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
