# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks run by the real ansible-playbook on simulated hosts (tests/harness/simulated_host.py)."""

from __future__ import annotations

import apart  # tests/harness
import pytest


@pytest.fixture(scope="session", autouse=True)
def own_directories():
    """Simulated hosts have nothing of what fleet.cdi wrote on this machine."""
    return apart.enter()
