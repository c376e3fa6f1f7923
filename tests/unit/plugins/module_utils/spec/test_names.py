# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""File names of specs, and what they say of claims. Cases are in names.yml; kinds and device names in test_spec.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.spec import names

TABLE = yaml.safe_load(Path(__file__).with_name("names.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", TABLE["transient"], ids=lambda case: case["name"])
def test_transient(case):
    path, kind = case["path"], case["kind"]
    assert names.transient_id(path, kind) == case.get("id", "")
    assert names.claim_uid(path, kind) == case.get("claim", "")
    assert names.foreign_claim(path, kind) == (tuple(case["foreign"]) if "foreign" in case else None)


@pytest.mark.parametrize(("path", "uid"), TABLE["named"].items())
def test_the_uid_in_a_file_name(path, uid):
    assert names.named_uid(path) == uid


def test_file_names():
    assert names.file_name("vendor.com/gpu") == "vendor.com-gpu.json"
    assert names.transient_file_name("vendor.com/gpu", "pod/a/b") == "vendor.com-gpu_pod_a_b.json"
    assert names.transient_id("/run/cdi/vendor.com-gpu_pod_a_b.json", "vendor.com/gpu") == "pod_a_b"


def test_a_directory_lists_its_json_and_yaml_in_order_and_a_missing_one_nothing(tmp_path):
    for name in ("b.json", "a.yaml", "c.yml", "d.json.tmp", "json"):
        (tmp_path / name).write_text("")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/e.json").write_text("")
    found = names.list_specs([str(tmp_path / "none"), str(tmp_path), str(tmp_path / "json"), "\0"])
    assert found.paths == ((1, f"{tmp_path}/a.yaml"), (1, f"{tmp_path}/b.json"))
    assert list(found.errors) == [f"{tmp_path}/json", "\0"]
    assert "Not a directory. Some runtimes read no directory after it." in found.errors[f"{tmp_path}/json"]
