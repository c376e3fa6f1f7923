# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module's diff shows of files and units."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge import show
from ansible_collections.fleet.cdi.plugins.module_utils.converge.plan import Change
from ansible_collections.fleet.cdi.plugins.module_utils.converge.refresher import State

HEADERS = {"before_header": "/etc/a", "after_header": "/etc/a"}


@pytest.mark.parametrize(
    ("before", "after", "as_text", "as_document"),
    [
        (None, b'{"a": 1}\n', ("", '{"a": 1}\n'), ("", {"a": 1})),
        (b'{"a": 1}\n', None, ('{"a": 1}\n', ""), ({"a": 1}, "")),
        (b"\xff{", b"[]", ("\ufffd{", "[]"), ("\ufffd{", [])),
    ],
)
def test_files(before, after, as_text, as_document):
    change = Change("/etc/a", "", before, after)
    assert show.text(change) == {**HEADERS, "before": as_text[0], "after": as_text[1]}
    assert show.document(change) == {**HEADERS, "before": as_document[0], "after": as_document[1]}


def test_units():
    off, on = State((), ()), State(("a.service",), ("a.path",))
    assert show.units(on, on) == []
    (one,) = show.units(off, on)
    assert (one["before"], one["after"]) == (off._asdict(), on._asdict())
