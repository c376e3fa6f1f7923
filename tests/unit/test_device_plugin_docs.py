# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/device-plugin.md names what there is: settings, metrics, ways, and the tests that prove its features."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import metrics

TESTS = Path(__file__).resolve().parents[1]
TEXT = (TESTS.parent / "docs/device-plugin.md").read_text(encoding="utf-8")
PLACES = {
    "contract": TESTS / "contract",
    "e2e": TESTS / "e2e",
    "bench": TESTS / "bench",
    "unit": TESTS / "unit/plugins/module_utils",
}
PROOFS = [line.strip("|").split("|") for line in TEXT.partition("| feature | proved by |")[2].splitlines()[2:] if line]


def section(title: str) -> str:
    """From a heading to the next one."""
    return re.split(r"^#+ ", TEXT.partition(f" {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def first_column(title: str) -> set[str]:
    """The code in the first cell of each row."""
    rows = [line.split("|")[1] for line in section(title).splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall("`([^`]+)`", row)}


@pytest.mark.parametrize(("feature", "proof"), PROOFS, ids=lambda text: text.strip()[:40])
def test_what_proves_a_feature_is_there(feature, proof):
    """Files exist, and the words behind one are in the names of its tests."""
    found = re.findall(r"(contract|e2e|bench|unit)/([a-z0-9_./]+)((?: `[^`]+`,?)*)", proof)
    assert found or "extensions/molecule" in proof or "](executables.md)" in proof, f"nothing proves: {feature}"
    for place, name, words in found:
        text = (PLACES[place] / name).read_text(encoding="utf-8")
        tests = re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE)
        for word in re.findall("`([^`]+)`", words):
            assert any(word in one for one in tests), f"{name}: no test has {word} in its name"


def test_every_setting_is_there_and_no_other():
    assert first_column("Configuration") == {"version", *configuration.PluginSettings._fields}
    assert first_column("Resources") == set(configuration.ResourceSettings._fields) - {"name"}
    for field in (*configuration.Match._fields, *configuration.HealthSettings._fields):
        assert f"`{field}`" in section("Resources"), field


def test_every_way_is_there():
    assert first_column("Delivery") == set(configuration.DELIVERY) - {"auto"}
    for word in (*configuration.DELIVERY, *configuration.REGISTRATION, *configuration.SHARING):
        assert f"`{word}`" in TEXT, word


def test_every_metric_is_there_and_no_other():
    named = set(re.findall(r"^\| `([a-z_]+)` \| (?:gauge|counter|histogram) \|", section("Metrics"), re.MULTILINE))
    assert named == set(metrics.METRICS)


def test_every_directive_of_the_sandbox_is_there():
    unit = device_plugin_unit.unit_text(device_plugin_unit.PluginUnit()).decode().partition("\nNoNewPrivileges")[2]
    for name in re.findall(r"^([A-Z]\w+)=", "NoNewPrivileges" + unit.partition("[Install]")[0], re.MULTILINE):
        assert name in section("The service") or name == "SystemCallErrorNumber", name
