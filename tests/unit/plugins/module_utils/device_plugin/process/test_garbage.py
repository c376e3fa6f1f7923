# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When Python's garbage collector works, and what it walks over."""

from __future__ import annotations

import gc

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import garbage


@pytest.fixture(autouse=True)
def _as_before():
    yield
    gc.unfreeze()
    gc.enable()


def test_no_collection_until_all_work_is_over():
    first, second = garbage.none(), garbage.none()
    with first:
        assert not gc.isenabled()
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_work_that_fails_ends_too():
    with pytest.raises(ZeroDivisionError), garbage.none():
        1 / 0  # noqa: B018
    assert gc.isenabled()


def test_work_that_hangs_does_not_stop_it_for_ever(monkeypatch):
    hung = garbage.none()
    hung.__enter__()
    monkeypatch.setattr(garbage, "HUNG", -1.0)
    with garbage.none():
        assert not gc.isenabled()
    assert gc.isenabled()
    hung.__exit__(None, None, None)
    assert gc.isenabled()


@pytest.mark.parametrize(("number", "walked"), [(garbage.MANY + 1, False), (10, True)])
def test_what_much_work_leaves_is_not_walked_over(number, walked):
    gc.collect()
    with garbage.none():
        kept = [[index] for index in range(number)]
        garbage.left(number)
    assert any(one is kept[0] for one in gc.get_objects()) == walked
