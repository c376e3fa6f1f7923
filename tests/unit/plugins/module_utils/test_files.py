# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""files.py: one file at a time, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


def test_writes_the_bytes_with_the_mode_whatever_the_umask(tmp_path):
    path = str(tmp_path / "a.json")
    was = os.umask(0o077)
    try:
        files.replace(path, b"one\n")
    finally:
        os.umask(was)
    assert files.read(path).content == b"one\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644


@pytest.mark.counterpart("acl")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_without_an_access_list_inherits_none(tmp_path, mode):
    """A user in the list of the directory may read or write it no more than before."""
    path = tmp_path / "a.json"
    files.replace(str(path), b"1", mode)
    subprocess.run(["setfacl", "-d", "-m", "u:1234:rwx", tmp_path], check=True)
    live = files.read(str(path))
    files.replace(str(path), b"2", live.mode, (live.uid, live.gid), live.access_list)
    assert "user:1234" not in subprocess.run(["getfacl", "-n", path], capture_output=True, text=True, check=True).stdout
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o700, 0o755])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_directory_is_never_open_to_more_users_than_it_will_be(tmp_path, monkeypatch, mode, umask):
    """A user who opens it in the moment before its mode is set keeps the descriptor, and may lock it for ever."""
    mkdir, modes = os.mkdir, []

    def seen(name, *given, dir_fd=None):
        mkdir(name, *given, dir_fd=dir_fd)
        modes.append(stat.S_IMODE(os.stat(name, dir_fd=dir_fd).st_mode))

    monkeypatch.setattr(os, "mkdir", seen)
    was = os.umask(umask)
    try:
        files.make_directory(str(tmp_path / "claims"), mode)
    finally:
        os.umask(was)
    assert [made & ~mode for made in modes] == [0]
    assert stat.S_IMODE(os.stat(tmp_path / "claims").st_mode) == mode


def test_leaves_nothing_else_in_the_directory(tmp_path):
    files.replace(str(tmp_path / "a.json"), b"1")
    files.replace(str(tmp_path / "a.json"), b"2")
    assert os.listdir(tmp_path) == ["a.json"]


def test_content_is_on_disk_before_the_name_and_the_name_before_it_returns(tmp_path, monkeypatch):
    path, rename, steps = str(tmp_path / "a.json"), os.rename, []
    monkeypatch.setattr(os, "fsync", lambda handle: steps.append(os.path.realpath(f"/proc/self/fd/{handle}")))
    monkeypatch.setattr(os, "rename", lambda *names, **at: (steps.append("rename"), rename(*names, **at)))
    files.replace(path, b"1")
    assert steps == [str(tmp_path / ".a.json.tmp"), "rename", str(tmp_path)]
    steps.clear()
    files.remove(path)
    assert steps == [str(tmp_path)]


def test_a_lock_whose_file_was_removed_meanwhile_is_none(tmp_path, monkeypatch):
    """Its last holder removes it with the manifest: whoever waited for that one must not work beside a third."""
    path, flock, taken = str(tmp_path / ".lock"), fcntl.flock, []

    def late(handle, how):
        flock(handle, how)
        if not taken:
            os.unlink(path)
        taken.append(handle)

    monkeypatch.setattr(fcntl, "flock", late)
    handle = files.lock(path)
    assert len(taken) == 2 and os.path.samestat(os.fstat(handle), os.stat(path))
    os.close(handle)


def test_who_asks_for_a_lock_makes_no_file_and_holds_nothing(tmp_path):
    path = tmp_path / ".lock"
    assert not files.is_locked(str(path)) and not path.exists()
    held = files.lock(str(path))
    assert files.is_locked(str(path))
    os.close(held)
    assert not files.is_locked(str(path)) and not files.is_locked(str(path))


def test_a_lock_that_can_not_be_asked_for_counts_as_held(tmp_path):
    path = tmp_path / ".lock"
    path.symlink_to(tmp_path / "elsewhere")
    assert files.is_locked(str(path))


def test_readers_of_the_old_file_keep_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with open(path, "rb") as reader:
        files.replace(str(path), b"new")
        assert reader.read() == b"old"


def test_refuses_a_symlink_and_touches_neither_link_nor_target(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    link = tmp_path / "a.json"
    link.symlink_to(outside)
    with pytest.raises(CdiError, match=f"{link}: is a symlink to {outside}"):
        files.replace(str(link), b"ours")
    assert link.is_symlink()
    assert outside.read_bytes() == b"theirs"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_refuses_what_is_no_regular_file(tmp_path, make):
    path = str(tmp_path / "a.json")
    make(path)
    with pytest.raises(CdiError, match="a.json: is not a regular file"):
        files.replace(path, b"ours")
    with pytest.raises(CdiError, match="a.json: is not a regular file"):
        files.read(path)  # and does not hang on the FIFO


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(CdiError, match=f"{tmp_path}/none: can't write into it: No such file or directory"):
        files.replace(f"{tmp_path}/none/a.json", b"")


def test_a_full_disk_leaves_the_old_file_and_no_debris(tmp_path):
    """A real ENOSPC-like failure: the kernel refuses bytes beyond RLIMIT_FSIZE."""
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    code = (
        "import resource, signal, sys\n"
        "from ansible_collections.fleet.cdi.plugins.module_utils import files, records\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    files.replace(sys.argv[1], b'x' * 5000)\n"
        "except records.CdiError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, env=environment, check=True
    ).stdout
    assert said == f"{path}: can't write it: File too large. Lift the limit on file sizes and run again\n"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_keeps_the_selinux_label(tmp_path):
    path = str(tmp_path / "a.json")
    files.replace(path, b"old")
    label = b"system_u:object_r:container_file_t:s0"
    try:
        os.setxattr(path, "security.selinux", label)
    except OSError as error:
        pytest.skip(f"this file system or user can't set SELinux labels: {error.strerror}")
    files.replace(path, b"new")
    assert os.getxattr(path, "security.selinux") == label


class Policy:
    """A stand-in for the module `selinux` of python3-libselinux, with the labels of a test."""

    def __init__(self, **labels):
        self.labels = labels

    def matchpathcon(self, path, _sort):
        name = os.path.basename(path)
        if name not in self.labels:
            raise FileNotFoundError(2, "No such file or directory")  # for a path with <<none>>
        return [0, f"system_u:object_r:{self.labels[name]}:s0"]


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """Let the kernel have a policy of SELinux: policy(name="type", ...) -> label(path)."""
    place = tmp_path / "enforce"
    place.write_text("1", encoding="ascii")
    try:
        os.setxattr(place, files.LABEL, b"system_u:object_r:etc_t:s0")
    except OSError as error:
        pytest.skip(f"this file system or user can't set SELinux labels: {error.strerror}")

    def label(path):
        try:
            return os.getxattr(path, files.LABEL).decode()
        except OSError:
            return ""

    def have(**labels):
        monkeypatch.setattr(files, "ENFORCE", str(place))
        monkeypatch.setitem(sys.modules, "selinux", Policy(**labels))
        return label

    return have


def test_a_new_file_gets_the_label_of_the_policy(tmp_path, policy):
    label = policy(unit="systemd_unit_file_t")
    files.replace(str(tmp_path / "unit"), b"")
    assert label(tmp_path / "unit") == "system_u:object_r:systemd_unit_file_t:s0"


def test_a_file_for_which_the_policy_has_no_label_is_written(tmp_path, policy):
    """As Debian's policy for /run/cdi-inventory.json."""
    label = policy(other="etc_t")
    files.replace(str(tmp_path / "inventory.json"), b"new")
    assert (tmp_path / "inventory.json").read_bytes() == b"new" and label(tmp_path / "inventory.json") == ""


def test_new_directories_get_the_labels_of_the_policy(tmp_path, policy):
    label = policy(docker="container_config_t")
    assert len(files.make_directory(str(tmp_path / "docker/other"))) == 2
    assert label(tmp_path / "docker") == "system_u:object_r:container_config_t:s0"
    assert label(tmp_path / "docker/other") == ""


def test_without_the_package_files_keep_what_they_inherit(tmp_path, policy, monkeypatch):
    label = policy(unit="systemd_unit_file_t")
    monkeypatch.setitem(sys.modules, "selinux", None)
    files.replace(str(tmp_path / "unit"), b"")
    assert label(tmp_path / "unit") == ""


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "a.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CdiError, match="a.json: is larger than 16 MiB"):
        files.read(str(path))


@given(st.binary(max_size=200))
@settings(max_examples=30, deadline=None)
def test_any_bytes_come_back_as_they_were(content):
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        files.replace(f"{root}/a", content)
        assert files.read(f"{root}/a").content == content


def test_a_temporary_file_lies_above_a_directory_of_drop_ins(tmp_path, monkeypatch):
    """CRI-O reads every file of crio.conf.d, whatever its name: a killed run must not leave one there."""
    directory, rename, moved = tmp_path / "crio.conf.d", os.rename, []
    directory.mkdir()

    def seen(old, new, *, src_dir_fd, dst_dir_fd):
        moved.append(tuple(os.readlink(f"/proc/self/fd/{at}") for at in (src_dir_fd, dst_dir_fd)))
        rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", seen)
    files.replace(str(directory / "zz.conf"), b"ours")
    assert moved == [(str(tmp_path), str(directory))]
    assert (os.listdir(tmp_path), os.listdir(directory)) == (["crio.conf.d"], ["zz.conf"])


def test_what_a_killed_run_left_goes_with_the_file(tmp_path):
    (tmp_path / "conf.d").mkdir()
    for path, rest in (("a.json", ".a.json.tmp"), ("conf.d/b.conf", ".b.conf.tmp")):
        (tmp_path / rest).write_bytes(b"half")
        files.remove(str(tmp_path / path))
    assert os.listdir(tmp_path) == ["conf.d"]


def test_an_error_is_not_hidden_by_one_of_clearing_up(tmp_path, monkeypatch):
    """On a file system that turns read-only the removal of the temporary file fails, too."""

    def fails(*_arguments, **_more):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "rename", fails)
    monkeypatch.setattr(os, "unlink", fails)
    with pytest.raises(
        CdiError,
        match="a.json: can't write it: Read-only file system. Make the file system writable, or choose another place",
    ):
        files.replace(str(tmp_path / "a.json"), b"1")


def test_a_lock_that_is_held_for_too_long_is_named(tmp_path):
    path = str(tmp_path / "lock")
    held = files.lock(path)
    with pytest.raises(CdiError, match=r"lock: another process has held this lock for 0.05 s.*fuser"):
        files.lock(path, 0.05)
    os.close(held)
    os.close(files.lock(path, 0.05))
