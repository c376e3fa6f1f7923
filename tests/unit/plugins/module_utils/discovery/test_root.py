# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths below a root directory are what a process whose root it is would see."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery.root import Root


@pytest.mark.parametrize(
    "target",
    ["../../opt/file", "../../../../opt/file", "/opt/file", "/opt/../opt/file", "//opt//file", "../.././../opt/./file"],
)
def test_links_that_climb_to_the_root_and_down_again(tmp_path, target):
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/file").write_text("text")
    (tmp_path / "usr/lib/link").symlink_to(target)
    root = Root(str(tmp_path))
    resolved = root.resolve("/usr/lib/link")
    assert resolved == "/opt/file"
    assert root.read(resolved) == b"text"
    assert root.resolve("/usr/lib/../../..") == ""
