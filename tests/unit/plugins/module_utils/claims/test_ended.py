# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of claims that ended in this boot, and whether some of them were lost."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import ended
from ansible_collections.fleet.cdi.plugins.module_utils.claims.ended import (
    checksum_path,
    ended_containers,
    has_ended,
    names_lost,
    note_ended,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

BOOT = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture
def noted(tmp_path):
    """The file after two claims ended; the second had two containers."""
    path = tmp_path / "claims.ended"
    note_ended(str(path), BOOT, "job-1")
    note_ended(str(path), BOOT, "job-2", ["a", "b"])
    return path


def test_names_and_containers_are_kept_until_the_next_boot(noted):
    assert has_ended(str(noted), BOOT, "job-1") and has_ended(str(noted), BOOT, "job-2")
    assert not has_ended(str(noted), BOOT, "job") and not has_ended(str(noted), "other", "job-1")
    assert ended_containers(str(noted), BOOT, "job-2") == {"a", "b"}
    note_ended(str(noted), "other", "job-3")
    assert has_ended(str(noted), "other", "job-3") and not has_ended(str(noted), BOOT, "job-1")
    assert names_lost(str(noted), "other") == names_lost(str(noted), BOOT) == ""


def test_nothing_is_lost_where_no_claim_ended(tmp_path):
    assert names_lost(str(tmp_path / "claims.ended"), BOOT) == ""


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "is gone": lambda path: path.unlink(),
    "was changed": lambda path: path.write_bytes(b""),
    "was changed, by": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "was changed, by its": flip,
}


@pytest.mark.parametrize("says", DAMAGES)
def test_a_loss_is_told_until_the_next_boot_whatever_ends_later(noted, says):
    DAMAGES[says](noted)
    assert says in names_lost(str(noted), BOOT) and str(noted) in names_lost(str(noted), BOOT)
    for number in range(9):
        note_ended(str(noted), BOOT, f"job-{number}", ["c", "d"])
    assert "was changed" in names_lost(str(noted), BOOT)
    note_ended(str(noted), "other", "job-3")
    assert names_lost(str(noted), "other") == ""


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b""), flip])
def test_so_is_a_checksum_that_is_gone_or_damaged(noted, tmp_path, damage):
    damage(tmp_path / "claims.ended.sum")
    assert checksum_path(str(noted)) in names_lost(str(noted), BOOT)
    note_ended(str(noted), BOOT, "job-3")
    assert names_lost(str(noted), BOOT) == "" and has_ended(str(noted), BOOT, "job-3")


def test_a_call_that_was_killed_before_the_checksum_lost_nothing(noted):
    """Its names count, and the next call sums them up."""
    kept = (noted.parent / "claims.ended.sum").read_bytes()
    note_ended(str(noted), BOOT, "job-3")
    (noted.parent / "claims.ended.sum").write_bytes(kept)
    assert names_lost(str(noted), BOOT) == "" and has_ended(str(noted), BOOT, "job-3")
    note_ended(str(noted), BOOT, "job-4")
    flip(noted)
    assert "was changed" in names_lost(str(noted), BOOT)


def test_a_checksum_that_a_power_cut_left_empty_is_no_loss_of_the_next_boot(noted, tmp_path):
    (tmp_path / "claims.ended.sum").write_bytes(b"")
    assert names_lost(str(noted), "other") == ""


@pytest.mark.parametrize("exists", [True, False])
def test_a_directory_that_can_not_be_trusted_has_a_finding_of_its_own(noted, tmp_path, exists):
    if not exists:
        noted.unlink()
        (tmp_path / "claims.ended.sum").unlink()
    tmp_path.chmod(0o777)
    assert names_lost(str(noted), BOOT) == ""


OBSTACLES = {
    "is not a regular file (d": os.mkdir,
    "is not a regular file (p": os.mkfifo,
    "can't write it": lambda path: os.symlink("elsewhere", path),
}


@pytest.mark.parametrize("says", OBSTACLES)
@pytest.mark.parametrize("name", ["claims.ended", "claims.ended.sum"])
def test_a_claim_did_not_end_where_something_else_is_in_the_place_of_a_file(tmp_path, name, says):
    """Each call added the name, and blamed the list of names for what was in the place of its checksum."""
    path = str(tmp_path / "claims.ended")
    OBSTACLES[says](tmp_path / name)
    for _try in range(3):
        with pytest.raises(CdiError) as refused:
            note_ended(path, BOOT, "job-1", ["a"])
        assert f"{tmp_path / name}: {says}" in str(refused.value)
    (tmp_path / name).rmdir() if (tmp_path / name).is_dir() else (tmp_path / name).unlink()
    assert not has_ended(path, BOOT, "job-1") and names_lost(path, BOOT) == ""
    note_ended(path, BOOT, "job-1", ["a"])
    assert has_ended(path, BOOT, "job-1") and names_lost(path, BOOT) == ""


@pytest.mark.parametrize("left", [None, b"", b"damaged"])
def test_a_first_call_that_was_killed_before_the_checksum_lost_nothing(tmp_path, monkeypatch, left):
    path = tmp_path / "claims.ended"
    if left is not None:
        (tmp_path / "claims.ended.sum").write_bytes(left)

    def kill(*_about):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ended, "_note_checksum", kill)
        with pytest.raises(KeyboardInterrupt):
            note_ended(str(path), BOOT, "job-1")
    assert has_ended(str(path), BOOT, "job-1") and names_lost(str(path), BOOT) == ""
    note_ended(str(path), BOOT, "job-2")
    flip(path)
    assert "was changed" in names_lost(str(path), BOOT)
