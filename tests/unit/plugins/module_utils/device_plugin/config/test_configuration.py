# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin's configuration: what is taken, what is refused and how it is said."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import (
    GroupSettings,
    HealthSettings,
    Match,
    PluginSettings,
    ResourceSettings,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.resource_names import why_no_resource
from ansible_collections.fleet.cdi.plugins.module_utils.layout import SPEC_DIRS
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

CASES = yaml.safe_load(Path(__file__).with_name("configuration.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES["bad"], ids=lambda case: case["says"][:60])
def test_refused(case):
    document = case["of"] if isinstance(case["of"], list) else {"version": 1, **case["of"]}
    with pytest.raises(CdiError) as error:
        configuration.parse(document, "/etc/x.json")
    assert str(error.value) == f"/etc/x.json: {case['says']}"
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("case", CASES["texts"], ids=lambda case: case["says"][:60])
def test_files_that_are_no_document(tmp_path, case):
    path = tmp_path / "device-plugin.json"
    path.write_bytes(case["text"].encode("latin-1"))
    with pytest.raises(CdiError) as error:
        configuration.read(str(path))
    assert str(error.value) == f"{path}: {case['says']}"


def test_a_file_that_is_not_there_or_too_long(tmp_path):
    with pytest.raises(CdiError, match=r"none.json: can't be read \(No such file or directory\); expected .*least"):
        configuration.read(str(tmp_path / "none.json"))
    (tmp_path / "long.json").write_bytes(b" " * (configuration.LARGEST + 1))
    with pytest.raises(CdiError, match="long.json: is larger than 1 MiB; expected a smaller file"):
        configuration.read(str(tmp_path / "long.json"))


LONG = "x" * 900_000
LARGE = [
    f'{{"version": 1, "{LONG}": 1}}',
    json.dumps({"version": 1, "resources": {"a.com/b": {"kinds": [LONG]}}}),
    json.dumps({"version": 1, "resources": {"a.com/b": {"groups": {"a": {"members": [f"a.com/b={LONG}="]}}}}}),
    json.dumps({"version": 1, "resources": {"a.com/bc": {"match": {"names": [*map(str, range(60_000)), "0"]}}}}),
    "{" + ", ".join(f'"{number}": 1' for number in (*range(60_000), 59_999)) + "}",
    f'{{"{LONG[:400_000]}": 1, "{LONG[:400_000]}": 1}}',
]


@pytest.mark.parametrize("text", LARGE, ids=range(len(LARGE)))
def test_what_is_large_is_refused_in_a_line_and_at_once(tmp_path, text):
    """The daemon reads it between calls of the kubelet: comparing all with all took more than a minute."""
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(CdiError) as error:
        configuration.read(str(tmp_path / "c.json"))
    assert len(str(error.value)) < 500


def test_a_health_that_ignores_nothing(tmp_path):
    """An operator empties the list and leaves the key."""
    resource = {"kinds": ["acme.com/widget"], "health": {"ignore": []}}
    (tmp_path / "c.json").write_text(json.dumps({"version": 1, "resources": {"acme.com/widget": resource}}))
    assert configuration.read(str(tmp_path / "c.json")).resources["acme.com/widget"].health.ignore == ()


def test_the_least_document_says_what_the_defaults_are(tmp_path):
    (tmp_path / "c.json").write_text('{"version": 1}', encoding="utf-8")
    settings = configuration.read(str(tmp_path / "c.json"))
    assert settings == PluginSettings()
    assert settings.plugin_dir == "/var/lib/kubelet/device-plugins"
    assert settings.registry_dir == "/var/lib/kubelet/plugins_registry"
    assert settings.pod_resources == "/var/lib/kubelet/pod-resources/kubelet.sock"
    assert settings.spec_dirs == SPEC_DIRS
    assert configuration.parse({"version": 1, "resources": {}}, "c") == PluginSettings()


def test_everything_that_can_be_said():
    """Every field that there is, with another value than its default."""
    resource = {
        "kinds": ["nvidia.com/gpu", "amd.com/gpu"],
        "match": {
            "names": "GPU-*",
            "ids": ["pci:*"],
            "driver": ["nvidia", "amdgpu"],
            "vendor_id": "10DE",
            "device_id": ["0x20B0"],
            "pci_address": "0000:*",
            "numa_node": [0, 1],
            "profile": "1g.*",
            "partition": True,
            "properties": {"ID_MODEL": ["A*", "B*"]},
        },
        "exclude": {"names": ["GPU-0*"]},
        "name_by": ["pci", "index"],
        "replicas": 4,
        "replicas_by": {"GPU-1*": 8, "*": 2},
        "sharing": "pack",
        "groups": {"set0": {"members": ["a.com/gpu=0", "a.com/nic=0"], "optional": ["a.com/nic=1"]}},
        "delivery": "cdi",
        "setup": ["/bin/scrub", "-x"],
        "teardown": ["/bin/scrub"],
        "time_limit": 5,
        "pre_start": True,
        "occupied": "refuse",
        "health": {"ignore": ["mount-*", "device: temperature *"], "hold_down": 0, "linger": 3600},
    }
    document = {
        "version": 1,
        "resources": {"acme.com/gpu": resource},
        "delivery": "expanded",
        "registration": "watcher",
        "takeover": True,
        "occupied": "ignore",
        "occupied_ignore": ["dcgm*", "nvidia-dcgm.service"],
        "metrics": "[::1]:9400",
        "grace": 60,
        "plugin_dir": "/a",
        "registry_dir": "/b",
        "pod_resources": "/c",
        "spec_dirs": ["/d", "/e"],
        "inventory": "/f",
        "state_dir": "/g",
        "run_dir": "/h",
        "root": "/host",
    }
    settings = configuration.parse(document, "c")
    assert not [name for name, value in settings._asdict().items() if value == PluginSettings._field_defaults[name]]
    found = settings.resources["acme.com/gpu"]
    for record in (found, found.match, found.health):
        assert not [name for name, value in record._field_defaults.items() if getattr(record, name) == value]
    assert found.match == Match(
        ("GPU-*",),
        ("pci:*",),
        ("nvidia", "amdgpu"),
        ("0x10de",),
        ("0x20b0",),
        ("0000:*",),
        (0, 1),
        ("1g.*",),
        True,
        {"ID_MODEL": ("A*", "B*")},
    )
    assert found.groups == (GroupSettings("set0", ("a.com/gpu=0", "a.com/nic=0"), ("a.com/nic=1",)),)
    assert found.health == HealthSettings(("mount-*", "device: temperature *"), 0.0, 3600.0)
    assert [*found.replicas_by] == ["GPU-1*", "*"]  # the first that matches counts
    assert json.loads(json.dumps(document)) == document


def test_a_resource_serves_the_kind_of_its_own_name():
    settings = configuration.parse({"version": 1, "resources": {"nvidia.com/gpu": {}}}, "c")
    assert settings.resources == {"nvidia.com/gpu": ResourceSettings("nvidia.com/gpu", ("nvidia.com/gpu",))}


def test_which_resources_there_may_be():
    document = {"a.com/x.y": {"kinds": ["a.com/gpu"]}, "a.com/mig-{profile}": {"kinds": ["a.com/gpu"]}}
    settings = configuration.parse({"version": 1, "resources": document}, "c")
    names = ("a.com/x.y", "a.com/mig-1g.5gb", "a.com/xay", "a.com/mig-", "b.a.com/mig-1g.5gb", "a.com/x.yz")
    assert [settings.wants(name) for name in names] == [True, True, False, False, False, False]
    assert PluginSettings().wants("anything/else")


NAMES = [
    ("example.com/" + "x" * 63, True),
    ("example.com/" + "x" * 64, False),
    ("a" * 63 + ".com/x", True),
    ("/".join([".".join(["a" * 60] * 4), "x"]), True),  # 243
    ("/".join([".".join(["a" * 60] * 4) + "bb", "x"]), False),  # 245, and 254 behind "requests."
    ("vendor/class", True),
    ("a.b/C_d.e-F", True),
    ("a..b/c", False),
    ("a_b.com/c", False),
    ("/c", False),
    ("a.com/", False),
    ("a.com/c\n", False),
    ("a.com\n/c", False),
    ("", False),
]


@pytest.mark.parametrize(("name", "good"), NAMES, ids=lambda value: str(value)[:30])
def test_names_of_resources(name, good):
    assert (not why_no_resource(name)) is good


LEAVES = st.none() | st.booleans() | st.integers(-2, 2000) | st.floats() | st.text(max_size=4)
WORDS = st.sampled_from(
    [
        *PluginSettings._fields,
        *ResourceSettings._fields,
        *Match._fields,
        *HealthSettings._fields,
        "acme.com/gpu",
        "members",
        "version",
    ]
)
DOCUMENTS = st.recursive(
    LEAVES | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(WORDS, DOCUMENTS, max_size=4), st.dictionaries(WORDS, DOCUMENTS, max_size=4))
def test_any_document_is_taken_or_refused_in_one_line(document, resource):
    for some in (document, {"version": 1, **document}, {"version": 1, "resources": {"acme.com/gpu": resource}}):
        try:
            assert isinstance(configuration.parse(some, "c"), PluginSettings)
        except CdiError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 900
