# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a host are the variables of the roles, and a wrong one is named."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.host.device_plugin_settings import DEVICE_PLUGIN
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host.settings import SETTINGS, read_settings
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release.host import refuse_unsupported
from ansible_collections.fleet.cdi.plugins.plugin_utils.settings import host_settings


def test_the_settings_of_nothing_are_the_defaults() -> None:
    assert read_settings({}) == {**{name: one.default for name, one in SETTINGS.items()}, "device_plugin": None}


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"refresh": "no"}, "refresh", False),
        ({"refresh_grace": "60"}, "refresh_grace", 60),
        ({"device_plugin": {}}, "device_plugin", {name: one.default for name, one in DEVICE_PLUGIN.items()}),
    ],
)
def test_text_counts_as_what_it_means(given: dict[str, Any], name: str, value: Any) -> None:
    assert read_settings(given)[name] == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "settings: found [] (a list); expected a mapping of settings"),
        ({"refesh": True}, "settings: refesh: found the unknown option 'refesh'; expected one of "),
        ({"refresh": 5}, "settings: refresh: found 5 (a whole number); expected true or false"),
        ({"spec_dir": "cdi"}, "settings: spec_dir: found 'cdi' (a text); expected an absolute path"),
        ({"spec_dir": "~\0/x"}, "settings: spec_dir: found '~\\x00/x' (a text); expected an absolute path"),
        ({"refresh_timeout": "9" * 5000}, "settings: refresh_timeout: found '9999"),
        ({"prefix": "/opt/cdi/"}, "settings: prefix: found '/opt/cdi/' (a text); expected an absolute path"),
        ({"runtime_settings": {"docker": {"state": "off"}}}, "settings: runtime_settings.docker.state: found 'off'"),
        ({"device_plugin": True}, "settings: device_plugin: found True (a boolean); expected a mapping"),
        ({"device_plugin": None}, "settings: device_plugin: found nothing; expected a mapping"),
        ({"device_plugin": {"grace": "x"}}, "settings: device_plugin: grace: found 'x' (a text); expected a whole"),
    ],
)
def test_a_wrong_one_is_named(given: Any, message: str) -> None:
    with pytest.raises(CdiError, match=re.escape(message)):
        read_settings(given)


def test_those_of_a_host_come_from_its_variables() -> None:
    variables = {
        "cdi_host_devices": {"a": {"profile": "tty"}},
        "cdi_host_devices_rack": {"a": {"count": 1}, "b": {"profile": "misc"}},
        "cdi_host_refresh": "no",
        "cdi_device_plugin_grace": 5,
        "other": 1,
    }
    host = {"devices": {"a": {"profile": "tty", "count": 1}, "b": {"profile": "misc"}}, "refresh": "no"}
    assert host_settings(variables) == host
    assert host_settings({**variables, "cdi_host_device_plugin": "yes"}) == {**host, "device_plugin": {"grace": 5}}


def test_every_mapping_and_list_has_layers() -> None:
    """A layer adds to the variable, or to its default; a list in a mapping is replaced."""
    variables = {
        "cdi_host_device_plugin": True,
        "cdi_host_load_modules": ["nvidia"],
        "cdi_host_load_modules_rack7": ["ve_drv", "nvidia"],
        "cdi_host_runtime_settings_site": {"docker": {"spec_dirs": ["/a", "/b"]}},
        "cdi_host_runtime_settings_rack7": {"docker": {"spec_dirs": ["/c"]}, "podman": {}},
        "cdi_device_plugin_occupied_ignore_site": ["telegraf"],
        "cdi_device_plugin_resources_rack7": {"nvidia.com/gpu": {"replicas": 4}},
    }
    found = host_settings(variables)
    assert found.pop("device_plugin") == {
        "occupied_ignore": [*DEVICE_PLUGIN["occupied_ignore"].default, "telegraf"],
        "resources": {"nvidia.com/gpu": {"replicas": 4}},
    }
    # rack7 comes before site: the order is that of the names
    assert found == {
        "load_modules": ["nvidia", "ve_drv"],
        "runtime_settings": {"docker": {"spec_dirs": ["/a", "/b"]}, "podman": {}},
    }


def test_a_layer_of_another_type_is_refused() -> None:
    with pytest.raises(CdiError, match="cdi_host_load_modules_x: found 'nvidia' .a text.; expected a list"):
        host_settings({"cdi_host_load_modules_x": "nvidia"})


def test_a_site_adds_distributions_without_repeating_the_known_ones() -> None:
    more = host_settings({"cdi_host_distributions_site": {"ubuntu": ["25.10"]}})["distributions"]
    for version in ("25.10", "24.04"):
        refuse_unsupported({"id": "ubuntu", "version_id": version, "name": "Ubuntu"}, more)
    with pytest.raises(CdiError, match="24.10"):
        refuse_unsupported({"id": "ubuntu", "version_id": "24.10", "name": "Ubuntu"}, more)


@pytest.mark.parametrize("wanted", [True, 1, "1", "y", "Yes", "on", "TRUE"])
def test_the_device_plugin_is_wanted_in_all_of_ansibles_words(wanted):
    assert "device_plugin" in host_settings({"cdi_host_device_plugin": wanted})


@pytest.mark.parametrize("unwanted", [False, 0, "0", "n", "No", "off", ""])
def test_the_device_plugin_is_not_wanted(unwanted):
    assert "device_plugin" not in host_settings({"cdi_host_device_plugin": unwanted})
