# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults in settings: what is accepted, what is found wrong and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils import findings, settings

CASES = yaml.safe_load(Path(__file__).with_name("findings_cases.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_check(case: dict[str, Any]) -> None:
    found = findings.check(case["settings"])
    assert [list(finding.path) for finding in found] == [path for path, *_texts in case.get("wrong", [])]
    for finding, (_path, *texts) in zip(found, case.get("wrong", [])):
        for text in texts:
            assert text in finding.text


def test_defaults_are_valid() -> None:
    defaults = {name: one.default for name, one in settings.all_variables().items() if one.default is not None}
    assert findings.check(defaults) == []


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
    assert (findings.check({"cdi_host_devices": {"e1": entry}}) == []) == accepted
