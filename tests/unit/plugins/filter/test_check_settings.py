# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of settings by a real ansible-playbook run: where it points, and that no host is contacted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.fleet.cdi.plugins.filter.check_settings import check_settings
from ansible_collections.fleet.cdi.plugins.plugin_utils import findings

COLLECTIONS = Path(__file__).resolve().parents[4] / "build/pythonpath"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")

RUNS = yaml.safe_load(Path(__file__).with_name("check_settings_runs.yml").read_text(encoding="utf-8"))

# 192.0.2.0/24 is for documentation: nobody answers, and the connection would take its time to fail.
INVENTORY = "[rack7]\n" + "".join(f"gpu{number:02} ansible_host=192.0.2.{number}\n" for number in range(1, 7))


def run(folder: Path, playbook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook on INVENTORY, with all files in `folder`."""
    (folder / "inventory").write_text(INVENTORY, encoding="utf-8")
    (folder / "password").write_text("open sesame\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    environment |= {
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }
    return subprocess.run(
        [
            str(PLAYBOOK),
            "-i",
            str(folder / "inventory"),
            "-vvv",
            playbook,
            "--vault-password-file",
            "password",
            *arguments,
        ],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=120,
    )


def said_after(text: str, mark: str) -> str:
    """Return what stands after `mark` in the text."""
    return text.partition(mark)[2]


@pytest.mark.parametrize("case", RUNS, ids=lambda case: case["name"])
def test_a_run_with_these_files_says(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case.get("files", {}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    faults = case.get("faults", [])
    # A run that goes on reaches no host, and does not wait for one.
    nowhere = ["-e", '{"ansible_ssh_common_args": "-o ProxyCommand=false"}']
    done = run(tmp_path, "fleet.cdi.provision", *case.get("arguments", []), *([] if faults else nowhere))
    assert "ok: [gpu" not in said_after(done.stdout, "PLAY [Provision the hosts]")
    said = done.stdout + done.stderr
    assert ("PLAY [Provision the hosts]" in said) == (not faults), said
    assert ("The settings of all hosts are valid" in said) == (not faults), said
    assert case.get("secret", "\0") not in said
    lines = [line.strip().rstrip(",") for line in done.stdout.splitlines()]
    told = [json.loads(line) for line in lines if faults and re.match(r'"[^"]*[.:]', line)]
    told = [line.removeprefix(f"{tmp_path}/") for line in told]
    assert len(told) == len(faults), told
    for line, (start, *parts) in zip(told, faults):
        assert line.startswith(start)
        assert [part for part in parts if part not in line] == [], line
    if faults:
        assert done.returncode == 2
        assert "192.0.2." not in said


@pytest.mark.parametrize("playbook", ["remove", "report", "upgrade", "verify"])
def test_each_playbook_knows_its_variables_before_it_contacts_a_host(tmp_path: Path, playbook: str) -> None:
    """By a misspelt fleet_cdi_hosts, `remove` removed everything from all hosts."""
    done = run(tmp_path, f"fleet.cdi.{playbook}", "-e", "fleet_cdi_hots=rack7")
    assert (done.returncode, "192.0.2." in done.stdout) == (2, False)
    assert (
        "fleet_cdi_hots: found the unknown variable 'fleet_cdi_hots'; did you mean 'fleet_cdi_hosts'? "
        "(6 hosts: gpu01, gpu02, gpu03 and 3 more)" in done.stdout
    )


def test_with_a_prefix_other_variables_can_not_stop_a_run() -> None:
    hosts = {"h": {"cdi_host_forc": True, "fleet_cdi_seril": 1}}
    (only,) = check_settings(hosts, ["h"], prefix="fleet_cdi_")
    assert only.startswith("fleet_cdi_seril: found the unknown variable")


@pytest.mark.parametrize(
    ("count", "last"), [(100, "cdi_host_devices.e99.x: "), (101, "There are more faults than these 100")]
)
def test_at_most_a_hundred_faults_are_told(count: int, last: str) -> None:
    hosts = {f"h{number}": {"cdi_host_devices": {f"e{number}": {"profile": "drm", "x": 1}}} for number in range(count)}
    told = check_settings(hosts, list(hosts))
    assert len(told) == count
    assert [one for one in told if last in one] and sum("cdi_host_devices.e" in one for one in told) == 100


def test_each_distinct_document_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    real = findings.check_unit
    monkeypatch.setattr(
        findings, "check_unit", lambda unit, values, *run: checked.append(values) or real(unit, values, *run)
    )
    hosts = {f"n{number:03}": {"cdi_host_python": "x" if number % 2 else "/usr/bin/python3"} for number in range(100)}
    (only,) = check_settings(hosts, list(hosts))
    assert len(checked) == 2
    assert (
        only
        == "cdi_host_python: found 'x' (a text); expected an absolute path (50 hosts: n001, n003, n005 and 47 more) "
        "[FC1011]"
    )


@pytest.mark.parametrize(
    ("variables", "warned"),
    [
        ({}, True),
        ({"cdi_host_devices": {}}, True),
        ({"cdi_host_devices": {}, "cdi_host_devices_rack7": {}, "cdi_host_force": True}, True),
        ({"cdi_host_devices_rack7": {"gpus": {"profile": "drm"}}}, False),
        ({"cdi_host_plugins": {"tty/generic": {"plugin": "generic-tty"}}}, False),
    ],
)
def test_no_devices_at_all_is_a_warning(monkeypatch: pytest.MonkeyPatch, variables: dict, warned: bool) -> None:
    said = []
    monkeypatch.setattr("ansible.utils.display.Display.warning", lambda _self, text: said.append(text))
    assert check_settings({"n1": variables, "n2": variables}, ["n1", "n2"]) == []
    assert [text.startswith("cdi_host_devices: found no entry for 2 hosts: n1, n2, so no device") for text in said] == [
        True
    ] * warned


def test_other_variables_are_none_of_our_business() -> None:
    assert check_settings({"h": {"cdi_hosts": 1, "ansible_host": "x", "__cdi_host_x": 2}}, ["h"]) == []


def test_without_jsonschema_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    findings._validator.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(AnsibleFilterError, match=r"pip install jsonschema \[FC\d+\]$"):
        check_settings({"h": {"cdi_host_force": True}}, ["h"])
