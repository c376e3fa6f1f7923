# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The edits of a claim that a command on the host gets, and those that only a container can have."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.host_edits import host_edits
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Node

CASES = yaml.safe_load(Path(__file__).with_name("host_edits.yml").read_text(encoding="utf-8"))


LEADS_TO = {"/dev/fuse": ("c", 10, 229), "/dev/by-id/fuse": ("c", 10, 229), "/dev/kvm": ("c", 10, 232)}


def read(path):
    """The node at a path of the host."""
    return Node(path, *LEADS_TO[path])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["it"])
def test_edits_on_the_host(case):
    if "refused" in case:
        with pytest.raises(CdiError, match=case["refused"]):
            host_edits(case["edits"], read, LEADS_TO.get)
        return
    found = host_edits(case["edits"], read, LEADS_TO.get)
    shown = [f"{node.path} {node.type} {node.major}:{node.minor} {access}" for node, access in found.allowed]
    assert (shown, dict(found.env)) == (case.get("allowed", []), case.get("env", {}))
