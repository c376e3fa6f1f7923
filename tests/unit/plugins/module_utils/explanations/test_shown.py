# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The id behind a message."""

from __future__ import annotations

import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id

MESSAGE = "/x: is a symlink to /y; expected a regular file. Remove the link."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (MESSAGE, " [FC1001]"),
        (f"{MESSAGE} [FC1001]", ""),
        ("something else", ""),
    ],
)
def test_a_message_gets_its_id_once(text, shown):
    assert with_id(text) == text + shown


def test_a_message_is_shown_without_if_the_release_is_gone(monkeypatch):
    monkeypatch.setitem(sys.modules, with_id.__module__.replace("shown", "every"), None)
    assert with_id(MESSAGE) == MESSAGE
