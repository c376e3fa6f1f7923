# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each role says twice, because Ansible wants it so, it says alike."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.plugins.modules import device_plugin_config

ROLES = sorted((Path(__file__).resolve().parents[2] / "roles").iterdir())


def document(role: Path, name: str) -> Any:
    return yaml.safe_load((role / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_those_of_the_specs(role: Path) -> None:
    options = document(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    # Where role cdi_host has a variable for it, that comes first.
    said = {
        name: yaml.safe_load(found[1])
        if (found := re.fullmatch(r"{{ cdi_host_\w+ \| default\('?([^']*?)'?\) }}", str(value)))
        else value
        for name, value in document(role, "defaults/main.yml").items()
    }
    assert said == {name: option["default"] for name, option in options.items()}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_removal_takes_the_same_variables(role: Path) -> None:
    specs = document(role, "meta/argument_specs.yml")["argument_specs"]
    for name, option in specs["remove"]["options"].items():
        same = specs["main"]["options"][name]
        assert (option["type"], option["default"]) == (same["type"], same["default"]), name


def test_all_are_meant_for_the_same_distributions() -> None:
    tables = [document(role, "vars/main.yml")[f"__{role.name}_supported"] for role in ROLES]
    assert len(tables) > 1 and all(table == tables[0] for table in tables)


@pytest.mark.parametrize(
    ("resources", "opens"),
    [
        ({}, False),
        ({"nvidia.com/gpu": {"replicas": 2}}, False),
        ({"nvidia.com/gpu": {"setup": [], "teardown": []}}, False),
        ({"nvidia.com/gpu": {"setup": ["/bin/clean"]}}, True),
        ({"nvidia.com/gpu": {}, "nvidia.com/mig": {"teardown": ["/bin/clean"]}}, True),
    ],
)
def test_the_service_may_open_devices_where_there_are_commands(resources: dict[str, Any], opens: bool) -> None:
    role = next(role for role in ROLES if role.name == "cdi_device_plugin")
    text = document(role, "vars/main.yml")["__cdi_device_plugin_commands"]
    assert jinja2.Template(text).render(cdi_device_plugin_resources=resources).strip() == str(opens)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_its_readme_has_no_markup_of_ansible(role: Path) -> None:
    assert re.findall(r"\b[A-Z]\([^)]*\)", (role / "README.md").read_text(encoding="utf-8")) == []


def test_who_waits_for_a_restart_is_told_by_which_setting(tmp_path: Path) -> None:
    """Not by the role's, where the runtime has one of its own."""
    names = ("docker", "containerd")
    engines = [{"name": name, "reads": "0.6.0", "path": f"/usr/bin/{name}", "pending_restart": True} for name in names]
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": [str(ROLES[0].parent / "cdi_host/vars/main.yml")],
        "vars": {
            "cdi_host_runtime_restart": "never",
            "cdi_host_runtime_settings": {"docker": {"restart": "when_idle"}, "containerd": {}},
            "__cdi_host_runtimes_found": {"runtimes": engines},
        },
        "tasks": [{"ansible.builtin.debug": {"msg": "{{ __cdi_host_runtimes_waiting }}"}}],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    program = str(Path(sys.executable).parent / "ansible-playbook")
    command = [program, "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    docker, containerd = re.findall('"(/usr/bin/.*)"', said)
    assert docker.startswith("/usr/bin/docker: ") and docker.endswith("docker.restart is when_idle")
    assert containerd.startswith("/usr/bin/containerd: ") and containerd.endswith("cdi_host_runtime_restart is never")


def test_the_programs_that_may_have_devices_open_are_those_that_hosts_know() -> None:
    (role,) = [one for one in ROLES if one.name == "cdi_device_plugin"]
    assert tuple(document(role, "defaults/main.yml")["cdi_device_plugin_occupied_ignore"]) == openers.EXPECTED
    assert tuple(device_plugin_config.EXPECTED) == openers.EXPECTED


@pytest.mark.parametrize(
    ("choice", "resources", "looks"),
    [
        ("warn", {}, True),
        ("ignore", {}, False),
        ("ignore", {"nvidia.com/gpu": {"occupied": "refuse"}}, True),
        ("ignore", {"nvidia.com/gpu": {"occupied": "ignore"}, "nvidia.com/mig": {}}, False),
    ],
)
def test_the_service_may_look_at_processes_where_a_resource_wants_it(choice: str, resources: Any, looks: bool) -> None:
    (role,) = [one for one in ROLES if one.name == "cdi_device_plugin"]
    variables = {"cdi_device_plugin_occupied": choice, "cdi_device_plugin_resources": resources}
    text = document(role, "vars/main.yml")["__cdi_device_plugin_looks"]
    assert jinja2.Template(text).render(variables).strip() == str(looks)
