# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What discovery finds on the machine of a case; trees/nvidia.py builds the machine."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia

needs_nodes = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes")


def found(case, base, **options):
    """Return what discovery finds with the profile nvidia; `options` are those of the entry."""
    root, _gpus = nvidia.of_case({"gpus": "A100", **case}, base)
    return discover({"gpus": {"profile": "nvidia", **options}}, snapshot.take(root))
