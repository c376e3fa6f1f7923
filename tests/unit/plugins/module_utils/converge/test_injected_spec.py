# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An OCI spec gets what the runtimes of this host would give the container; a warning names one that would not."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge import injected_spec, libraries
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import id_of
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.errors import InjectError
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen.linked import KNOWN, Linked
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.trees import host_cases


@pytest.mark.parametrize("case", host_cases.CASES.values(), ids=list(host_cases.CASES))
def test_case(tmp_path, monkeypatch, case):
    monkeypatch.setattr(libraries, "of_host", lambda _path: host_cases.linked(case))
    directories = host_cases.put(tmp_path, case)
    for name in case["devices"] or ["x0"]:
        named = [f"{host_cases.KIND}={name}"]
        if name not in case["devices"]:
            with pytest.raises(InjectError):
                injected_spec.inject_devices({}, named, directories, "")
            continue
        done = injected_spec.inject_devices({}, named, directories, "")
        assert [node["path"] for node in done.document["linux"]["devices"]] == [case["devices"][name].split()[1]]
        assert bool(done.warnings) == (name in case.get("lost", ()))
        for text in done.warnings:
            assert "runtime " in text and id_of(text) == "FC1309"


def test_the_specs_are_looked_at_once_for_all_names_that_a_runtime_lacks(tmp_path, monkeypatch):
    """1000 names took 3 s."""
    linked = Linked("docker 25.0", KNOWN[0].release)
    monkeypatch.setattr(libraries, "of_host", lambda _path: (linked,))
    edits = {"env": ["A=b"], "additionalGids": [5]}  # which its library does not know
    devices = builders.spec({f"d{number}": edits for number in range(9)}, "v.com/c", "1.1.0")
    (tmp_path / "a.json").write_text(json.dumps(devices))
    looks, seen_with = [], registry.seen_with
    monkeypatch.setattr(registry, "seen_with", lambda *about: looks.append(about) or seen_with(*about))
    counts = []
    for many in (1, 9):
        names = [f"v.com/c=d{number}" for number in range(many)]
        done = injected_spec.inject_devices({"ociVersion": "1.0"}, names, [str(tmp_path)], "")
        assert [text.partition(":")[0] for text in done.warnings] == names
        counts.append(len(looks))
        looks.clear()
    assert counts[0] == counts[1]
