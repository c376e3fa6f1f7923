# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specs moved between root directories: the table of transform.yml, and that moving there and back changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.spec.transform import move
from ansible_collections.fleet.cdi.tests.unit.builders import spec

TABLE = yaml.safe_load(Path(__file__).with_name("transform.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_case(case):
    old, new = case["roots"]
    version = case.get("version", "0.3.0")
    moved = move(spec({"a": case["edits"]}, version=version), old, new, case["relative_to"])
    assert moved == spec({"a": case["expected"]}, version=case.get("expected_version", version))
    whole = spec({"a": {"env": ["A=1"]}}, version=version, containerEdits=case["edits"])
    assert move(whole, old, new, case["relative_to"])["containerEdits"] == case["expected"]


PATHS = st.lists(st.sampled_from(["a", "b", "dev"]), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(PATHS, st.none() | PATHS, PATHS, st.sampled_from(["host", "container"]))
def test_there_and_back(path, host, mount, whose):
    node = {"path": path, **({"hostPath": host} if host not in (None, path) else {})}
    edits = {"deviceNodes": [node], "mounts": [{"hostPath": mount, "containerPath": path}]}
    before = spec({"a": edits})
    assert move(move(before, "/", "/elsewhere", whose), "/elsewhere", "/", whose) == before
