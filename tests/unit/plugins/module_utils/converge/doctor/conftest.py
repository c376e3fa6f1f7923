# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host that the doctor looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """An empty host."""
    return Host(tmp_path)
