# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings: what is accepted, what is found wrong and where, and how layers add up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings

CHECKOUT = Path(__file__).resolve().parents[4]
CASES = yaml.safe_load(Path(__file__).with_name("cases.yml").read_text(encoding="utf-8"))
ROLE = CHECKOUT / "roles/cdi_host"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_check(case: dict[str, Any]) -> None:
    found = settings.check(case["settings"])
    assert [list(finding.path) for finding in found] == [path for path, *_texts in case.get("wrong", [])]
    for finding, (_path, *texts) in zip(found, case.get("wrong", [])):
        for text in texts:
            assert text in finding.text


def test_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(settings.schema())


def test_what_is_generated_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "docs/generate.py"), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_defaults_are_valid() -> None:
    defaults = {name: spec["default"] for name, spec in settings.argument_specs().items() if "default" in spec}
    assert settings.check(defaults) == []


def test_layers_add_up_in_order() -> None:
    documents = {
        "cdi_host_devices_b": {"gpus": {"env": {"B": "b", "X": "b"}, "name_by": ["pci"]}},
        "cdi_host_devices": {"gpus": {"profile": "drm", "env": {"A": "base", "X": "base"}, "name_by": ["index"]}},
        "cdi_host_devices_a": {"gpus": {"env": {"X": "a"}}, "ttys": {"profile": "tty"}},
        "cdi_host_prefix": "/opt/cdi",
    }
    assert settings.merge(documents) == {
        "gpus": {"profile": "drm", "env": {"A": "base", "X": "b", "B": "b"}, "name_by": ["pci"]},
        "ttys": {"profile": "tty"},
    }


def test_merge_refuses_a_layer_that_is_no_mapping() -> None:
    with pytest.raises(CdiError, match="cdi_host_devices_x: found \\['a'\\]"):
        settings.merge({"cdi_host_devices_x": ["a"]})


TREES = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
ENTRIES = st.dictionaries(
    st.sampled_from("xyz"), st.dictionaries(st.sampled_from("abc"), TREES, max_size=3), max_size=3
)


@given(ENTRIES, ENTRIES)
def test_the_later_layer_is_always_contained(base: dict[str, Any], more: dict[str, Any]) -> None:
    before = json.dumps([base, more])
    merged = settings.merge({"cdi_host_devices": base, "cdi_host_devices_more": more})
    assert json.dumps([base, more]) == before  # the user's own documents stay as they are
    assert _contains(merged, more)
    assert set(merged) == set(base) | set(more)
    assert settings.merge({"cdi_host_devices": merged, "cdi_host_devices_more": more}) == merged


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _contains(whole[key], value) for key, value in part.items())
    return bool(whole == part)


VALUES = st.sampled_from(["drm", "tty", "misc", "rule", "fuse", "index", "x", "/dev/{name}", 1, 99, True, None, [], {}])
OPTIONS = st.sampled_from(
    ["profile", "kind", "name_by", "env", "nodes", "match", "num_system_reserved", "required", "x"]
)
NESTED = st.one_of(VALUES, st.lists(VALUES, max_size=2), st.dictionaries(OPTIONS, VALUES, max_size=2))


@given(st.dictionaries(OPTIONS, NESTED, max_size=4))
def test_controller_and_host_agree(entry: dict[str, Any]) -> None:
    """What the controller lets pass, no host refuses, and the other way round."""
    try:
        entry_options.check({"e1": entry})
        accepted = True
    except CdiError:
        accepted = False
    assert (settings.check({"cdi_host_devices": {"e1": entry}}) == []) == accepted


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
