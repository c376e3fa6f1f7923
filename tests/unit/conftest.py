# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What unit tests share: each error that they provoke has a page in docs/errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import said  # tests/harness

said.watch()


@pytest.fixture(autouse=True)
def every_error_has_a_page() -> Iterator[None]:
    """Fail a test in which the code makes an error that no page explains (plugins/module_utils/explanations)."""
    said.unexplained.clear()
    yield
    assert said.unexplained == [], "write an explanation for each of these"
