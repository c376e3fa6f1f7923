# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller that the playbooks report and verify can't use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.filter.check_report_files import check_report_files
from ansible_collections.fleet.cdi.plugins.filter.fleet_report import fleet_report
from ansible_collections.fleet.cdi.tests.unit.trees import fleet

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
REPORT = "expected a report.json of playbook fleet.cdi.report. Name another file, or leave the variable out [FC1056]"


def checked(name, path):
    return check_report_files({name: str(path)})


@pytest.mark.parametrize("name", ["fleet_cdi_report_dir", "fleet_cdi_verify_dir"])
class TestDirectory:
    def test_one_that_is_there(self, name, tmp_path):
        assert checked(name, tmp_path) == checked(name, "~") == checked(name, ".") == checked(name, "") == []

    def test_one_that_is_not_there(self, name, tmp_path):
        path = tmp_path / "a b"
        wanted = f"which does not exist; expected a directory of the controller. Make it: mkdir -p '{path}' [FC1101]"
        assert checked(name, path) == [f"{name}: found {path}, {wanted}"]

    def test_a_file(self, name, tmp_path):
        (tmp_path / "a").touch()
        wanted = "which is not a directory; expected a directory of the controller. Name another one [FC1101]"
        assert checked(name, tmp_path / "a") == [f"{name}: found {tmp_path}/a, {wanted}"]

    def test_one_of_another_user(self, name, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
        (said,) = checked(name, tmp_path)
        assert said.startswith(f"{name}: found {tmp_path}, where user {os.geteuid()} may not write; expected a ")
        assert said.endswith(f"chown {os.geteuid()} {tmp_path} [FC1101]")


class TestOldReport:
    name = "fleet_cdi_report_since"

    def test_one_of_a_fleet(self, tmp_path):
        hostvars = fleet.hostvars(3)
        (tmp_path / "old.json").write_text(fleet_report(hostvars, list(hostvars), "truth")["json"])
        assert checked(self.name, tmp_path / "old.json") == checked(self.name, "") == []

    @pytest.mark.parametrize("content", [None, b"{", b"\xff", b"[]", b'{"format": "fleet.cdi/report", "version": 1}'])
    def test_what_is_none(self, content, tmp_path):
        path = tmp_path / "old.json"
        if content is not None:
            path.write_bytes(content)
        (said,) = checked(self.name, path)
        assert said.startswith(f"{self.name}: {path}: ") and said.endswith(REPORT)


@pytest.mark.parametrize("name", ["report_dir", "report_since", "verify_dir"])
def test_a_run_ends_before_any_host_is_asked(name, tmp_path):
    command = [PLAYBOOK, "-i", "nowhere.invalid,", f"fleet.cdi.{name.partition('_')[0]}", "-e", f"fleet_cdi_{name}=/no"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"fleet_cdi_{name}: " in done.stdout and "UNREACHABLE" not in done.stdout
    assert "Compare the truths of each device" not in done.stdout
    assert os.listdir(tmp_path) == []
