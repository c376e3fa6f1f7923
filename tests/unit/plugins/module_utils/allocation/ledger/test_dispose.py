# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether there was a store to remove. With grants in it: test_store_kept_open.py, and the tests of the undo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import dispose as dispose_file
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.dispose import dispose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Refused
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger


def test_where_there_is_no_store_nothing_is_removed(tmp_path: Path) -> None:
    """But for what a call that was killed had begun to make; a preview leaves that, too."""
    ledger = Ledger(str(tmp_path), "boot-1")
    unfinished = Path(ledger.path + ".new")
    unfinished.write_text("")
    assert not dispose(ledger, check=True) and unfinished.exists()
    assert not dispose(ledger) and not unfinished.exists()


class Killed(BaseException):
    """The end of a process that is killed."""


@pytest.fixture
def granted(tmp_path: Path) -> Ledger:
    """A store in which a request holds a device."""
    ledger = Ledger(str(tmp_path), "boot-1")
    ledger.add(Key("gpu", "rule", "req-1"), {"gpu": 1}, lambda _held: [Hold("gpu0", "vendor.com/gpu")], "claims")
    return ledger


@pytest.mark.parametrize("check", [True, False])
def test_a_store_whose_file_is_gone_still_holds_what_its_log_has(granted: Ledger, check: bool) -> None:
    os.unlink(granted.path)
    with pytest.raises(Refused, match="granted to 1 request"):
        dispose(granted, check)
    assert [grant.key.request_id for grant in granted.grants()] == ["req-1"]


@pytest.mark.parametrize("number", range(1, 8))
def test_a_kill_leaves_all_grants_or_none(granted: Ledger, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """What force took away does not come back, and the next call goes on."""
    left = number
    unlink = os.unlink

    def killed(path: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(dispose_file.os, "unlink", killed)
        try:
            dispose(granted, force=True)
        except Killed:
            there = os.path.exists(granted.path)
            assert dispose(granted, check=True, force=True) == there, "nothing may tell of a store that is removed"
    dispose(granted, force=True)
    os.makedirs(os.path.dirname(granted.path), exist_ok=True)  # dispose removes an empty directory
    assert os.listdir(os.path.dirname(granted.path)) == [] and granted.grants() == []
