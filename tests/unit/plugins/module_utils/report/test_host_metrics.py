# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of this machine: its memory devices as a kind, a request that holds one, and Prometheus' own readers."""

from __future__ import annotations

import os
import re
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimRecord, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.cli import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge import last_refresh
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.metrics import Sample
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.report import host_metrics
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.report.test_host_report_info import KIND, Host

HOSTILE = 'a"b\\\n\x1b[2J{}'


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A look at the processes of this machine misses none, as root's look on a host."""
    look = openers.look
    monkeypatch.setattr(openers, "look", lambda wanted: look(wanted)._replace(unseen=0, trouble=""))
    return Host(tmp_path)


def run(host, *words):
    places = host.places
    return main([*words], "test", places._asdict())


def values(host):
    text = host_metrics.metrics_text(host.places)
    return dict(re.findall(r"^fleet_cdi_(\S+) (\S+)$", text, re.M))


def test_devices_grants_findings_and_refresh(host):
    assert run(host, "refresh", "--no-claims") == 0
    host.hold("full")
    found = values(host)
    assert found[f'devices{{kind="{KIND}",state="healthy"}}'] == "2"
    assert found[f'devices{{kind="{KIND}",state="gone"}}'] == "0"
    assert found[f'devices_held{{kind="{KIND}"}}'] == "1"
    assert found['grants{owner="claims"}'] == "1" and found["ledger_readable"] == "1"
    assert (found["refresh_success"], found["refresh_devices_missing"]) == ("1", "0")
    assert 0 <= time.time() - float(found["refresh_finished_timestamp_seconds"]) < 600
    assert 0 <= float(found["refresh_duration_seconds"]) < 600
    assert found[f'devices_open{{kind="{KIND}"}}'] == "0" and found["claims"] == "0"
    assert found[f'spec_written_timestamp_seconds{{kind="{KIND}"}}'] == str(int(host.spec.stat().st_mtime))
    host.spec.write_text("{}")
    found = values(host)
    counts = [int(value) for name, value in found.items() if name.startswith("findings{")]
    assert counts and sum(counts) == int(found["problems"])


def test_the_time_of_a_kind_is_that_of_its_oldest_spec(host):
    newer = host.spec.with_name("vendor.com-more.json")
    with locked_manifest(host.places.state_dir) as manifest:
        manifest.write(str(newer), b"{}", KIND)
    os.utime(host.spec, (1000, 1000))
    os.utime(newer, (2000, 2000))
    assert values(host)[f'spec_written_timestamp_seconds{{kind="{KIND}"}}'] == "1000"


def test_processes_that_nobody_can_see_leave_out_who_has_devices_open(host, monkeypatch):
    monkeypatch.setattr(openers, "look", lambda _wanted: openers.OpenersSeen(unseen=1))
    found = values(host)
    assert found[f'devices{{kind="{KIND}",state="healthy"}}'] == "2"
    assert not any(name.startswith("devices_open") for name in found)


def test_claims_are_counted(host):
    os.mkdir(os.path.join(host.places.state_dir, "claims"))
    for id_ in ("job-1", "job-2"):
        store.write_claim(host.places.state_dir, ClaimRecord(WantedClaim(id_, {"memory": 1}), token="0011"))
    assert values(host)["claims"] == "2"


def test_an_unreadable_ledger_counts_nothing(host):
    host.hold("full")
    with open(os.path.join(host.places.state_dir, "ledger.db"), "wb") as file:
        file.write(b"x" * 5000)
    found = values(host)
    assert found["ledger_readable"] == "0"
    assert not any(name.startswith(("grants", "devices_held")) for name in found)


def test_a_failed_refresh_is_noted_and_a_check_is_not(host, monkeypatch):
    def broken(*_arguments, **_options):
        raise CdiError("broken")

    monkeypatch.setattr(refresh, "refresh", broken)
    assert run(host, "refresh", "--check") == 2 and last_refresh.last_refresh(host.places.inventory) is None
    assert run(host, "refresh") == 2
    assert values(host)["refresh_success"] == "0"


def test_undo_takes_the_note(host):
    assert run(host, "refresh", "--no-claims") == 0
    assert os.path.exists(last_refresh.note_path(host.places.inventory))
    undo(host.places)
    assert not os.path.exists(last_refresh.note_path(host.places.inventory))


def test_a_note_that_can_not_go_hides_nothing_that_went(host):
    listing = host.places.inventory
    os.mkdir(last_refresh.note_path(listing))
    previewed = undo(host.places, check=True)
    done = undo(host.places)
    assert done.removed == previewed.removed and listing in done.removed and not os.path.exists(listing)
    ((path, why),) = done.kept
    assert path == last_refresh.note_path(listing) and path in why


def test_the_note_beside_an_inventory_that_was_kept_goes_with_it(host):
    assert run(host, "refresh", "--no-claims") == 0
    listing, note = host.places.inventory, last_refresh.note_path(host.places.inventory)
    with open(listing, "rb") as file:
        ours = file.read()
    with open(listing, "wb") as file:
        file.write(b"theirs")
    assert [path for path, _why in undo(host.places).kept] == [listing]
    with open(note, "w", encoding="utf-8"), open(listing, "wb") as file:  # a refresh that ran meanwhile
        file.write(ours)
    assert undo(host.places).kept == () and not os.path.exists(note)


@pytest.mark.parametrize("text", ["", "x", "[]", '{"finished": "x"}', '{"finished": 1, "seconds": 1}'])
def test_a_damaged_note_is_none(tmp_path, text):
    listing = str(tmp_path / "inventory.json")
    with open(last_refresh.note_path(listing), "w", encoding="utf-8") as file:
        file.write(text)
    assert last_refresh.last_refresh(listing) is None


def everything():
    labels = {"kind": HOSTILE}
    return host_metrics.render([Sample(name, labels, 1.5) for name in host_metrics.GAUGES])


def test_the_parser_of_prometheus_reads_every_metric():
    parser = pytest.importorskip("prometheus_client.parser", reason="missing packages: prometheus-client")
    families = list(parser.text_string_to_metric_families(everything()))
    assert [one.name for one in families] == [f"fleet_cdi_{name}" for name in host_metrics.GAUGES]
    assert all(one.type == "gauge" and one.documentation and one.samples[0].value == 1.5 for one in families)
    assert "\x1b" not in everything()


def test_the_file_is_replaced_whole_and_no_link_is_followed(host, tmp_path):
    places = tmp_path / "textfile"
    places.mkdir()
    for _twice in range(2):
        assert run(host, "metrics", "--output", str(places / "x.prom")) == 0
    assert [one.name for one in places.iterdir()] == ["x.prom"] and places.joinpath(
        "x.prom"
    ).stat().st_mode & 0o777 == 0o644
    (tmp_path / "link").symlink_to(places)
    (places / "y.prom").symlink_to(tmp_path / "victim")
    for path in (tmp_path / "link/z.prom", places / "y.prom", places / "name.txt", tmp_path / "none/x.prom"):
        assert run(host, "metrics", "--output", str(path)) == 2
    assert not (tmp_path / "victim").exists() and not (places / "z.prom").exists()


@pytest.mark.parametrize(("content", "status"), [("", 0), ("# HELP node_x Y.\n", 2), ("fleet_cdi_x 1\n", 2), ("\0", 2)])
def test_a_file_of_another_program_stays(host, tmp_path, capsys, content, status):
    path = tmp_path / "x.prom"
    path.write_text(content)
    assert run(host, "metrics", "--output", str(path)) == status
    assert (path.read_text() == content) == (status == 2)
    assert status == 0 or f"{path}: found a file of another program" in capsys.readouterr().err


def test_a_directory_of_another_user_is_fine_for_this_file(host, tmp_path):
    """Debian's prometheus owns /var/lib/prometheus; what others may swap leads to directories of their own alone."""
    if os.geteuid():
        pytest.skip("only root has other users' directories")
    theirs = tmp_path / "theirs"
    (theirs / "node-exporter").mkdir(parents=True)
    os.chown(theirs, 65534, 65534)
    assert run(host, "metrics", "--output", str(theirs / "node-exporter/x.prom")) == 0
    (theirs / "moved").symlink_to("/etc")
    assert run(host, "metrics", "--output", str(theirs / "moved/x.prom")) == 2 and not os.path.exists("/etc/x.prom")
