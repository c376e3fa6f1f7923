# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry: which file provides a name, by the reference library's rules (pkg/cdi/cache.go)."""

from __future__ import annotations

import errno
import json
import os
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.tests.unit.builders import spec
from ansible_collections.fleet.cdi.tests.unit.limits import settle


@pytest.fixture
def directories(tmp_path):
    """/etc/cdi and /var/run/cdi, lowest priority first, with a function that puts a spec into one of them."""
    etc, run = tmp_path / "etc", tmp_path / "run"
    etc.mkdir()
    run.mkdir()

    def put(directory, name, kind, *devices):
        (directory / name).write_text(json.dumps(spec({device: {"env": ["A=1"]} for device in devices}, kind)))
        return str(directory / name)

    return etc, run, put


def test_every_spec_of_every_directory_counts(directories):
    etc, run, put = directories
    one, two = put(etc, "a.json", "a.com/gpu", "0", "1"), put(run, "b.yaml", "b.com/nic", "x")
    found = registry.load([etc, run])
    assert found.devices == {"a.com/gpu=0": one, "a.com/gpu=1": one, "b.com/nic=x": two}
    assert not found.errors and not found.conflicts and not found.shadowed


def test_a_later_directory_wins(directories):
    etc, run, put = directories
    low, high = put(etc, "a.json", "a.com/gpu", "0"), put(run, "z.json", "a.com/gpu", "0")
    found = registry.load([etc, run])
    assert found.devices == {"a.com/gpu=0": high}
    assert found.shadowed == {"a.com/gpu=0": (low,)}
    assert registry.load([run, etc]).devices == {"a.com/gpu=0": low}


def test_two_files_of_one_directory_conflict(directories):
    etc, run, put = directories
    one, two = put(etc, "a.json", "a.com/gpu", "0", "1"), put(etc, "b.json", "a.com/gpu", "0")
    found = registry.load([etc, run])
    assert found.conflicts == {"a.com/gpu=0": (one, two)}
    assert found.devices == {"a.com/gpu=1": one}


def test_a_conflict_below_also_takes_the_definition_above_away(directories):
    etc, run, put = directories
    put(etc, "a.json", "a.com/gpu", "0")
    put(etc, "b.json", "a.com/gpu", "0")
    put(run, "c.json", "a.com/gpu", "0")
    assert registry.load([etc, run]).devices == {}


def test_a_symlink_to_a_sibling_is_a_second_definition(directories):
    etc, run, put = directories
    put(etc, "a.json", "a.com/gpu", "0")
    (etc / "b.json").symlink_to("a.json")
    assert list(registry.load([etc, run]).conflicts) == ["a.com/gpu=0"]


def test_a_bad_file_never_hides_the_good_ones(directories):
    etc, run, put = directories
    good = put(etc, "m.json", "a.com/gpu", "0")
    (etc / "a.json").write_text("{")
    (etc / "b.json").mkdir()
    (etc / "c.json").symlink_to("nowhere")
    os.mkfifo(etc / "d.json")
    (etc / "e.yml").write_text("{")  # not an ending that counts
    (etc / "f.json").symlink_to("f.json")
    (etc / "g.json").symlink_to("b.json")
    (etc / "h.json").write_bytes(b"\xff\xfe\x00")
    (etc / "i.json").write_bytes(b"")
    (etc / "j.json").write_text('{"devices":' * 100_000)
    with open(etc / "k.json", "wb") as huge:
        huge.truncate(100 << 20)
    (etc / os.fsdecode(b"l-\xff.json")).write_text("[]")
    found = registry.load([etc, etc / "m.json", run / "missing", run, "no\0path"])
    assert found.devices == {"a.com/gpu=0": good}
    bad = ["a.json", "b.json", "c.json", "d.json", "f.json", "g.json", "h.json", "i.json", "j.json", "k.json"]
    assert {os.path.basename(path) for path in found.errors} == {*bad, "l-\udcff.json", "m.json", "no\0path"}
    assert all(text.startswith(str(path)) for path, text in found.errors.items())
    assert max(map(len, found.errors.values())) < 2000


def test_a_directory_and_a_file_without_permission_cost_only_themselves(directories, monkeypatch):
    """Root may read anything, so the answer of the system is put in its mouth."""
    etc, run, put = directories
    put(etc, "a.json", "a.com/gpu", "0")
    good, secret = put(run, "b.json", "a.com/gpu", "1"), put(run, "c.json", "a.com/gpu", "2")

    def refusing(real, refused):
        def call(path, *rest, **more):
            if str(path) in (refused, os.path.basename(refused)):  # the latter in its directory
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return real(path, *rest, **more)

        return call

    monkeypatch.setattr(os, "listdir", refusing(os.listdir, str(etc)))
    monkeypatch.setattr(os, "open", refusing(os.open, secret))
    found = registry.load([etc, run])
    assert found.devices == {"a.com/gpu=1": good}
    assert list(found.errors) == [str(etc), secret]
    assert all("Permission denied" in text for text in found.errors.values())


def test_a_file_that_is_half_written_while_it_is_read_is_read_again(directories, monkeypatch):
    etc, run, put = directories
    path = put(etc, "a.json", "a.com/gpu", "0")
    real, reads = registry.files.read, []

    def read_while_somebody_writes(target, **more):
        reads.append(target)
        if len(reads) == 1:
            os.truncate(target, 10)
        found = real(target, **more)
        if len(reads) == 1:
            put(etc, "a.json", "a.com/gpu", "0", "1")
        return found

    monkeypatch.setattr(registry.files, "read", read_while_somebody_writes)
    found = registry.load([etc, run])
    assert found.devices == {"a.com/gpu=0": path, "a.com/gpu=1": path} and not found.errors
    assert len(reads) == 2


def test_a_file_that_never_stops_changing_is_an_error(directories, monkeypatch):
    etc, run, put = directories
    path, real = put(etc, "a.json", "a.com/gpu", "0"), registry.files.read

    def read_while_somebody_writes(target, **more):
        with open(target, "a", encoding="utf-8") as file:
            file.write(" ")
        return real(target, **more)

    monkeypatch.setattr(registry.files, "read", read_while_somebody_writes)
    found = registry.load([etc, run])
    assert not found.devices and "changes all the time" in found.errors[path]


def test_files_that_come_and_go_while_the_directory_is_read_are_no_error(directories):
    """A writer that replaces whole files is never seen half-way, and never an error."""
    etc, run, put = directories
    good, stop = put(etc, "m.json", "a.com/gpu", "0"), threading.Event()

    def restless():
        while not stop.is_set():
            temporary = put(run, "new", "a.com/nic", "0")
            os.replace(temporary, etc / "z.json")
            os.unlink(etc / "z.json")

    writer = threading.Thread(target=restless)
    writer.start()
    try:
        for _round in range(50):
            found = registry.load([etc])
            assert found.devices["a.com/gpu=0"] == good and not found.errors
    finally:
        stop.set()
        writer.join()


NAMES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
FILES = st.lists(st.tuples(st.integers(0, 2), NAMES), max_size=6)


@settings(max_examples=300)
@given(FILES)
def test_each_name_is_provided_in_conflict_or_neither(files):
    """Whatever the files: a name is resolved from the highest directory, or in conflict, and never both."""
    specs = []
    for index, (priority, names) in enumerate(files):
        path = f"/{priority}/{index}.json"
        devices = [{"name": name, "containerEdits": {"env": [f"FROM={path}"]}} for name in names]
        specs.append(registry.SpecFile(path, priority, {"kind": "a.com/gpu", "devices": devices}))
    found = registry.resolve(["/0", "/1", "/2"], specs, {})
    defined = {f"a.com/gpu={name}" for _priority, names in files for name in names}
    assert found.devices.keys() | found.conflicts.keys() == defined
    assert not found.devices.keys() & found.conflicts.keys()
    assert found.shadowed.keys() <= found.devices.keys()
    assert found.edits == {name: {"env": [f"FROM={path}"]} for name, path in found.devices.items()}
    for name, path in found.devices.items():
        providers = [file for file in specs if name in file.qualified_names]
        assert len({file.priority for file in providers}) == len(providers)
        assert path == max(providers, key=lambda file: file.priority).path
        assert {path, *found.shadowed.get(name, ())} == {file.path for file in providers}


def test_warnings_cost_no_device_and_come_with_the_spec(directories):
    etc, run, put = directories
    path = put(etc, "a.json", "a_b.com/gpu", "0")
    found = registry.load([etc, run])
    assert found.devices == {"a_b.com/gpu=0": path} and not found.errors
    (file,) = found.specs
    assert [(finding.rule, finding.severity) for finding in file.findings] == [("vendor-dns", "warning")]


def test_a_file_of_100_mb_is_one_error_and_not_read(directories):
    etc, run, put = directories
    good = put(etc, "m.json", "a.com/gpu", "0")
    with open(etc / "a.json", "wb") as file:
        file.truncate(100 << 20)
    found = registry.load([etc, run])
    assert found.devices == {"a.com/gpu=0": good}
    assert list(found.errors) == [f"{etc}/a.json"]
    assert found.errors[f"{etc}/a.json"].startswith(f"{etc}/a.json: is larger than 16 MiB; expected a smaller file")


class TestChanged:
    """Whether what was loaded is still what is there, without reading it."""

    @pytest.fixture
    def loaded(self, directories):
        etc, run, put = directories
        put(etc, "a.json", "a.com/gpu", "0")
        (etc / "link.json").symlink_to(run / "target")
        put(run, "target", "b.com/gpu", "0")
        (etc / "broken.json").write_text("{")
        (etc / "notes.txt").write_text("")
        settle()
        return registry.load([etc, run, etc / "missing"])

    def test_nothing(self, loaded):
        assert [file.spec["kind"] for file in loaded.specs] == ["a.com/gpu", "b.com/gpu"]
        assert not registry.changed(loaded)
        assert not registry.changed(registry.load([]))

    @pytest.mark.parametrize(
        "change",
        [
            lambda at: at.put(at.etc, "new.json", "a.com/gpu", "1"),
            lambda at: (at.etc / "also-broken.yaml").write_text("{"),
            lambda at: (at.etc / "a.json").unlink(),
            lambda at: (at.etc / "broken.json").unlink(),
            lambda at: at.put(at.etc, "broken.json", "a.com/gpu", "0"),
            lambda at: at.put(at.etc, "a.json", "a.com/gpu", "1"),
            lambda at: (at.etc / "a.json").rename(at.etc / "b.json"),
            lambda at: at.put(at.run, "target", "b.com/gpu", "1", "2"),
            lambda at: (at.run / "target").unlink(),
            lambda at: (at.etc / "missing").mkdir() or at.put(at.etc / "missing", "x.json", "a.com/gpu", "0"),
            lambda at: (at.etc / "x.json").mkdir(),
        ],
    )
    def test_anything(self, loaded, directories, change):
        change(SimpleNamespace(**dict(zip(("etc", "run", "put"), directories))))
        assert registry.changed(loaded)
        settle()
        assert not registry.changed(registry.load(loaded.directories))

    def test_a_write_of_the_moment_in_which_it_was_read(self, loaded, directories):
        etc, _run, put = directories
        for number in range(100):
            put(etc, "a.json", "a.com/gpu", str(number % 10))
            now = registry.load(loaded.directories)
            put(etc, "a.json", "a.com/gpu", str((number + 1) % 10))
            assert registry.changed(now), number

    @pytest.mark.parametrize("content", [None, "{"], ids=["a spec", "a broken file"])
    def test_what_changed_in_the_tick_in_which_it_was_read_is_read_once_more(self, directories, monkeypatch, content):
        """Whatever times the file system of the tests has: one more write could leave them the same."""
        etc, _run, put = directories
        put(etc, "a.json", "a.com/gpu", "0")
        if content:
            (etc / "a.json").write_text(content)
        now = (etc / "a.json").stat().st_ctime_ns
        monkeypatch.setattr(registry.file_state, "tick", lambda: now)
        found = registry.load([etc])
        monkeypatch.setattr(registry.file_state, "tick", lambda: now + 10**9)
        assert registry.changed(found)
        assert not registry.changed(registry.load([etc]))

    def test_another_file_of_the_same_size_and_time_in_its_place(self, loaded, directories):
        etc, _run, put = directories
        before = (etc / "a.json").stat()
        os.replace(put(etc, ".new", "a.com/gpu", "7"), etc / "a.json")
        os.utime(etc / "a.json", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (etc / "a.json").stat().st_size == before.st_size
        assert registry.changed(loaded)

    def test_what_is_no_spec_does_not_matter(self, loaded, directories):
        etc, _run, put = directories
        put(etc, ".hidden.new", "a.com/gpu", "0")
        (etc / "notes.txt").unlink()
        assert not registry.changed(loaded)


def test_a_file_that_is_no_spec_was_read_all_the_same(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    found, error = registry.read_file(str(tmp_path / "a.json"))
    assert found is None and f"{tmp_path}/a.json" in error


def test_a_directory_that_is_missing_hides_none_before_it(tmp_path):
    (tmp_path / "etc").mkdir()
    etc, run = str(tmp_path / "etc"), str(tmp_path / "run")
    assert registry.hidden([etc, run]) == () == registry.hidden([run])
    ((path, _why, priorities, _releases),) = registry.hidden([run, etc])
    assert (path, priorities) == (run, (1,))


def test_a_file_that_goes_while_the_directory_is_read_is_no_fault(tmp_path):
    (tmp_path / "a.json").write_text("{")
    found = registry.load([str(tmp_path)], skipped=os.unlink)
    assert (found.specs, found.errors, found.broken, found.targets) == ((), {}, {}, {})
