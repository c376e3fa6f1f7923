# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether files can be written to a directory."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.writable_places import WritablePlace, look_at_places

USUAL = {"f_bfree": 100, "f_files": 100, "f_ffree": 10, "f_flag": 0}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, {}),
        ({"f_bfree": 0}, {"full": "0 bytes free"}),
        ({"f_ffree": 0}, {"full": "no inodes free"}),
        ({"f_files": 0, "f_ffree": 0}, {}),  # btrfs
        ({"f_flag": os.ST_RDONLY}, {"read_only": True}),
    ],
)
def test_what_a_file_system_lacks(tmp_path, monkeypatch, found, expected):
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(**{**USUAL, **found}))
    assert look_at_places([str(tmp_path)]) == (WritablePlace(str(tmp_path), **expected),)


def test_a_directory_that_is_not_there_counts_as_that_above_it(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "statvfs", lambda path: asked.append(path) or SimpleNamespace(**USUAL))
    look_at_places([str(tmp_path / "a/b"), str(tmp_path / "a/b"), str(tmp_path)])
    assert asked == [str(tmp_path), str(tmp_path)]


def test_this_machine(tmp_path):
    assert look_at_places([str(tmp_path)]) == (WritablePlace(str(tmp_path)),)
