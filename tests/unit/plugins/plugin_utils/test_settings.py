# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings: their schema, what is made from it, and how layers add up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils import findings, settings

CHECKOUT = Path(__file__).resolve().parents[4]


def test_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(settings.schema())


def test_what_is_generated_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "docs/generate.py"), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_layers_add_up_in_order() -> None:
    documents = {
        "cdi_host_devices_b": {"gpus": {"env": {"B": "b", "X": "b"}, "name_by": ["pci"]}},
        "cdi_host_devices": {"gpus": {"profile": "drm", "env": {"A": "base", "X": "base"}, "name_by": ["index"]}},
        "cdi_host_devices_a": {"gpus": {"env": {"X": "a"}}, "ttys": {"profile": "tty"}},
        "cdi_host_prefix": "/opt/cdi",
    }
    assert settings.merge(settings.DEVICES, documents, {}) == {
        "gpus": {"profile": "drm", "env": {"A": "base", "X": "b", "B": "b"}, "name_by": ["pci"]},
        "ttys": {"profile": "tty"},
    }


def test_merge_refuses_a_layer_that_is_no_mapping() -> None:
    with pytest.raises(CdiError, match="cdi_host_devices_x: found \\['a'\\]"):
        settings.merge(settings.DEVICES, {"cdi_host_devices_x": ["a"]}, {})


TREES = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
ENTRIES = st.dictionaries(
    st.sampled_from("xyz"), st.dictionaries(st.sampled_from("abc"), TREES, max_size=3), max_size=3
)


@given(ENTRIES, ENTRIES)
def test_the_later_layer_is_always_contained(base: dict[str, Any], more: dict[str, Any]) -> None:
    before = json.dumps([base, more])
    merged = settings.merge(settings.DEVICES, {"cdi_host_devices": base, "cdi_host_devices_more": more}, {})
    assert json.dumps([base, more]) == before  # the user's own documents stay as they are
    assert _contains(merged, more)
    assert set(merged) == set(base) | set(more)
    assert settings.merge(settings.DEVICES, {"cdi_host_devices": merged, "cdi_host_devices_more": more}, {}) == merged


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _contains(whole[key], value) for key, value in part.items())
    return bool(whole == part)


def test_what_a_pattern_asks_for_is_said_in_words():
    """People are shown the description instead of the pattern."""

    def silent(schema, where):
        if isinstance(schema, dict):
            if isinstance(schema.get("pattern"), str) and "description" not in schema:
                yield where
            for key, inner in schema.items():
                yield from silent(inner, f"{where}/{key}")
        for index, inner in enumerate(schema if isinstance(schema, list) else ()):
            yield from silent(inner, f"{where}/{index}")

    assert list(silent(settings.schema(), "")) == []


SPECS = {
    role: yaml.safe_load((CHECKOUT / f"roles/{role}/meta/argument_specs.yml").read_text(encoding="utf-8"))
    for role in settings.ROLES
}
EDITOR = jsonschema.Draft202012Validator(settings.schema())
ANY = st.one_of(
    st.sampled_from(["auto", "cdi", "keep", "fail", "/opt/cdi", "relative", "yes", "no", "60", "9", "127.0.0.1:1", ""]),
    st.sampled_from([True, False, 0, 9, 10, 86400, -1, 1.5, None, [], {}, ["/a"], ["nvidia"], [1], {"ol": ["9"]}]),
)


@given(st.dictionaries(st.sampled_from(sorted(settings.all_variables())), ANY, max_size=6))
def test_what_the_check_accepts_the_roles_accept_too(variables: dict[str, Any]) -> None:
    wrong = {finding.path[0] for finding in findings.check(variables)}
    for role in settings.ROLES:
        right = {name: value for name, value in variables.items() if name.startswith(f"{role}_") and name not in wrong}
        result = ArgumentSpecValidator(SPECS[role]["argument_specs"]["main"]["options"]).validate(right)
        assert result.error_messages == [], right


@given(st.sampled_from(sorted(settings.all_variables())), ANY)
def test_an_editor_underlines_nothing_that_the_check_accepts(name: str, value: Any) -> None:
    underlined = [error.message for error in EDITOR.iter_errors({name: value})]
    assert underlined == [] or findings.check({name: value}) != []


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({"cdi_host_inventory": "/run/old.json"}, "/run/old.json"),
        # A role has the default of the new name.
        ({"cdi_host_inventory": "/run/old.json", "cdi_host_device_list": "/run/cdi-inventory.json"}, "/run/old.json"),
        ({"cdi_host_inventory": "/run/old.json", "cdi_host_device_list": "/run/new.json"}, "/run/new.json"),
    ],
)
def test_an_old_name_counts_unless_the_new_one_is_set(variables: dict[str, Any], path: str) -> None:
    assert settings.host_settings(variables) == {"device_list": path}
    assert settings.old_names(variables) == {"cdi_host_inventory": "cdi_host_device_list"}
