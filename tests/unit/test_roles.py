# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each role says twice, because Ansible wants it so, it says alike."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import cdi_host
from ansible_collections.fleet.cdi.plugins.module_utils.release import host
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.plugins.modules import device_plugin_config
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings

ROLES = sorted((Path(__file__).resolve().parents[2] / "roles").iterdir())


def document(role: Path, name: str) -> Any:
    return yaml.safe_load((role / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_those_of_the_specs(role: Path) -> None:
    options = document(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    # The same variable of role cdi_host comes first, or the old name of the variable.
    assert said(role) == {name: option["default"] for name, option in options.items() if "default" in option}
    old = {name for name in options if "renamed_to" in settings.texts().variables[name]}
    assert {name for name, option in options.items() if "default" not in option} == old
    # Module cdi_host knows the old names itself.
    assert set(renamed(role)) == (set() if role.name == "cdi_host" else old)


@pytest.mark.parametrize("role", [role for role in ROLES if role.name != "cdi_host"], ids=lambda role: role.name)
@pytest.mark.parametrize("name", ["state_dir", "device_list", "spec_dir", "prefix", "python"])
def test_roles_on_a_host_have_the_directories_of_cdi_host(role: Path, name: str) -> None:
    """With a ledger for each role, a device would be granted twice. A host has one release."""
    assert f"cdi_host_{name} | default(" in document(role, "defaults/main.yml")[f"{role.name}_{name}"]


def said(role: Path) -> dict[str, Any]:
    """The defaults of a role; of a template the last of its values."""
    last = re.compile(r"(?:default\(|default=| else )(?P<value>'[^']*'|{}|true)\)* }}")
    return {
        name: yaml.safe_load(found["value"]) if (found := last.search(str(value))) else value
        for name, value in document(role, "defaults/main.yml").items()
    }


def renamed(role: Path) -> dict[str, str]:
    """The old names of the role's variables, with the new ones."""
    text = (role / "defaults/main.yml").read_text(encoding="utf-8")
    return dict(re.findall(r"fleet\.cdi\.renamed\('(\w+)', '(\w+)'\)", text))


@pytest.mark.parametrize("role", [role for role in ROLES if renamed(role)], ids=lambda role: role.name)
def test_an_old_name_of_a_variable_works_with_a_warning(role: Path, tmp_path: Path) -> None:
    for old, new in renamed(role).items():
        play = {
            "hosts": "localhost",
            "gather_facts": False,
            "vars_files": [str(role / "defaults/main.yml")],
            "tasks": [{"ansible.builtin.debug": {"msg": f"value: {{{{ {new} }}}}"}}],
        }
        (tmp_path / "play.yml").write_text(json.dumps([play]))
        program = str(Path(sys.executable).parent / "ansible-playbook")
        command = [program, "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")]
        for arguments, value, warned in (
            ((), said(role)[new], 0),
            (("-e", json.dumps({old: {"x": "1"}})), "{'x': '1'}", 1),
        ):
            done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
            assert f"value: {value}" in done.stdout
            told = " ".join((done.stdout + done.stderr).split())
            assert told.count(f"The variable {old} has a new name, {new}. Rename it in your settings.") == warned


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_removal_takes_the_same_variables(role: Path) -> None:
    specs = document(role, "meta/argument_specs.yml")["argument_specs"]
    for name, option in specs["remove"]["options"].items():
        same = specs["main"]["options"][name]
        assert (option["type"], option["default"]) == (same["type"], same["default"]), name


def test_a_run_of_role_cdi_host_is_one_task() -> None:
    (role,) = [one for one in ROLES if one.name == "cdi_host"]
    for entry_point in ("main", "remove"):
        (task,) = document(role, f"tasks/{entry_point}.yml")
        assert [key for key in task if "." in key] == ["fleet.cdi.cdi_host"] and not {"loop", "when"} & task.keys()


EVERY = ("release", *cdi_host.PARTS)


def run_of_role(tmp_path: Path, arguments: Iterable[str] = (), entry_point: str = "main", **variables: Any) -> Any:
    """The result of a check of this machine by the role; None if its task was left out."""
    places = {f"cdi_host_{name}": f"{tmp_path}/{name}" for name in ("prefix", "state_dir", "spec_dir", "device_list")}
    role = {"name": "fleet.cdi.cdi_host", "tasks_from": entry_point, "rolespec_validate": False}
    anywhere = {"cdi_host_install_packages": False, "cdi_host_refresh": False}  # a machine without systemd, too
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {**places, **anywhere, **variables},
        "tasks": [{"ansible.builtin.import_role": role}],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    program = str(Path(sys.executable).parent / "ansible-playbook")
    command = [program, "-i", "localhost,", "-c", "local", "--check", str(tmp_path / "play.yml"), *arguments]
    minimal = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal"}
    done = subprocess.run(command, capture_output=True, check=False, text=True, env=minimal)
    _host, found, result = done.stdout.partition("=> ")
    return json.JSONDecoder().raw_decode(result)[0] if found else None


@pytest.mark.parametrize(
    "arguments, parts",
    [
        ((), EVERY),
        (("--tags", "mine"), ()),
        (("--skip-tags", "driver"), [name for name in EVERY if name != "driver"]),
        (("--skip-tags", ",".join(cdi_host.PARTS)), ()),
        (("--tags", "refresh,specs", "--skip-tags", "specs"), ("release", "refresh")),
    ],
    ids=str,
)
def test_tags_of_the_command_line_choose_the_parts(tmp_path: Path, arguments: tuple[str], parts: Sequence[str]) -> None:
    found = run_of_role(tmp_path, arguments)
    assert (list(found["parts"]) if found else []) == sorted(parts)


BROKEN = "{{ nobody_has_this }}"


def test_what_a_run_does_not_read_does_not_stop_it(tmp_path: Path) -> None:
    unread = {"cdi_device_plugin_resources": BROKEN}
    assert not run_of_role(tmp_path, **unread)["problems"]
    assert "nobody_has_this" in run_of_role(tmp_path, **unread, cdi_host_device_plugin=True)["msg"]


@pytest.mark.parametrize("unread", [{"cdi_host_devices": BROKEN}, {"cdi_host_refresh_interval": "soon"}], ids=str)
def test_a_removal_judges_no_setting_that_it_does_not_read(tmp_path: Path, unread: dict[str, Any]) -> None:
    assert run_of_role(tmp_path, entry_point="remove", **unread)["removed"] == []
    assert "msg" in run_of_role(tmp_path, **unread)


# How Galaxy calls the releases of host.SUPPORTED; Debian's testing has no number and no name there.
CODENAMES = {"debian": {"12": "bookworm", "13": "trixie"}, "ubuntu": {"22.04": "jammy", "24.04": "noble"}}
ENTERPRISE_LINUX = ("rhel", "rocky", "almalinux", "centos")


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_galaxy_shows_the_supported_distributions(role: Path) -> None:
    shown = {one["name"]: one["versions"] for one in document(role, "meta/main.yml")["galaxy_info"]["platforms"]}
    supported = dict(host.SUPPORTED)
    (versions,) = {tuple(supported.pop(name)) for name in ENTERPRISE_LINUX}
    wanted = {name.title(): [CODENAMES[name][one] for one in found if one] for name, found in supported.items()}
    assert shown == {**wanted, "EL": list(versions)}


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
    assert jinja2.Template(text).render(__cdi_device_plugin_resources=resources).strip() == str(opens)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_its_readme_has_no_markup_of_ansible(role: Path) -> None:
    assert re.findall(r"\b[A-Z]\([^)]*\)", (role / "README.md").read_text(encoding="utf-8")) == []


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
    variables = {"cdi_device_plugin_occupied": choice, "__cdi_device_plugin_resources": resources}
    text = document(role, "vars/main.yml")["__cdi_device_plugin_looks"]
    assert jinja2.Template(text).render(variables).strip() == str(looks)
