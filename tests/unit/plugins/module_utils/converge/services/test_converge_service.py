# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units with which a host converges itself: real files, with a systemctl that only remembers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Optional

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import (
    converge_service,
    converge_unit,
    refresh_unit,
    units,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.converge_unit import ConvergeUnit
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.services.test_refresh_service import Systemd

TIMER = converge_unit.CONVERGE_TIMER


class HostByItself:
    """A host below a directory."""

    def __init__(self, top: Path) -> None:
        self.top, self.systemd = top, Systemd(top)
        self.state_dir, self.file = str(top / "state"), top / "etc/settings.json"

    def install(self, content: Optional[bytes] = b"{}\n", check: bool = False, **options: Any) -> dict[str, Any]:
        settings = ConvergeUnit(str(self.file))._replace(**options)
        return converge_service.install(settings, content, self.state_dir, check, self.systemd, True)

    def uninstall(self, check: bool = False) -> dict[str, Any]:
        return converge_service.uninstall(self.state_dir, check, self.systemd, True)

    def everything(self) -> dict[str, bytes]:
        every = (path for path in self.top.rglob("*") if path.is_file() and path.name != ".lock")
        return {str(path.relative_to(self.top)): path.read_bytes() for path in every}

    @property
    def told(self) -> list[str]:
        found, self.systemd.told = list(self.systemd.told), []
        return found


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostByItself:
    for module in (units, converge_unit, refresh_unit):
        monkeypatch.setattr(module, "UNIT_DIR", str(tmp_path / "units"))
    monkeypatch.setattr(units.shutil, "which", lambda name: f"/usr/bin/{name}")
    return HostByItself(tmp_path)


def test_check_mode_shows_what_a_run_does_and_a_second_run_does_nothing(host: HostByItself) -> None:
    shown = host.install(check=True)
    assert host.everything() == {} and host.told == []
    assert host.install() == shown and shown["changed"]
    assert set(host.everything()) == {
        "etc/settings.json",
        f"units/{TIMER}",
        f"units/{converge_unit.CONVERGE_SERVICE}",
        "state/manifest.json",
    }
    assert host.told == [f"systemctl enable {TIMER}", f"systemctl restart {TIMER}"]
    assert host.install() == {"changed": False, "diff": []} and host.told == []


def test_other_settings_start_no_run_by_themselves(host: HostByItself) -> None:
    host.install()
    host.told.clear()
    host.systemd.told = []
    assert host.install(b'{"prune": false}\n')["changed"]
    assert host.file.read_bytes() == b'{"prune": false}\n' and host.told == [f"systemctl enable {TIMER}"]
    host.install(b'{"prune": false}\n', interval=600)
    assert host.told == ["systemctl daemon-reload", f"systemctl enable {TIMER}", f"systemctl restart {TIMER}"]


def test_a_run_that_reads_the_file_leaves_it(host: HostByItself) -> None:
    host.file.parent.mkdir()
    host.file.write_text("devices: {}  # the site's\n")
    host.install(None)
    assert host.file.read_text() == "devices: {}  # the site's\n"
    host.uninstall()
    assert set(host.everything()) == {"etc/settings.json"}


def test_a_file_of_the_site_is_not_replaced(host: HostByItself) -> None:
    host.file.parent.mkdir()
    host.file.write_text("devices: {}\n")
    with pytest.raises(CdiError, match=r"settings.json: is not ours: .*`fleet-cdi converge --settings`"):
        host.install()
    assert set(host.everything()) == {"etc/settings.json"} and host.told == []


def test_a_file_with_another_name_takes_the_place_of_the_first(host: HostByItself) -> None:
    host.install()
    second = str(host.top / "etc/second.json")
    host.install(file=second)
    assert not host.file.exists() and Path(second).read_text() == "{}\n"
    host.told.clear()
    host.uninstall()
    assert host.everything() == {}


def test_absent_stops_the_timer_alone_and_takes_every_trace(host: HostByItself) -> None:
    """The run that does this may be one of the timer."""
    host.install()
    host.systemd.told = []
    shown = host.uninstall(check=True)
    assert host.told == []
    assert host.uninstall() == shown and shown["changed"]
    assert host.everything() == {} and not list(host.top.iterdir())
    assert host.told[:2] == [f"systemctl stop {TIMER}", f"systemctl disable {TIMER}"]
    assert host.uninstall() == {"changed": False, "diff": []}


def test_what_the_site_wrote_into_our_file_stays(host: HostByItself) -> None:
    host.install()
    host.file.write_text("devices: {}\n")
    host.uninstall()
    assert host.everything() == {"etc/settings.json": b"devices: {}\n"}


def test_undo_does_so_as_well(host: HostByItself, monkeypatch: pytest.MonkeyPatch) -> None:
    host.install()
    monkeypatch.setattr(converge_service, "run_on_host", host.systemd)
    monkeypatch.setattr(converge_service.systemd, "booted", lambda: True)
    host.systemd.told = []
    assert len(undo(layout_beside(host.state_dir)).removed) == 3
    assert host.everything() == {} and f"systemctl stop {converge_unit.CONVERGE_SERVICE} {TIMER}" in host.told


def test_a_path_that_no_unit_can_hold(host: HostByItself) -> None:
    with pytest.raises(CdiError, match="file: found '/etc/a\\\\nb'"):
        host.install(file="/etc/a\nb")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_takes_the_units(host: HostByItself) -> None:
    """Also with a file and a prefix that have characters that mean something in a unit."""
    odd = str(host.top / "a %n b")
    Path(odd, "bin").mkdir(parents=True)
    Path(odd, "bin/fleet-cdi").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    Path(odd, "bin/fleet-cdi").chmod(0o755)
    paths = []
    for name, text in converge_unit.converge_texts(ConvergeUnit(f"{odd}/$HOME 'b' \"c\" \\d", prefix=odd)).items():
        path = host.top / Path(name).name
        path.write_bytes(text)
        paths.append(str(path))
    done = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "fleet-cdi-converge" in line]
    assert [line for line in ours if "Failed to create" not in line] == [], json.dumps(ours)
