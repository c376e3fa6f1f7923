# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A writer goes on beside its own version or none, and refuses another one by name."""

from __future__ import annotations

import pytest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard
from ansible_collections.fleet.cdi.plugins.module_utils.release.version import VERSION


def test_no_release_is_fine(tmp_path):
    guard.check(str(tmp_path / "missing"))
    assert guard.active(str(tmp_path / "missing")) is None


def test_own_version_is_fine_whatever_its_digest(target):
    release = target.release(VERSION)
    target.install(release)
    guard.check(target.prefix)
    assert guard.active(target.prefix) == release.id


@pytest.mark.parametrize("version", ["0.0.9", f"{VERSION}.1", f"{VERSION}-rc1", "99.0.0"])
def test_other_version_is_refused_naming_both(target, version):
    release = target.release(version)
    target.install(release)
    with pytest.raises(CdiError) as error:
        guard.check(target.prefix)
    assert release.id in str(error.value)
    assert f"version {VERSION}." in str(error.value)
    assert f"{target.prefix}/lib/current" in str(error.value)


@pytest.mark.parametrize("link", ["elsewhere", "/etc", "../0.0.1-0123456789ab"])
def test_foreign_link_is_no_release(target, link):
    target.lib.mkdir(parents=True)
    (target.lib / "current").symlink_to(link)
    assert guard.active(target.prefix) is None
    guard.check(target.prefix)
