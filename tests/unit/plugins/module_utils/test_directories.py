# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""directories.py: root goes only where nobody else can change the way."""

from __future__ import annotations

import os
import struct

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import directories, files
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
USER, NOBODY = 65534, 0xFFFFFFFF


@pytest.fixture
def top(tmp_path):
    """<top>/root/inner of root's, <top>/home of another user's, <top>/sticky as /tmp."""
    for name in ("root/inner", "home", "sticky", "group", "open"):
        (tmp_path / name).mkdir(parents=True)
    os.chown(tmp_path / "home", USER, USER)
    os.chmod(tmp_path / "sticky", 0o1777)
    os.chown(tmp_path / "group", 0, USER)
    os.chmod(tmp_path / "group", 0o775)
    os.chmod(tmp_path / "open", 0o777)
    return tmp_path


def opened(path):
    os.close(directories.opened(str(path)))


def test_a_working_directory_that_was_removed_says_nothing_of_other_paths(tmp_path, monkeypatch):
    """4311f5b8 took all files for missing there: `claim list` said that there are no claims."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert files.read(str(tmp_path / "file")).content == b"text"
    assert directories.resolved(str(tmp_path)) == str(tmp_path)
    for read in (files.read, files.remove, directories.check):
        with pytest.raises(
            CdiError, match=r"^(file|\.): found a path below the working directory, which was removed; .*cd /"
        ):
            read("file")


REFUSED = [
    ("home", r"home belongs to user 65534, group 65534 and has mode 0755, who can put something else there"),
    ("home/of/nothing", "home belongs to user 65534"),
    ("group", "group belongs to user 0, group 65534 and has mode 0775, so that others can put something else"),
    ("open/below", "open belongs to user 0, group 0 and has mode 0777, so that others can"),
    ("sticky", "sticky belongs to user 0, group 0 and has mode 1777, so that every user can make files in it"),
    ("sticky/his", "his belongs to user 65534"),
    ("sticky/link", r"sticky/link is a symlink of user 65534 to \.\./root; expected one of root"),
    ("to-home", "home belongs to user 65534"),
    ("root/inner/../../home", "home belongs to user 65534"),
]


@needs_root
@pytest.mark.parametrize(("name", "says"), REFUSED, ids=[name for name, _says in REFUSED])
def test_what_another_user_can_change_is_refused(top, name, says):
    (top / "sticky/his").mkdir()
    os.chown(top / "sticky/his", USER, USER)
    (top / "sticky/link").symlink_to("../root")
    os.lchown(top / "sticky/link", USER, USER)
    (top / "to-home").symlink_to(top / "home")
    with pytest.raises(directories.Untrusted, match=says):
        if "nothing" in name:
            directories.check(str(top / name))
        else:
            opened(top / name)


@needs_root
@pytest.mark.parametrize("name", ["root/inner", "link/inner", "sticky/ours", "root/../root/inner", "absolute/inner"])
def test_what_only_root_can_change_is_opened_through_links_of_root(top, name):
    (top / "sticky/ours").mkdir()
    (top / "link").symlink_to("root")
    (top / "absolute").symlink_to(top / "root")
    opened(top / name)


@needs_root
def test_a_group_of_root_counts_as_root_unless_an_access_list_names_a_user(top):
    os.chmod(top / "root", 0o775)
    opened(top / "root/inner")
    entries = ((1, 7, NOBODY), (2, 7, USER), (4, 5, NOBODY), (0x10, 7, NOBODY), (0x20, 5, NOBODY))
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(top / "root", "system.posix_acl_access", listed)
    except OSError as error:
        pytest.skip(f"no access lists on this file system: {error.strerror}")
    with pytest.raises(directories.Untrusted, match="so that others can put something else there"):
        opened(top / "root/inner")


def test_links_that_lead_to_each_other_are_an_error_of_the_system(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        opened(tmp_path / "a")


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    before = len(os.listdir("/proc/self/fd"))
    opened(tmp_path / "link")
    for name in ("none", "file", "file/below"):
        with pytest.raises(OSError):
            opened(tmp_path / name)
    files.replace(str(tmp_path / "a.conf"), b"1")
    files.read(str(tmp_path / "a.conf"))
    files.remove(str(tmp_path / "a.conf"))
    files.make_directory(str(tmp_path / "one/two"))
    files.check(str(tmp_path / "none/a.conf"))
    assert len(os.listdir("/proc/self/fd")) == before


WORK = {
    "read": files.read,
    "replace": lambda path: files.replace(path, b"ours"),
    "remove": files.remove,
    "lock": files.lock,
    "make_directory": files.make_directory,
    "check": files.check,
}


@needs_root
@pytest.mark.parametrize("work", WORK)
def test_no_file_is_touched_where_another_user_can_change_the_way(top, work):
    (top / "home/d").mkdir()
    (top / "home/d/a.conf").write_text("theirs")
    name = "home/d/below" if work == "make_directory" else "home/d/a.conf"
    with pytest.raises(CdiError, match="home belongs to user 65534"):
        WORK[work](str(top / name))
    assert os.listdir(top / "home/d") == ["a.conf"] and (top / "home/d/a.conf").read_text() == "theirs"


@needs_root
def test_a_directory_that_is_swapped_for_a_link_at_any_step_gets_nothing(top, monkeypatch):
    """The user's own directory passes for root's for a moment; what is done then is done in what was checked."""
    victim, his = top / "root/inner", top / "sticky/his"
    his.mkdir()  # root's own, so far: then it was given to him, who swaps it
    real = os.open

    def swapping(name, flags, *mode, dir_fd=None):
        handle = real(name, flags, *mode, dir_fd=dir_fd)
        if name == "his":
            his.rename(top / "sticky/was")
            his.symlink_to(victim)
        return handle

    monkeypatch.setattr(os, "open", swapping)
    files.replace(str(his / "a.conf"), b"ours")
    assert os.listdir(victim) == []
    assert (top / "sticky/was/a.conf").read_bytes() == b"ours"


def test_a_walk_says_nothing_of_a_directory_that_others_can_change(tmp_path):
    for name in ("kept/below", "open"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("x")
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("/etc")
    walked = {below: (at >= 0, names) for below, at, names in directories.walk(str(tmp_path))}
    assert walked == {"": (True, []), "kept": (True, []), "kept/below": (True, ["file"]), "open": (False, ["file"])}
