# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""files.py: one file at a time, and the manifest that remembers what was there before."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


def python(code, *arguments):
    """Start this interpreter on `code`, with the collection on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


class TestReplace:
    def test_writes_the_bytes_with_the_mode_whatever_the_umask(self, tmp_path):
        path = str(tmp_path / "a.json")
        was = os.umask(0o077)
        try:
            files.replace(path, b"one\n")
        finally:
            os.umask(was)
        assert files.read(path).content == b"one\n"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o644

    def test_leaves_nothing_else_in_the_directory(self, tmp_path):
        files.replace(str(tmp_path / "a.json"), b"1")
        files.replace(str(tmp_path / "a.json"), b"2")
        assert os.listdir(tmp_path) == ["a.json"]

    def test_readers_of_the_old_file_keep_the_old_file(self, tmp_path):
        path = tmp_path / "a.json"
        path.write_bytes(b"old")
        with open(path, "rb") as reader:
            files.replace(str(path), b"new")
            assert reader.read() == b"old"

    def test_refuses_a_symlink_and_touches_neither_link_nor_target(self, tmp_path):
        outside = tmp_path / "outside"
        outside.write_bytes(b"theirs")
        link = tmp_path / "a.json"
        link.symlink_to(outside)
        with pytest.raises(CdiError, match=f"{link}: is a symlink to {outside}"):
            files.replace(str(link), b"ours")
        assert link.is_symlink()
        assert outside.read_bytes() == b"theirs"

    @pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "fifo"])
    def test_refuses_what_is_no_regular_file(self, tmp_path, make):
        path = str(tmp_path / "a.json")
        make(path)
        with pytest.raises(CdiError, match="a.json: is no regular file"):
            files.replace(path, b"ours")
        with pytest.raises(CdiError, match="a.json: is no regular file"):
            files.read(path)  # and does not hang on the FIFO

    def test_a_missing_directory_is_named(self, tmp_path):
        with pytest.raises(CdiError, match=f"{tmp_path}/none: can't write into it: No such file or directory"):
            files.replace(f"{tmp_path}/none/a.json", b"")

    def test_a_full_disk_leaves_the_old_file_and_no_debris(self, tmp_path):
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
        said, _nothing = python(code, str(path)).communicate()
        assert said == f"{path}: can't write it: File too large. Lift the limit on file sizes and run again\n"
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["a.json"]

    def test_keeps_the_selinux_label(self, tmp_path):
        path = str(tmp_path / "a.json")
        files.replace(path, b"old")
        label = b"system_u:object_r:container_file_t:s0"
        try:
            os.setxattr(path, "security.selinux", label)
        except OSError as error:
            pytest.skip(f"this file system or user can't set SELinux labels: {error.strerror}")
        files.replace(path, b"new")
        assert os.getxattr(path, "security.selinux") == label

    def test_a_huge_file_is_not_read(self, tmp_path):
        path = tmp_path / "a.json"
        with open(path, "wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(CdiError, match="a.json: is larger than 16 MiB"):
            files.read(str(path))


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


class TestManifest:
    def test_says_what_is_ours(self, host):
        with files.locked_manifest(host.state_dir) as manifest:
            manifest.write(host.path, b"ours", "a/b")
        manifest = files.manifest(host.state_dir)
        assert manifest.owns(host.path)
        assert manifest.kind_of(host.path) == "a/b"
        files.replace(host.path, b"edited")
        assert not manifest.owns(host.path)

    def test_a_file_without_a_record_is_foreign(self, host):
        files.replace(host.path, b"theirs")
        assert not files.manifest(host.state_dir).owns(host.path)

    def test_takes_back_files_and_the_directories_that_it_made(self, host):
        with files.locked_manifest(host.state_dir) as manifest:
            manifest.write(host.path, b"1")
            manifest.write(host.deep, b"2")
        with files.locked_manifest(host.state_dir) as manifest:
            assert [manifest.take_back(path) for path in sorted(manifest.files)] == ["removed", "removed"]
        assert host.everything() == ["etc"]

    def test_a_directory_that_others_use_since_stays(self, host):
        with files.locked_manifest(host.state_dir) as manifest:
            manifest.write(host.deep, b"2")
            files.replace(os.path.dirname(host.deep) + "/theirs.json", b"3")
            manifest.take_back(host.deep)
        assert host.everything() == ["etc", "run", "run/cdi", "run/cdi/theirs.json"]

    def test_puts_a_foreign_file_back_with_its_mode(self, host):
        files.replace(host.path, b"theirs", 0o640)
        with files.locked_manifest(host.state_dir) as manifest:
            manifest.write(host.path, b"ours 1")
            manifest.write(host.path, b"ours 2")
            assert manifest.take_back(host.path) == "restored"
        assert files.read(host.path)[:2] == (b"theirs", 0o640)

    def test_puts_back_a_foreign_file_that_we_removed(self, host):
        files.replace(host.path, b"theirs")
        with files.locked_manifest(host.state_dir) as manifest:
            manifest.write(host.path, None)
        assert files.read(host.path) is None
        with files.locked_manifest(host.state_dir) as manifest:
            assert manifest.take_back(host.path) == "restored"
        assert files.read(host.path).content == b"theirs"

    @pytest.mark.parametrize("change, word", [(b"edited", "changed"), (None, "removed")])
    def test_leaves_what_others_did_since(self, host, change, word):
        files.replace(host.path, b"theirs")
        with files.locked_manifest(host.state_dir) as manifest:
            manifest.write(host.path, b"ours")
            files.remove(host.path) if change is None else files.replace(host.path, change)
            with pytest.raises(CdiError, match=f"a.json: was {word} by somebody else"):
                manifest.take_back(host.path)
            assert manifest.take_back(host.path, force=True) == "restored"

    def test_a_crash_between_record_and_file_is_recognised(self, host):
        """The record comes first: the file on disk is then still the state before, which counts as ours."""
        with files.locked_manifest(host.state_dir) as manifest:
            manifest.write(host.path, b"first")
            manifest.write(host.path, b"second")
            files.replace(host.path, b"first")  # as if the second write had been cut off
        assert files.manifest(host.state_dir).owns(host.path)
        with files.locked_manifest(host.state_dir) as manifest:
            assert manifest.take_back(host.path) == "removed"

    @pytest.mark.parametrize("prior", [None, b"theirs"], ids=["nothing there", "a foreign file there"])
    def test_killed_at_every_step_undo_brings_back_what_was_there(self, host, prior):
        """The process ends at its n-th call that changes the disk, for every n: two writes, then a removal."""
        code = (
            "import os, sys\n"
            "from ansible_collections.fleet.cdi.plugins.module_utils import files\n"
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
            "    with files.locked_manifest(state_dir) as manifest:\n"
            "        manifest.write(path, content, 'a/b')\n"
        )
        step, killed = 0, True
        while killed:
            step += 1
            if prior is not None:
                files.replace(host.path, prior)
            process = python(code, host.state_dir, host.path, str(step))
            process.communicate()
            killed = process.returncode == -9
            with files.locked_manifest(host.state_dir) as manifest:
                for path in list(manifest.files):
                    manifest.take_back(path)
            live = files.read(host.path)
            assert (live.content if live else None) == prior, f"killed before step {step}"
            assert os.listdir(host.directory) in (["a.json"], []), f"killed before step {step}"
        assert step > 8

    def test_a_failed_write_leaves_no_trace(self, host):
        os.symlink("/nowhere", host.directory / "link.json")
        with (
            files.locked_manifest(host.state_dir) as manifest,
            pytest.raises(CdiError, match="link.json: is a symlink"),
        ):
            manifest.write(str(host.directory / "link.json"), b"ours")
        assert host.everything() == ["etc", "etc/link.json"]

    @pytest.mark.parametrize(
        "content, complaint",
        [
            (b"", "is damaged"),
            (b'{"version": 1, "files": {"/a": {}}}', "is damaged"),
            (b"[]", "is damaged"),
            (b"\xff", "is damaged"),
            (b'{"version": 1}', "is damaged"),
            (b'{"version": 2, "files": {}}', "has version 2; this release reads 1"),
        ],
    )
    def test_a_manifest_that_cannot_be_read_stops_everything(self, host, content, complaint):
        os.makedirs(host.state_dir)
        files.replace(f"{host.state_dir}/manifest.json", content)
        with pytest.raises(CdiError, match=f"manifest.json: {complaint}"), files.locked_manifest(host.state_dir):
            raise AssertionError("it was handed out")
        assert files.read(f"{host.state_dir}/manifest.json").content == content

    def test_sixteen_writers_at_once_lose_no_record(self, host):
        code = (
            "import sys\n"
            "from ansible_collections.fleet.cdi.plugins.module_utils import files\n"
            "with files.locked_manifest(sys.argv[1]) as manifest:\n"
            "    manifest.write(sys.argv[2], b'x')\n"
        )
        paths = [str(host.directory / f"{number}.json") for number in range(16)]
        running = [python(code, host.state_dir, path) for path in paths]
        assert [process.wait() for process in running] == [0] * 16
        assert sorted(files.manifest(host.state_dir).files) == sorted(paths)

    def test_is_readable_json_for_people(self, host):
        with files.locked_manifest(host.state_dir) as manifest:
            manifest.write(host.path, b"ours", "a/b")
        document = json.loads(files.read(f"{host.state_dir}/manifest.json").content)
        assert document["files"][host.path] == {
            "applied": [files.digest(b"ours")],
            "kind": "a/b",
            "by": "",
            "prior": None,
        }


CONTENTS = st.sampled_from([None, b"ours", b"ours too", b"theirs"])


@settings(max_examples=60, stateful_step_count=12, deadline=None)
class UndoIsExact(RuleBasedStateMachine):
    """Whatever is written through the manifest, in any order, undo brings back what the first write found."""

    def __init__(self):
        super().__init__()
        import tempfile

        self.root = tempfile.TemporaryDirectory()
        self.state_dir = self.root.name + "/state"
        self.path = self.root.name + "/a.json"
        self.before = None

    @rule(content=CONTENTS)
    def foreign(self, content):
        """Somebody else writes while nothing of ours is there."""
        if not files.manifest(self.state_dir).files:
            files.remove(self.path) if content is None else files.replace(self.path, content)
            self.before = content

    @rule(content=CONTENTS)
    def write(self, content):
        with files.locked_manifest(self.state_dir) as manifest:
            manifest.write(self.path, content)
        live = files.read(self.path)
        assert (live.content if live else None) == content
        if not files.manifest(self.state_dir).files:
            self.before = content  # there is nothing of ours, so nothing to take back

    @rule()
    def undo(self):
        with files.locked_manifest(self.state_dir) as manifest:
            for path in list(manifest.files):
                manifest.take_back(path)

    @invariant()
    def undo_would_bring_back_what_was_there(self):
        manifest = files.manifest(self.state_dir)
        for path in list(manifest.files):
            manifest.take_back(path, check=True)
        prior = manifest.files.get(self.path, {}).get("prior")
        if prior:
            assert files.base64.b64decode(prior["content"]) == self.before

    def teardown(self):
        self.undo()
        live = files.read(self.path)
        assert (live.content if live else None) == self.before
        self.root.cleanup()


TestUndoIsExact = UndoIsExact.TestCase


@given(st.binary(max_size=200))
@settings(max_examples=30, deadline=None)
def test_any_bytes_come_back_as_they_were(content):
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        files.replace(f"{root}/a", content)
        assert files.read(f"{root}/a").content == content
