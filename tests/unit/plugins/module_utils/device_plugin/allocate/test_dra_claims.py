# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hardware claims of DRA drivers have: the table of dra_claims.yml, and what specs show of a claim."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.dra_claims import ClaimRegistry
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.podresources import ListedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.tests.unit.trees import specs

CASES = yaml.safe_load(Path(__file__).with_name("dra_claims.yml").read_text(encoding="utf-8"))
UID = "55e9a6b0-0c0f-4f0e-8a44-0a1b2c3d4e5f"


def known(case):
    found = specs.registry(*({**specs.spec(*rest), "file": file} for file, *rest in case["specs"]))
    return ClaimRegistry(found, specs.inventory(case["inventory"]) if "inventory" in case else None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    listed = [ListedClaim(driver, claim, tuple(names)) for driver, claim, names in case.get("listed", ())]
    found = known(case).claims(listed)
    locks = {
        f"{claim.key.plugin} {claim.key.request_id}": {
            name: mode for hold in claim.holds for name, mode in hold.locks().items()
        }
        for claim in found.claims
    }
    assert locks == case["claims"]
    assert all(hold.kind == f"dra/{claim.key.plugin}" for claim in found.claims for hold in claim.holds)
    assert [one[: len(text)] for one, text in zip(found.unknown, case.get("unknown", []))] == case.get("unknown", [])
    assert len(found.unknown) == len(case.get("unknown", []))


def write(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    return ClaimRegistry(registry.load([str(tmp_path)]), None)


SPEC = f"""\
cdiVersion: 0.5.0
kind: k8s.gpu.amd.com/gpu
devices:
- name: {UID}-gpu-0-128
  containerEdits: {{deviceNodes: [{{path: /dev/dri/renderD128}}]}}
"""


def test_a_spec_shows_its_claim_as_long_as_it_is_there(tmp_path):
    """Also while it is half written: who wrote it has not said that the claim is over."""
    name = f"k8s.gpu.amd.com-gpu_{UID}.yaml"
    mine = [f"k8s.gpu.amd.com/gpu={UID}-gpu-0-128"]
    seen = write(tmp_path, name, SPEC)
    assert [claim.names for claim in seen.claims(()).claims] == [tuple(mine)] and seen.shows(mine)
    assert not seen.shows(["k8s.gpu.amd.com/gpu=common"])
    torn = write(tmp_path, name, SPEC[:70])
    assert not torn.claims(()).claims and torn.shows(mine)
    (tmp_path / name).unlink()
    assert not ClaimRegistry(registry.load([str(tmp_path)]), None).shows(mine)


def test_two_files_with_one_name_are_no_way_out(tmp_path):
    """A runtime resolves neither; the container that runs has its device all the same."""
    write(tmp_path, "other.yaml", SPEC)
    found = write(tmp_path, f"k8s.gpu.amd.com-gpu_{UID}.yaml", SPEC).claims(())
    assert len(found.claims) == 1


def test_nothing_is_known_to_be_gone_where_a_directory_can_not_be_listed(tmp_path):
    assert ClaimRegistry(registry.load([str(tmp_path), str(tmp_path / "none")]), None).complete
    (tmp_path / "file").touch()
    assert not ClaimRegistry(registry.load([str(tmp_path), str(tmp_path / "file")]), None).complete
