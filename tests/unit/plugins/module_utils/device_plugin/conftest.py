# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resource and the kubelet of the tests of registration."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.registration import Kubelet, Places


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


@pytest.fixture
def kubelet(places: Places) -> Kubelet:
    return Kubelet(places)
