# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What belongs to each module: the file that answers it, its action plugin, its place in the action group."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.cli.call import CALLS

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (CHECKOUT / "plugins/modules").glob("*.py"))


def test_the_file_that_answers_a_module_has_its_name() -> None:
    assert sorted(CALLS) == MODULES
    for module, file in CALLS.items():
        assert file.rpartition(".")[2] == module
        assert (CHECKOUT / "plugins/module_utils" / (file.replace(".", "/") + ".py")).is_file()


def test_each_module_has_an_action_plugin_that_starts_the_release_and_is_in_the_action_group() -> None:
    assert sorted(path.stem for path in (CHECKOUT / "plugins/action").glob("*.py")) == MODULES
    from ansible_collections.fleet.cdi.plugins.plugin_utils.on_host import OnHost

    for module in MODULES:  # without this base class, Ansible sends 160 KiB for each task
        action = importlib.import_module(f"ansible_collections.fleet.cdi.plugins.action.{module}").ActionModule
        assert issubclass(action, OnHost), module
    runtime = yaml.safe_load((CHECKOUT / "meta/runtime.yml").read_text(encoding="utf-8"))
    assert runtime["action_groups"]["all"] == MODULES


def options(module: str) -> dict[str, Any]:
    """The documented options of a module, without those that all of them have."""
    source = importlib.import_module(f"ansible_collections.fleet.cdi.plugins.modules.{module}")
    found: dict[str, Any] = yaml.safe_load(source.DOCUMENTATION)["options"]
    return found


# One word for each thing, over all modules; and the words that another module may not use for it.
WORDS = {
    "config_file": ("config", "config_path", "path"),
    "device_list": ("inventory", "inventory_file"),
    "runtime_versions": ("runtimes", "versions"),
    "spec_dir": ("directory",),
    "spec_dirs": ("directories", "cdi_spec_dirs"),
    "timeout": ("time_limit", "wait"),
}


@pytest.mark.parametrize("module", MODULES)
def test_an_option_has_the_same_name_in_each_module(module: str) -> None:
    assert set(options(module)).isdisjoint(word for words in WORDS.values() for word in words)


@pytest.mark.parametrize("word", WORDS)
def test_an_option_has_the_same_type_in_each_module(word: str) -> None:
    found = [options(module)[word] for module in MODULES if word in options(module)]
    types = {"int" if one["type"] == "float" else one["type"] for one in found}
    assert len(types - {"str"}) == 1  # an empty text stands for no list of devices, which a path can't be


@pytest.mark.parametrize("module", MODULES)
def test_what_hosts_have_once_can_be_set_for_the_action_group(module: str) -> None:
    """module_defaults of group/fleet.cdi.all: state_dir here, prefix in the fragment that all modules have."""
    source = importlib.import_module(f"ansible_collections.fleet.cdi.plugins.modules.{module}")
    fragments = yaml.safe_load(source.DOCUMENTATION)["extends_documentation_fragment"]
    assert "state_dir" in options(module)
    assert "prefix" in options(module) or "fleet.cdi.on_host" in fragments


# What each writer manages: the module that reads it, and where in its result. A claim made for a pod is a claim, and a
# drained host is one whose devices are out of service.
READERS = {
    "cdi_host": ("host_report_info", "report"),
    "cdi_plugin": ("cdi_plugin_info", "plugins"),
    "claim": ("claim_info", "claims"),
    "container_runtime": ("container_runtime_info", "runtimes"),
    "device_plugin_config": ("device_plugin_info", "config"),
    "device_plugin_service": ("device_plugin_info", "service"),
    "device_state": ("device_info", "devices"),
    "host_drain": ("device_info", "devices"),
    "host_release": ("host_release_info", "release"),
    "pod_devices": ("claim_info", "claims"),
    "refresh_service": ("refresh_service_info", "units"),
    "spec": ("spec_info", "specs"),
}


def test_what_a_module_manages_can_be_read_by_an_info_module() -> None:
    assert list(READERS) == [module for module in MODULES if not module.endswith("_info")]
    assert {reader for reader, _key in READERS.values()} == {module for module in MODULES if module.endswith("_info")}
    for reader, key in READERS.values():
        source = importlib.import_module(f"ansible_collections.fleet.cdi.plugins.modules.{reader}")
        assert key in yaml.safe_load(source.RETURN)
        assert (
            "fleet.cdi.attributes.info_module" in yaml.safe_load(source.DOCUMENTATION)["extends_documentation_fragment"]
        )
