# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of settings by a real ansible-playbook run: where it points, and that no host is contacted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.fleet.cdi.plugins.filter.by_kind import by_kind
from ansible_collections.fleet.cdi.plugins.filter.check_settings import check_settings
from ansible_collections.fleet.cdi.plugins.filter.merge_devices import merge_devices
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings

COLLECTIONS = Path(__file__).resolve().parents[4] / "build/pythonpath"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")

# 192.0.2.0/24 is for documentation: nobody answers, and the connection would take its time to fail.
INVENTORY = "[rack7]\ngpu01 ansible_host=192.0.2.1\ngpu02 ansible_host=192.0.2.2\n"
SITE = """\
---
cdi_host_spec_dri: /etc/cdi
cdi_host_devices:
  gpus:
    profile: drm
    required: true
cdi_device_plugin_delivery: cdii
cdi_device_plugin_resource: {}
"""
RACK = """\
---
cdi_host_force: perhaps
cdi_host_devices_rack7:
  gpus:
    want_device_nodes: [render, primry]
    requird: true
  consoles:
    profil: tty
"""
WRONG = (
    ("group_vars/all.yml:2:1: cdi_host_spec_dri: ", "did you mean 'cdi_host_spec_dir'?"),
    (
        "group_vars/all.yml:7:29: cdi_device_plugin_delivery: found 'cdii' (a text); expected one of auto, cdi, ",
        "did you mean 'cdi'?",
    ),
    ("group_vars/all.yml:8:1: cdi_device_plugin_resource: ", "did you mean 'cdi_device_plugin_resources'?"),
    ("group_vars/rack7.yml:2:17: cdi_host_force: ", "found 'perhaps' (a text)"),
    ("group_vars/rack7.yml:5:33: cdi_host_devices_rack7.gpus.want_device_nodes.1: ", "did you mean 'primary'?"),
    ("group_vars/rack7.yml:6:5: cdi_host_devices_rack7.gpus.requird: ", "did you mean 'required'?"),
    ("group_vars/rack7.yml:7:3: cdi_host_devices_rack7.consoles: ", "profile is missing"),
    ("group_vars/rack7.yml:8:5: cdi_host_devices_rack7.consoles.profil: ", "did you mean 'profile'?"),
)


def provision(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run fleet.cdi.provision on the inventory in `folder`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    environment |= {
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }
    return subprocess.run(
        [str(PLAYBOOK), "-i", str(folder / "inventory"), "-vvv", "fleet.cdi.provision", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An inventory with the settings above."""
    (tmp_path / "inventory").write_text(INVENTORY, encoding="utf-8")
    for name, text in (("all", SITE), ("rack7", RACK)):
        file = tmp_path / "group_vars" / f"{name}.yml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path


def test_wrong_settings_are_refused_before_any_host_is_contacted(folder: Path) -> None:
    done = provision(folder)
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for place, text in WRONG:
        shown = [line for line in lines if line.strip().startswith(f'"{folder}/{place}')]
        assert len(shown) == 1, (place, done.stdout)
        assert text in shown[0]
        assert "(gpu01, gpu02)" in shown[0]
    assert "192.0.2." not in done.stdout + done.stderr
    assert "PLAY [Provision the hosts]" not in done.stdout


def test_right_settings_go_on_to_the_hosts(folder: Path) -> None:
    for file in (folder / "group_vars").iterdir():
        file.unlink()
    done = provision(folder, "-e", "ansible_connection=local", "-e", "ansible_python_interpreter=/nonexistent")
    assert "The settings of all hosts are valid" in done.stdout
    assert "PLAY [Provision the hosts]" in done.stdout


def test_each_distinct_document_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    real = settings.check
    monkeypatch.setattr(settings, "check", lambda document: checked.append(document) or real(document))
    hosts = {f"n{number:03}": {"cdi_host_prefix": "x" if number % 2 else "/opt/cdi"} for number in range(100)}
    (only,) = check_settings(hosts, list(hosts))
    assert len(checked) == 2
    assert only == "cdi_host_prefix: found 'x' (a text); expected an absolute path (n001, n003, n005 and 47 more)"


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
    assert [text.startswith("cdi_host_devices: found no entry for n1, n2, so no device") for text in said] == [
        True
    ] * warned


def test_other_variables_are_none_of_our_business() -> None:
    assert check_settings({"h": {"cdi_hosts": 1, "ansible_host": "x", "__cdi_host_x": 2}}, ["h"]) == []


def test_without_jsonschema_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    settings._validator.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(AnsibleFilterError, match="pip install jsonschema"):
        check_settings({"h": {}}, ["h"])


def test_filters_turn_refusals_into_their_error() -> None:
    with pytest.raises(AnsibleFilterError, match="expected variables by name"):
        merge_devices([1])
    with pytest.raises(AnsibleFilterError, match="entries by name"):
        merge_devices({"cdi_host_devices": [1]})
    with pytest.raises(AnsibleFilterError, match="did you mean 'drm'"):
        by_kind({"gpus": {"profile": "drn"}})
