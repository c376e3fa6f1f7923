# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin offers what the runtimes of the node would inject, by name only where they find it so."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.observer import Viewer
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import RuntimeReader
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen import releases
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.limits import settle
from ansible_collections.fleet.cdi.tests.unit.trees import host_cases


def viewer_of(root, ask, **more):
    directories = [f"{root}/etc", f"{root}/run"]
    places = {"state_dir": f"{root}/state", "inventory": f"{root}/inventory"}
    settings = configuration.parse({"version": 1, "spec_dirs": directories, **places, **more}, "c")
    return Viewer(settings, Ledger(places["state_dir"], "boot-1"), ask=ask)


def readers(case, directories):
    return [
        RuntimeReader(title, True, "", tuple(directories), releases.BY_NAME[library].reads, library, follows, newer)
        for title, library, follows, newer in host_cases.runtimes(case)
    ]


@pytest.mark.parametrize("case", host_cases.CASES.values(), ids=list(host_cases.CASES))
def test_case(tmp_path, case):
    found = readers(case, host_cases.put(tmp_path, case))
    view = viewer_of(tmp_path, lambda: found).look()
    assert host_cases.told(tmp_path, view.registry) == host_cases.expected(case)
    units = [unit for resource in view.offer.resources for unit in resource.units]
    assert {unit.id: unit.paths for unit in units} == {
        name: (where.split()[1],) for name, where in case["devices"].items()
    }
    for resource in view.offer.resources:
        ways = delivery.decide("auto", found, view.registry, delivery.names_of(resource))
        assert ways.cdi != bool(case.get("lost")), ways
        assert ways.expanded == bool(ways.why) == bool(case.get("lost"))


def test_runtimes_are_asked_once_and_again_when_a_program_changes(tmp_path, monkeypatch):
    """And never while all of them read the specs alike."""
    monkeypatch.setattr(detect, "DIRECTORIES", (str(tmp_path),))
    builders.program(tmp_path, "containerd", "true")
    case, asked = host_cases.CASES["the same for a runtime that does not read it"], []
    found = readers(case, host_cases.put(tmp_path, case))
    settle()

    def ask():
        asked.append(True)
        return found

    viewer = viewer_of(tmp_path, ask)
    assert host_cases.told(tmp_path, viewer.look().registry)["devices"] == case["devices"]
    viewer.look()  # there is no inventory, so it reads all files again
    asked.clear()
    viewer.look()
    assert not asked
    found = [one._replace(newest="0.8.0", library="0.8.0") for one in found]
    builders.program(tmp_path, "containerd", "false")
    assert host_cases.told(tmp_path, viewer.look().registry)["devices"] == {"x0": "run/b.json /dev/zero"}
    assert asked
    asked.clear()
    (tmp_path / "run/b.json").unlink()
    viewer.look()
    assert not asked
