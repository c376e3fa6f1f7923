# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A writer goes on where its own release is active or none, and refuses another one by name."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard
from ansible_collections.fleet.cdi.plugins.module_utils.release.version import VERSION

OURS = f"{VERSION}-0123456789ab"


def test_no_release_is_fine(tmp_path):
    guard.check(str(tmp_path / "missing"), OURS)
    assert guard.active(str(tmp_path / "missing")) is None


def test_our_own_release_is_fine(target):
    release = target.release(VERSION)
    target.install(release)
    guard.check(target.prefix, release.id)
    assert guard.active(target.prefix) == release.id


@pytest.mark.parametrize("version", [VERSION, "0.0.9", f"{VERSION}.1", f"{VERSION}-rc1", "99.0.0"])
def test_another_release_is_refused_naming_both(target, version):
    release = target.release(version)
    target.install(release)
    with pytest.raises(CdiError) as error:
        guard.check(target.prefix, OURS)
    for word in (release.id, OURS, f"{target.prefix}/lib/current"):
        assert word in str(error.value)


def test_another_release_is_a_warning_in_check_mode(target):
    release = target.release("0.0.9")
    target.install(release)
    (warning,) = guard.check(target.prefix, OURS, check_mode=True)
    assert release.id in warning and OURS in warning
    assert guard.check(target.prefix, release.id, check_mode=True) == []


@pytest.mark.parametrize("link", ["elsewhere", "/etc", "../0.0.1-0123456789ab"])
def test_foreign_link_is_no_release(target, link):
    target.lib.mkdir(parents=True)
    (target.lib / "current").symlink_to(link)
    assert guard.active(target.prefix) is None
    guard.check(target.prefix, OURS)
