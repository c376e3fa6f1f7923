# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of users come from passwd(5), and nothing in it misleads or stops a look at the host."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system.local_users import LIMIT, local_users

ROOT = "root:x:0:0:root:/root:/bin/bash\n"
CASES = {
    "two users": (f"{ROOT}alice:x:1000:1000::/home/alice:/bin/sh\n", {0: "root", 1000: "alice"}),
    "two names of one user": (f"{ROOT}toor:x:0:0::/root:/bin/sh\n", {0: "root"}),
    "letters of any language": ("älice:x:1000:1000:::\n", {1000: "älice"}),
    "names of NIS": (f"+:x:1:1:::\n+bob:x:2:2:::\n-eve:x:3:3:::\n#old:x:4:4:::\n{ROOT}", {0: "root"}),
    "lines without an entry": (
        f"\n:\n::\n:x:5:5:::\nbob\nbob:x\nbob:x:x:\nbob:x:-1:\nbob:x:²:\n{ROOT}",
        {0: "root"},
    ),
    "a terminal's escapes": (
        f"a\x1b[2J:x:1000:1000:::\na\rroot:x:1001:1001:::\na\u202eb:x:1002:0:::\n{ROOT}",
        {0: "root"},
    ),
    "a name without an end": (f"{'a' * 257}:x:1000:1000:::\n{ROOT}", {0: "root"}),
    "a number without an end": (f"bob:x:{'9' * 5000}:1:::\n{ROOT}", {0: "root"}),
}


@pytest.mark.parametrize(("text", "users"), CASES.values(), ids=CASES)
def test_names_by_number(tmp_path, text, users):
    path = tmp_path / "passwd"
    path.write_bytes(text.encode())
    assert local_users(str(path)) == users


def test_a_file_that_can_not_be_read_has_no_names(tmp_path):
    fifo, large = tmp_path / "fifo", tmp_path / "large"
    os.mkfifo(fifo)
    with large.open("wb") as file:
        file.truncate(LIMIT + 1)
    for path in (fifo, large, tmp_path, tmp_path / "none"):
        assert local_users(str(path)) == {}


def test_the_users_of_this_machine():
    assert local_users()[0] == "root"
