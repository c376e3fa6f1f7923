# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An OCI spec gets what the runtimes of this host would give the container; a warning names one that would not."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge import injected_spec, libraries
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import id_of
from ansible_collections.fleet.cdi.plugins.module_utils.spec.errors import InjectError
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
