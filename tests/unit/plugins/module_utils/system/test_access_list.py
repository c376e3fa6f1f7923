# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access lists, as setfacl writes and getfacl reads them; and by the kernel's rules for any list."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.system import access_list
from ansible_collections.fleet.cdi.plugins.module_utils.system.access_list import (
    GROUP,
    MASK,
    NAMED_GROUP,
    OTHER,
    OWNER,
    USER,
    AccessEntry,
)

CASES = yaml.safe_load(Path(__file__).with_name("access_lists.yml").read_text(encoding="utf-8"))
UID, GIVEN = 1001, 6
RIGHTS = st.integers(0, 7)
IDS = st.sampled_from([7, 8, UID])


def shown(path):
    done = subprocess.run(["getfacl", "-cnpE", path], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.counterpart("acl")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_file_of_the_host(case, tmp_path):
    path = tmp_path / "node"
    path.touch()
    path.chmod(case["mode"])
    if case.get("entries"):
        subprocess.run([shutil.which("setfacl"), "-m", ",".join(case["entries"]), path], check=True)
    before = shown(path)
    handle = os.open(path, os.O_PATH)
    try:
        if "refused" in case:
            with pytest.raises(ValueError, match=case["refused"]):
                access_list.with_user(access_list.read_access(handle), UID, GIVEN)
            return
        access_list.write_access(handle, access_list.with_user(access_list.read_access(handle), UID, GIVEN))
        assert shown(path) == case["given"]
        assert access_list.effective_rights(access_list.read_access(handle), UID) == GIVEN
        left = access_list.without_user(access_list.read_access(handle), UID)
        if "before" in case:
            left = access_list.with_user(left, UID, case["before"])
        access_list.write_access(handle, left)
        assert shown(path) == case.get("back", before)
    finally:
        os.close(handle)


@st.composite
def lists(draw):
    """Any list that the kernel accepts."""
    users, groups = draw(st.sets(IDS)), draw(st.sets(IDS))
    named = [AccessEntry(USER, draw(RIGHTS), id_) for id_ in users] + [
        AccessEntry(NAMED_GROUP, draw(RIGHTS), id_) for id_ in groups
    ]
    mask = [AccessEntry(MASK, draw(RIGHTS))] if named or draw(st.booleans()) else []
    return (
        AccessEntry(OWNER, draw(RIGHTS)),
        AccessEntry(GROUP, draw(RIGHTS)),
        AccessEntry(OTHER, draw(RIGHTS)),
        *named,
        *mask,
    )


def others(entries):
    """What everybody but the user has in fact."""
    mask = access_list.mask_of(entries)
    found = {}
    for one in entries:
        if one.tag != MASK and (one.tag, one.id) != (USER, UID):
            found[one.tag, one.id] = one.rights & mask if one.tag in access_list.MASKED else one.rights
    return found


@given(lists(), st.sampled_from([4, 6]))
def test_nobody_else_gains_or_loses(entries, rights):
    assert sorted(access_list.parse_attribute(access_list.render_attribute(entries))) == sorted(entries)
    assert others(access_list.without_user(entries, UID)) == others(entries)
    try:
        given_ = access_list.with_user(entries, UID, rights)
    except ValueError:
        return
    assert others(given_) == others(entries)
    assert access_list.effective_rights(given_, UID) == rights
    left = access_list.without_user(given_, UID)
    assert others(left) == others(entries) and access_list.user_rights(left, UID) is None


@pytest.mark.parametrize("content", [b"", b"\x01\0\0\0", b"\x02\0\0\0\x01", b"\x02\0\0\0" + b"\0" * 9])
def test_another_format_is_refused(content):
    with pytest.raises(ValueError, match="version 2"):
        access_list.parse_attribute(content)


@pytest.mark.skipif(os.geteuid() != 0, reason="asks the kernel as other users: needs root")
@pytest.mark.parametrize("mode", [0o000, 0o600, 0o040, 0o020, 0o004])
@pytest.mark.parametrize("entries", [(), ("u:7:r",), ("u:7:-", "g:8:rw"), ("g:8:-",), ("u:7:rw", "m::-")], ids=str)
@pytest.mark.counterpart("acl")
def test_who_may_open_a_file_as_the_kernel_says(tmp_path, mode, entries):
    path = tmp_path / "file"
    path.touch()
    os.chown(path, 5, 6)
    path.chmod(mode)
    for entry in entries:
        subprocess.run(["setfacl", "-m", entry, path], check=True)
    file = os.open(path, os.O_RDONLY)
    found = access_list.read_access(file)
    for uid, gid in ((5, 9), (7, 9), (9, 6), (9, 8), (7, 8), (9, 9)):
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            link = f"/proc/self/fd/{file}"
            os._exit(os.access(link, os.R_OK) or os.access(link, os.W_OK))
        may = bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        assert access_list.may_open(found, (5, 6), uid, {gid}) == may, (uid, gid)
    os.close(file)
