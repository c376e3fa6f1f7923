# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's metrics, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import io
import re
import socket
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import publisher, status_document
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.device_list import (
    MOST,
    Advertised,
    summary_of,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import registration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import metrics
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.instance_status import InstanceEntry
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import Log
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.metrics import (
    METRICS,
    PREFIX,
    Metrics,
    Sample,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

DOCS = Path(__file__).resolve().parents[6] / "docs/device-plugin.md"
LABEL = r'[a-z]+="(?:[^"\\\n]|\\[\\"n])*"'
LINE = re.compile(rf"(?:{PREFIX}|process_)[a-z_]+(?:{{(?:{LABEL},?)*}})? -?[0-9.e+]+(?:inf)?")


def test_metrics_are_in_the_format_of_prometheus() -> None:
    found = Metrics()
    found.count("updates_total", resource="a.com/x")
    found.count("updates_total", 2, resource="a.com/x")
    found.observe("allocate_seconds", 0.004, resource="a.com/x")
    found.observe("allocate_seconds", 60.0, resource="a.com/x")
    text = found.render([Sample("device_fault", {"device": 'has "quotes", \\ and\nlines', "reason": "taken"}, 1)])
    values = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in values), [line for line in values if not LINE.fullmatch(line)]
    assert f'{PREFIX}updates_total{{resource="a.com/x"}} 3' in values
    assert f'{PREFIX}allocate_seconds_bucket{{resource="a.com/x",le="0.0025"}} 0' in values
    assert f'{PREFIX}allocate_seconds_bucket{{resource="a.com/x",le="0.005"}} 1' in values
    assert f'{PREFIX}allocate_seconds_bucket{{resource="a.com/x",le="+Inf"}} 2' in values
    assert f'{PREFIX}allocate_seconds_count{{resource="a.com/x"}} 2' in values
    assert f'{PREFIX}device_fault{{device="has \\"quotes\\", \\\\ and\\nlines",reason="taken"}} 1' in values
    for name, metric in METRICS.items():
        full = metrics.full_name(name)
        assert text.count(f"# TYPE {full} {metric.kind}\n") == any(line.startswith(full) for line in values)


def whole() -> str:
    """The metrics of a daemon with one resource, at which nothing happened yet, and one device that is ill."""
    found = Metrics()
    found.begin("a.com/x")
    served: Any = SimpleNamespace(
        name="a.com/x",
        state="registered",
        roster=SimpleNamespace(
            summary=summary_of([Advertised("d0", False, (), "device: ECC error 0xdeadbeef at 17:03")])
        ),
        feed=SimpleNamespace(streams=[1]),
    )
    return found.render((*status_document.gauges([served]), *status_document.of_process(1.5, False, False)))


def test_prometheus_own_parser_reads_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_document, "release", lambda: "0.1.0-0123456789ab")
    parser = pytest.importorskip("prometheus_client.parser", reason="missing packages: prometheus-client")
    families = {family.name: family for family in parser.text_string_to_metric_families(whole())}
    names = {metrics.full_name(name) for name in METRICS}
    assert {name.removesuffix("_total") for name in names} == families.keys()
    for family in families.values():
        assert family.documentation and family.samples, family.name
    assert families["process_start_time_seconds"].samples[0].value == 1.5
    assert families["process_resident_memory_bytes"].samples[0].value > 1 << 20
    assert families["process_open_fds"].samples[0].value >= 3
    (build,) = families["fleet_cdi_plugin_build_info"].samples
    assert build.value == 1 and (build.labels["version"], build.labels["release"]) == ("0.1.0", "0.1.0-0123456789ab")


def test_everything_that_is_counted_is_there_before_its_first_event() -> None:
    text = whole()
    for name, metric in METRICS.items():
        if metric.kind == "counter" and not name.startswith("process_"):
            values = re.findall(rf"^{PREFIX}{name}(?:{{.*}})? (.*)$", text, re.M)
            assert len(values) == len(metrics.LABELS.get(metric.label[1], [""])), name
            assert set(values) == {"0"}, name
        elif metric.kind == "histogram":
            assert re.search(rf"^{PREFIX}{name}_count(?:{{.*}})? 0$", text, re.M), name


def test_no_label_has_a_text_of_others() -> None:
    found = Metrics()
    found.count("allocation_failures_total", resource="a.com/x", reason="a text, of anybody's")
    text = found.render([Sample("device_fault", {"device": "d0", "reason": "node-missing: /dev/x"}, 1)])
    assert f'{PREFIX}allocation_failures_total{{reason="other",resource="a.com/x"}} 1' in text
    assert f'{PREFIX}device_fault{{device="d0",reason="other"}} 1' in text
    assert 'reason="device"' in whole() and "deadbeef" not in whole()


def test_the_reasons_of_registrations_are_in_the_table() -> None:
    said = re.findall(r'(?:Failed\(|reason=)"([a-z]+)"', Path(registration.__file__).read_text(encoding="utf-8"))
    assert {*said, metrics.OTHER} == set(metrics.LABELS["registration"])


def test_the_docs_list_each_metric() -> None:
    _before, _heading, text = DOCS.read_text(encoding="utf-8").partition("\n## Metrics\n")
    listed = re.findall(r"^\| `([a-z_]+)` \|", text.partition("\n| label |")[0], re.M)
    assert sorted(listed) == sorted(METRICS)


def test_devices_are_counted_and_those_that_are_ill_are_named_up_to_a_number() -> None:
    well = [Advertised(f"w{number}", True) for number in range(3)]
    taken = [Advertised("t", False, (), "taken: by request 7 of gpu/gpu")]
    ill = [Advertised(f"i{number}", False, (), "node-missing: /dev/x is gone") for number in range(MOST)]
    served: Any = SimpleNamespace(
        name="a.com/x", state="registered", roster=SimpleNamespace(summary=summary_of([*well, *taken, *ill]))
    )
    served.feed = SimpleNamespace(streams=[1])
    values = Metrics().render(status_document.gauges([served])).splitlines()
    for state, number in {"healthy": 3, "taken": 1, "unhealthy": MOST}.items():
        assert f'{PREFIX}devices{{resource="a.com/x",state="{state}"}} {number}' in values
    assert f'{PREFIX}device_fault{{resource="a.com/x",device="i0",reason="node-missing"}} 1' in values
    assert sum(line.startswith(f"{PREFIX}device_fault{{") for line in values) == MOST
    assert [line for line in values if line.startswith(f"{PREFIX}resource_state") and line.endswith(" 1")] == [
        f'{PREFIX}resource_state{{resource="a.com/x",state="registered"}} 1'
    ]


def test_what_a_dropped_resource_counted_is_gone() -> None:
    found = Metrics()
    found.begin("a.com/x")
    found.observe("prefer_seconds", 0.1, resource="a.com/y")
    found.forget("a.com/x")
    assert "a.com/x" not in found.render()
    assert "a.com/y" in found.render()


@pytest.mark.parametrize("where", ["9400", "localhost", "localhost:", "localhost:http", "localhost:70000"])
def test_an_address_is_host_and_port(where: str) -> None:
    with pytest.raises(CdiError, match="expected host:port"):
        metrics.address(where)


REQUESTS = [
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK", b"the text"),
    (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK", b"the text"),
    (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK", b""),
    (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found", b"GET /metrics\n"),
    (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed", b"GET /metrics\n"),
    (b"\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed", b"GET /metrics\n"),
    (b"GET /" + b"x" * 20000, b"", b""),
]


async def serving(text: str) -> tuple[Any, int]:
    """A server of this text, and its port, which the kernel chose."""
    server = await metrics.serve("127.0.0.1:0", lambda: text)
    return server, int(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(("request_", "status", "body"), REQUESTS)
def test_http(request_: bytes, status: bytes, body: bytes) -> None:
    async def scene() -> bytes:
        server, port = await serving("the text")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            server.close()

    answer = asyncio.run(scene())
    assert answer.split(b"\r\n")[0] == status
    assert answer.partition(b"\r\n\r\n")[2] == body


def test_a_client_that_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PATIENCE", 0.1)

    async def scene() -> bytes:
        server, port = await serving("the text")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await asyncio.wait_for(reader.read(), 30)
        finally:
            writer.close()
            server.close()

    assert asyncio.run(scene()) == b""


def test_a_client_that_does_not_read_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what it does not read is kept for it, with its connection, for as long as it likes."""
    monkeypatch.setattr(metrics, "PATIENCE", 0.1)
    length = 50_000_000  # more than the kernel keeps

    async def scene() -> int:
        server, port = await serving("x" * length)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1)
        found = 0
        with suppress(ConnectionResetError):
            while part := await asyncio.wait_for(reader.read(1 << 20), 30):
                found += len(part)
        writer.close()
        server.close()
        return found

    assert asyncio.run(scene()) < length


def test_clients_that_say_nothing_keep_nobody_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else any process that reaches the port could make the kubelet's probes fail, and have it restart the plugin."""
    monkeypatch.setattr(metrics, "PATIENCE", 3600.0)

    async def scene() -> tuple[bytes, list[int]]:
        server, port = await serving("the text")
        idle = [await asyncio.open_connection("127.0.0.1", port) for _client in range(metrics.CLIENTS + 3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 30)
        await asyncio.sleep(0.1)
        ended = [number for number, (other, _writer) in enumerate(idle) if other.at_eof() or other.exception()]
        for _reader, writer in idle:
            writer.close()
        server.close()
        return answer, ended

    answer, ended = asyncio.run(scene())
    assert answer.endswith(b"the text")
    assert ended == [0, 1, 2, 3], "the oldest are sent away, and no more than has to be"


def test_the_release_is_the_one_whose_directory_the_code_lies_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert status_document.release() == "", "a checkout is none"
    code = "ansible_collections/fleet/cdi/plugins/module_utils/device_plugin/daemon/status_document.py"
    monkeypatch.setattr(status_document, "__file__", f"/opt/cdi/lib/0.1.0-95b2cc14fefb/{code}")
    assert status_document.release() == "0.1.0-95b2cc14fefb"


def test_an_address_in_use_is_said_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(CdiError, match="choose another address"):
            asyncio.run(metrics.serve(where, lambda: ""))


def test_an_address_that_is_free_again_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in an upgrade: the older instance has it until the newer one has taken over."""
    monkeypatch.setattr(publisher, "AGAIN", 0.05)

    async def scene() -> list[str]:
        stream = io.StringIO()
        tasks: set[asyncio.Future[None]] = set()
        teller = publisher.Teller(
            InstanceEntry(str(tmp_path), "b"), Log(stream), dict, lambda work: tasks.add(asyncio.ensure_future(work))
        )
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            await teller.metrics_at(f"127.0.0.1:{port}", lambda: "the text")
            await asyncio.sleep(0.2)
        for _attempt in range(100):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"the text")
        writer.close()
        await teller.metrics_at("")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        return re.findall(r" event=(\w+)", stream.getvalue())

    assert asyncio.run(scene()) == ["warning", "metrics"], "what is tried again is said once"
