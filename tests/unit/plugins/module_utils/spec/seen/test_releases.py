# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of the reference library's releases, and who knows which version and field."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen import releases

ROWS = {
    "0.2.9": "0.3.0",
    "0.3.0": "0.3.0",
    "0.5.3": "0.5.1",
    "0.5.9": "0.5.4",
    "0.6.0": "0.6.0",
    "0.10.0": "0.8.0",
    "9.0.0": "1.1.1",
}


@pytest.mark.parametrize(("version", "row"), ROWS.items())
def test_a_row_stands_for_all_releases_up_to_the_next(version, row):
    assert releases.row(version) == row


@pytest.mark.parametrize(
    ("version", "first"),
    [("0.1.0", "0.3.0"), ("0.3.0", "0.3.0"), ("0.5.0", "0.5.0"), ("v0.5.0", "0.5.4"), ("1.1.0", "1.1.0")],
)
def test_who_knows_a_version(version, first):
    names = list(releases.BY_NAME)
    assert releases.declaring(version) == set(names[names.index(first) :])


def test_who_knows_a_field():
    names = set(releases.BY_NAME)
    assert releases.knowing("spec", "kind") == names
    assert releases.knowing("mount", "type") == names - {"0.3.0"}
    assert releases.knowing("intelRdt", "enableCMT") == {"0.7.0", "0.8.0", "1.0.0", "newer"}
    assert releases.knowing("intelRdt", "schemata") == {"1.1.0", "1.1.1", "newer"}
