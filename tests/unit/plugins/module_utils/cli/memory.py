# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A device that nearly every Linux machine has: what verbs that look at this machine are tried with."""

from __future__ import annotations

import os

import pytest

KIND = "test.fleet.cdi/memory"
ENTRY = {"profile": "rule", "kind": KIND, "match": {"subsystem": "mem", "node": "/dev/null"}, "name_by": ["sysname"]}

only_where_it_is = pytest.mark.skipif(
    not os.path.exists("/sys/class/mem/null"), reason="this machine's /sys has no mem/null"
)
