# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest: what was there before us comes back, whatever happens in between."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ansible_collections.fleet.cdi.plugins.module_utils import directories, files
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.memory import Memory, memory_of
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import (
    FileWrite,
    digest,
    lock_of_lost_manifest,
    locked_manifest,
    read_manifest,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.system import access_list


def python(code, *arguments):
    """Start this interpreter on `code`, with the collection on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.fixture
def host(tmp_path):
    """A spec directory that exists, one that does not, and a state directory that does not."""

    class Host:
        state_dir = str(tmp_path / "lib" / "cdi")
        directory = tmp_path / "etc"
        path = str(tmp_path / "etc" / "a.json")
        deep = str(tmp_path / "run" / "cdi" / "a.json")

        def everything(self):
            return sorted(str(found.relative_to(tmp_path)) for found in tmp_path.rglob("*"))

    os.mkdir(tmp_path / "etc")
    return Host()


def test_says_what_is_ours(host):
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"ours", "a/b")
    manifest = read_manifest(host.state_dir)
    assert manifest.owns(host.path)
    assert manifest.kind_of(host.path) == "a/b"
    files.replace(host.path, b"edited")
    assert not manifest.owns(host.path)


def test_a_file_without_a_record_is_foreign(host):
    files.replace(host.path, b"theirs")
    assert not read_manifest(host.state_dir).owns(host.path)


def test_takes_back_files_and_the_directories_that_it_made(host):
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"1")
        manifest.write(host.deep, b"2")
    with locked_manifest(host.state_dir) as manifest:
        assert [manifest.take_back(path) for path in sorted(manifest.files)] == ["removed", "removed"]
    assert host.everything() == ["etc"]


def test_a_directory_that_others_use_since_stays(host):
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.deep, b"2")
        files.replace(os.path.dirname(host.deep) + "/theirs.json", b"3")
        manifest.take_back(host.deep)
    assert host.everything() == ["etc", "run", "run/cdi", "run/cdi/theirs.json"]


def test_puts_a_foreign_file_back_with_its_mode(host):
    files.replace(host.path, b"theirs", 0o640)
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"ours 1")
        manifest.write(host.path, b"ours 2")
        assert manifest.take_back(host.path) == "restored"
    assert files.read(host.path)[:2] == (b"theirs", 0o640)


class TestAccessList:
    """A file of others keeps the rights that its administrator gave: `setfacl -m u:1234:rw,g::- FILE`."""

    LISTED = access_list.render_attribute(
        [
            access_list.AccessEntry(access_list.OWNER, 6),
            access_list.AccessEntry(access_list.USER, 6, 1234),
            access_list.AccessEntry(access_list.GROUP, 0),
            access_list.AccessEntry(access_list.MASK, 6),
            access_list.AccessEntry(access_list.OTHER, 0),
        ]
    )

    @pytest.fixture
    def theirs(self, host):
        files.replace(host.path, b"theirs", 0o600)
        try:
            os.setxattr(host.path, directories.ACCESS_LIST, self.LISTED)
        except OSError as error:
            pytest.skip(f"no access lists on this file system: {error.strerror}")
        return host

    def rights(self, host):
        return os.getxattr(host.path, directories.ACCESS_LIST), oct(os.stat(host.path).st_mode & 0o777)

    def test_of_a_file_in_which_we_set_keys(self, theirs):
        before = self.rights(theirs)
        keys = {"for": "docker", "syntax": "json", "created": False, "keys": [], "first": [], "by": ""}
        for content, record in ((b"theirs and ours", keys), (b"theirs", None)):
            with locked_manifest(theirs.state_dir) as manifest:
                manifest.amend(theirs.path, content, record)
            assert self.rights(theirs) == before == (self.LISTED, "0o660")

    def test_of_a_file_that_we_replaced(self, theirs):
        before = self.rights(theirs)
        with locked_manifest(theirs.state_dir) as manifest:
            manifest.write(theirs.path, b"ours")
        with pytest.raises(OSError, match="No data"):
            self.rights(theirs)
        with locked_manifest(theirs.state_dir) as manifest:
            assert manifest.take_back(theirs.path) == "restored"
        assert self.rights(theirs) == before

    def test_nobody_gets_the_rights_of_its_mask_on_the_way(self, theirs, monkeypatch):
        """The bits of the group are the mask of the list, which gives more than the group has."""
        modes, chmod = [], os.fchmod

        def noted(handle, mode):
            if os.readlink(f"/proc/self/fd/{handle}") == str(theirs.directory / ".a.json.tmp"):
                modes.append(mode)
            chmod(handle, mode)

        with locked_manifest(theirs.state_dir) as manifest:
            monkeypatch.setattr(files.os, "fchmod", noted)
            manifest.amend(theirs.path, b"theirs and ours", {})
        assert modes == [0o600]


def test_puts_back_a_foreign_file_that_we_removed(host):
    files.replace(host.path, b"theirs")
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, None)
    assert files.read(host.path) is None
    with locked_manifest(host.state_dir) as manifest:
        assert manifest.take_back(host.path) == "restored"
    assert files.read(host.path).content == b"theirs"


@pytest.mark.parametrize("change, word", [(b"edited", "changed"), (None, "removed")])
def test_leaves_what_others_did_since(host, change, word):
    files.replace(host.path, b"theirs")
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"ours")
        files.remove(host.path) if change is None else files.replace(host.path, change)
        with pytest.raises(CdiError, match=f"a.json: was {word} since fleet.cdi wrote it"):
            manifest.take_back(host.path)
        assert manifest.take_back(host.path, force=True) == "restored"


def test_a_crash_between_record_and_file_is_recognised(host):
    """The record comes first: the file on disk is then still the state before, which counts as ours."""
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"first")
        manifest.write(host.path, b"second")
        files.replace(host.path, b"first")  # as if the second write had been cut off
    assert read_manifest(host.state_dir).owns(host.path)
    with locked_manifest(host.state_dir) as manifest:
        assert manifest.take_back(host.path) == "removed"


def test_two_crashes_between_record_and_file_are_recognised(host, monkeypatch):
    """Two runs wanted different contents, and both ended before the file was written."""
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"first")

        def killed(*_arguments):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            real = files.replace
            patch.setattr(files, "replace", lambda path, *more: (killed if path == host.path else real)(path, *more))
            for content in (b"second", b"third"):
                with pytest.raises(KeyboardInterrupt):
                    manifest.write(host.path, content)
    assert read_manifest(host.state_dir).owns(host.path)
    with locked_manifest(host.state_dir) as manifest:
        assert manifest.take_back(host.path) == "removed"


@pytest.mark.parametrize("content", [b"second", None], ids=["written", "removed"])
def test_a_file_whose_directory_could_not_be_synced_is_ours(host, monkeypatch, content):
    """The new file has its name by then, although the write failed."""
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"first")
        directory, real = os.stat(host.directory).st_ino, os.fsync

        def fsync(handle):
            if os.fstat(handle).st_ino == directory:
                raise OSError(5, "Input/output error")
            real(handle)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            with pytest.raises(CdiError, match="Input/output error"):
                manifest.write(host.path, content)
    live = files.read(host.path)
    assert (live.content if live else None) == content
    assert read_manifest(host.state_dir).owns(host.path)


@pytest.mark.parametrize("prior", [None, b"theirs"], ids=["nothing there", "a foreign file there"])
def test_killed_at_every_step_undo_brings_back_what_was_there(host, prior):
    """The process ends at its n-th call that changes the disk, for every n: two files are written twice, removed,
    written again and taken back.
    """
    code = (
        "import os, sys\n"
        "from ansible_collections.fleet.cdi.plugins.module_utils.manifest import FileWrite, locked_manifest\n"
        "state_dir, path, last = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
        "steps = 0\n"
        "def hook(event, arguments):\n"
        "    global steps\n"
        "    if event in ('os.rename', 'os.remove', 'os.mkdir', 'os.chmod', 'os.rmdir'):\n"
        "        steps += 1\n"
        "        if steps == last:\n"
        "            os.kill(os.getpid(), 9)\n"
        "sys.addaudithook(hook)\n"
        "for content in (b'one', b'two', None):\n"
        "    with locked_manifest(state_dir) as manifest:\n"
        "        manifest.write_all([FileWrite(path, content, 'a/b'), FileWrite(path + '2', content, 'a/c')])\n"
        "with locked_manifest(state_dir) as manifest:\n"
        "    manifest.write_all([FileWrite(path, b'one', 'a/b'), FileWrite(path + '2', b'one', 'a/c')])\n"
        "    manifest.take_back_all()\n"
    )
    step, killed = 0, True
    while killed:
        step += 1
        if prior is not None:
            files.replace(host.path, prior)
        process = python(code, host.state_dir, host.path, str(step))
        process.communicate()
        killed = process.returncode == -9
        with locked_manifest(host.state_dir) as manifest:
            for path in list(manifest.files):
                manifest.take_back(path)
        live = files.read(host.path)
        assert (live.content if live else None) == prior, f"killed before step {step}"
        assert os.listdir(host.directory) in (["a.json"], []), f"killed before step {step}"
    assert step > 20


def test_a_failed_write_leaves_no_trace(host):
    os.symlink("/nowhere", host.directory / "link.json")
    with (
        locked_manifest(host.state_dir) as manifest,
        pytest.raises(CdiError, match="link.json: is a symlink"),
    ):
        manifest.write(str(host.directory / "link.json"), b"ours")
    assert host.everything() == ["etc", "etc/link.json"]


def test_a_write_that_fails_leaves_the_files_after_it_as_they_were(host, monkeypatch):
    paths = [str(host.directory / name) for name in ("1", "2", "3")]
    files.replace(paths[1], b"theirs")
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(paths[2], b"old")
        real = files.replace

        def full(path, *more):
            if path == paths[1]:
                raise CdiError("the disk is full")
            real(path, *more)

        monkeypatch.setattr(files, "replace", full)
        with pytest.raises(CdiError, match="full"):
            manifest.write_all([FileWrite(path, b"new") for path in paths])
    assert [files.read(path).content for path in paths] == [b"new", b"theirs", b"old"]
    found = read_manifest(host.state_dir).files
    assert {path: one["applied"] for path, one in found.items()} == {
        paths[0]: [digest(b"new")],
        paths[2]: [digest(b"old")],
    }


def test_a_file_that_was_removed_before_another_write_failed_is_forgotten(host, monkeypatch):
    first, second = (str(host.directory / name) for name in ("1", "2"))
    replace = files.replace

    def fails(path, *arguments, **more):
        if path == second:
            raise CdiError(f"{path}: can't write it")
        replace(path, *arguments, **more)

    with locked_manifest(host.state_dir) as manifest:
        manifest.write(first, b"ours")
        monkeypatch.setattr(files, "replace", fails)
        with pytest.raises(CdiError, match="can't write"):
            manifest.write_all([FileWrite(first, None), FileWrite(second, b"ours")])
    assert not os.path.exists(first) and set(read_manifest(host.state_dir).files) == set()


def test_a_file_that_another_process_writes_before_its_turn_comes_back(host, monkeypatch):
    paths = [str(host.directory / name) for name in ("1", "2")]
    real = files.replace

    def beside(path, *more):
        real(path, *more)
        if path == paths[0]:
            real(paths[1], b"theirs")

    with locked_manifest(host.state_dir) as manifest:
        monkeypatch.setattr(files, "replace", beside)
        manifest.write_all([FileWrite(path, b"ours") for path in paths])
        monkeypatch.undo()
        assert [manifest.take_back(path) for path in paths] == ["removed", "restored"]
    assert files.read(paths[1]).content == b"theirs"


def test_the_manifest_is_saved_once_for_all_files(host, monkeypatch):
    saved = []
    real = files.replace
    monkeypatch.setattr(files, "replace", lambda path, *more: (saved.append(path), real(path, *more)))
    with locked_manifest(host.state_dir) as manifest:
        for content, saves in ((b"ours", 1), (None, 2)):
            saved.clear()
            manifest.write_all([FileWrite(str(host.directory / str(one)), content) for one in range(10)])
            assert saved.count(manifest.path) == saves
        assert manifest.files == {}
        manifest.write_all([FileWrite(str(host.directory / str(one)), b"ours") for one in range(10)])
        saved.clear()
        assert set(manifest.take_back_all().values()) == {"removed"}
        assert saved == [manifest.path]
    assert host.everything() == ["etc"]


@pytest.mark.parametrize(
    "content, complaint",
    [
        (
            b"",
            "is damaged: found no JSON (Expecting value: line 1 column 1 (char 0)); expected the JSON",
        ),
        (b"\xff", "is damaged: found no JSON ('utf-8' codec can't decode"),
        (b"[" * 100_000, "is damaged: found no JSON"),
        (b"[]", "is damaged: found [] (a list); expected a mapping. Restore it"),
        (b"null", "is damaged: found nothing; expected a mapping"),
        (b"{}", "is damaged: version: is missing"),
        (b'{"version": 1}', "is damaged: files: is missing; expected a mapping"),
        (b'{"version": 1, "files": []}', "is damaged: files: found [] (a list); expected a mapping"),
        (b'{"version": 1, "files": {"/a": null}}', 'is damaged: files."/a": found nothing; expected a mapping'),
        (b'{"version": 1, "files": {"/a": {}}}', 'is damaged: files."/a".applied: is missing; expected a list'),
        (b'{"version": 1, "files": {}, "kinds": {"a": {"gone": 1}}}', "is damaged: kinds.a.wanted: is missing"),
        (b'{"version": 1, "files": {}, "directories": "etc"}', "is damaged: directories: found 'etc' (a text)"),
        (b'{"version": 1, "files": {}, "directories": ["etc"]}', "is damaged: directories[0]: found 'etc' (a text)"),
        (b'{"version": 2, "files": {}}', "has version 2; this release reads 1"),
    ],
)
def test_a_manifest_that_cannot_be_read_stops_everything(host, content, complaint):
    os.makedirs(host.state_dir)
    files.replace(f"{host.state_dir}/manifest.json", content)
    with pytest.raises(CdiError, match=re.escape(f"manifest.json: {complaint}")), locked_manifest(host.state_dir):
        raise AssertionError("it was handed out")
    assert files.read(f"{host.state_dir}/manifest.json").content == content


def test_what_a_newer_release_notes_beside_stays(host):
    """After a roll-back the older release neither loses nor interprets it, and leaves the manifest to it."""
    newer = {"version": 1, "files": {}, "directories": [], "claims": {"a/b": ["x"]}}
    os.makedirs(host.state_dir)
    files.replace(f"{host.state_dir}/manifest.json", json.dumps(newer).encode())
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"ours")
    with locked_manifest(host.state_dir) as manifest:
        manifest.take_back(host.path)
    assert json.loads(files.read(f"{host.state_dir}/manifest.json").content) == newer


def test_sixteen_writers_at_once_lose_no_record(host):
    code = (
        "import sys\n"
        "from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest\n"
        "with locked_manifest(sys.argv[1]) as manifest:\n"
        "    manifest.write(sys.argv[2], b'x')\n"
    )
    paths = [str(host.directory / f"{number}.json") for number in range(16)]
    running = [python(code, host.state_dir, path) for path in paths]
    assert [process.wait() for process in running] == [0] * 16
    assert sorted(read_manifest(host.state_dir).files) == sorted(paths)


def test_is_readable_json_for_people(host):
    with locked_manifest(host.state_dir) as manifest:
        manifest.write(host.path, b"ours", "a/b")
    document = json.loads(files.read(f"{host.state_dir}/manifest.json").content)
    assert document["files"][host.path] == {
        "applied": [digest(b"ours")],
        "kind": "a/b",
        "by": "",
        "prior": None,
    }


CONTENTS = st.sampled_from([None, b"ours", b"ours too", b"theirs"])


def test_what_would_make_the_manifest_unreadable_is_refused(tmp_path):
    """It keeps what it replaces. Larger than what reads it, it would be the end of undo and of each later run."""
    state, path = str(tmp_path / "state"), tmp_path / "x.json"
    path.write_bytes(b"x" * (13 << 20))
    with (
        pytest.raises(CdiError, match="manifest.json: would be larger than 16 MiB"),
        locked_manifest(state) as manifest,
    ):
        manifest.write(str(path), b"ours")
    assert path.stat().st_size == 13 << 20 and read_manifest(state).files == {}


@pytest.mark.parametrize("name", ["c\ndi", "cdi\n", "c\rdi", "c\u2028di", "c\udcffdi", 'c"di\\'])
def test_whatever_name_a_directory_has_the_manifest_can_be_read_again(tmp_path, name):
    """After module spec wrote to a directory "c\\ndi", the manifest counted as damaged: undo took back nothing."""
    state, spec_dir = str(tmp_path / name / "state"), str(tmp_path / name / "etc")
    with locked_manifest(state) as manifest:
        manifest.remember({"a.com/gpu": Memory({"entries": None}, spec_dir, "").document()})
        manifest.write(f"{spec_dir}/a.json", b"ours", "a.com/gpu")
    with locked_manifest(state) as manifest:
        assert memory_of(manifest.kinds["a.com/gpu"]).directory == spec_dir
        assert manifest.directories == [str(tmp_path / name), state, spec_dir]
        manifest.remember({"a.com/gpu": None})
        assert manifest.take_back(f"{spec_dir}/a.json") == "removed"
    assert not any(tmp_path.iterdir())


def test_two_files_in_one_new_directory(tmp_path):
    """Undo removes the directory that both needed."""
    state, new = str(tmp_path / "state"), tmp_path / "new"
    with locked_manifest(state) as manifest:
        manifest.write_all([FileWrite(str(new / name), b"ours") for name in "ab"])
        manifest.write(str(tmp_path / "c"), b"ours")
    with locked_manifest(state) as manifest:
        assert {manifest.take_back(path) for path in sorted(manifest.files)} == {"removed"}
    assert not new.exists()


def test_who_waits_for_the_lock_while_an_undo_removes_its_directory_makes_it_again(tmp_path, monkeypatch):
    state, flock, waits = tmp_path / "state", fcntl.flock, [True]

    def late(handle, how):
        flock(handle, how)
        while waits:
            waits.pop()
            (state / ".lock").unlink()
            state.rmdir()

    monkeypatch.setattr(fcntl, "flock", late)
    with locked_manifest(str(state)) as manifest:
        manifest.write(str(tmp_path / "a"), b"1")
    with locked_manifest(str(state)) as manifest:
        assert manifest.take_back(str(tmp_path / "a")) == "removed"
    assert not state.exists()


@settings(max_examples=60, stateful_step_count=12, deadline=None)
class UndoIsExact(RuleBasedStateMachine):
    """Whatever is written through the manifest, in any order, undo brings back what the first write found."""

    def __init__(self):
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.state_dir = self.root.name + "/state"
        self.path = self.root.name + "/a.json"
        self.before = None

    @rule(content=CONTENTS)
    def foreign(self, content):
        """Somebody else writes while nothing of ours is there."""
        if not read_manifest(self.state_dir).files:
            files.remove(self.path) if content is None else files.replace(self.path, content)
            self.before = content

    @rule(content=CONTENTS)
    def write(self, content):
        if not read_manifest(self.state_dir).files and content == self.before:
            self.before = None  # what has our content becomes ours: a run wrote it whose record was lost
        with locked_manifest(self.state_dir) as manifest:
            manifest.write(self.path, content)
        live = files.read(self.path)
        assert (live.content if live else None) == content
        if not read_manifest(self.state_dir).files:
            self.before = content  # there is nothing of ours, so nothing to take back

    @rule()
    def undo(self):
        with locked_manifest(self.state_dir) as manifest:
            for path in list(manifest.files):
                manifest.take_back(path)

    @invariant()
    def undo_would_bring_back_what_was_there(self):
        manifest = read_manifest(self.state_dir)
        for path in list(manifest.files):
            manifest.take_back(path, check=True)
        prior = manifest.files.get(self.path, {}).get("prior")
        if prior:
            assert base64.b64decode(prior["content"]) == self.before

    def teardown(self):
        self.undo()
        live = files.read(self.path)
        assert (live.content if live else None) == self.before
        self.root.cleanup()


TestUndoIsExact = UndoIsExact.TestCase


def test_a_lost_manifest_shows_by_its_lock_from_the_first_save_on(tmp_path):
    state = tmp_path / "state"
    with locked_manifest(str(state)) as manifest:
        assert lock_of_lost_manifest(str(state)) == ""
        manifest.write(str(tmp_path / "a.json"), b"ours")
    assert lock_of_lost_manifest(str(state)) == ""
    (state / "manifest.json").rename(tmp_path / "kept")
    assert lock_of_lost_manifest(str(state)) == str(state / ".lock")
    (tmp_path / "kept").rename(state / "manifest.json")
    with locked_manifest(str(state)) as manifest:
        manifest.take_back(str(tmp_path / "a.json"))
    assert lock_of_lost_manifest(str(state)) == "" and not state.exists()


@pytest.mark.parametrize("field", ["content", "access_list"])
def test_a_file_before_us_whose_record_is_cut_off_is_not_put_back(tmp_path, field):
    path = tmp_path / "a.json"
    path.write_bytes(b"theirs")
    with locked_manifest(str(tmp_path / "state")) as manifest:
        manifest.write(str(path), b"ours")
        manifest.files[str(path)]["prior"][field] = "YQ="
        with pytest.raises(CdiError, match=f"record of the file before us is damaged: {field}: "):
            manifest.take_back(str(path))
    assert path.read_bytes() == b"ours"
