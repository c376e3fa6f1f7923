# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the daemon is told of changes on the host, with inotify and on hosts that have none left."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import file_state
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import inotify, watch
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import Log
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.watch import Subject, Watch

DEADLINE = 30  # seconds, for what takes one at most


def exhausted(*_arguments: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture(params=["inotify", "no instance left", "no watch left"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With inotify, and without: EMFILE when it begins, ENOSPC at the first directory."""
    if request.param == "inotify":
        monkeypatch.setattr(watch, "INTERVAL", 3600)  # only events can tell
    else:
        monkeypatch.setattr(watch, "INTERVAL", 0.05)
    if request.param == "no instance left":
        monkeypatch.setattr(inotify, "Inotify", exhausted)
    if request.param == "no watch left":
        monkeypatch.setattr(inotify.Inotify, "add", exhausted)
    yield str(request.param)


def follow(subjects: list[Subject], steps: list[Callable[[], Any]], log: Log | None = None) -> list[int]:
    """How often a listener was called after each step, which comes when what the one before did was told."""

    async def whole() -> list[int]:
        told = [0]
        calls: list[int] = []
        watching = Watch(log or Log(io.StringIO()))
        watching.start()
        watching.follow("key", subjects, lambda: told.__setitem__(0, told[0] + 1))
        try:
            for step in steps:
                before = told[0]
                step()
                for _turn in range(DEADLINE * 100):
                    if told[0] > before:
                        break
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)  # more calls than one would come now
                calls.append(told[0] - before)
        finally:
            watching.stop()
        return calls

    return asyncio.run(whole())


def write(path: Path, text: str = "x") -> Callable[[], Any]:
    return lambda: path.write_text(text)


def test_a_file_that_comes_changes_is_replaced_and_goes(way: str, tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    steps = [write(file), write(file, "longer"), lambda: (other.write_text("new"), other.rename(file)), file.unlink]
    assert all(follow([Subject(str(file))], steps)), way


def test_a_directory_of_specs(way: str, tmp_path: Path) -> None:
    specs = tmp_path / "cdi"
    specs.mkdir()
    file = specs / "a.json"
    assert all(follow([Subject(str(specs), file_state.contents)], [write(file), write(file, "{}"), file.unlink])), way


def test_a_directory_that_is_not_there_yet_and_is_made_again(way: str, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    file = deep / "kubelet.sock"

    def appear() -> None:
        deep.mkdir(parents=True)
        file.write_text("x")

    def disappear() -> None:
        file.unlink()
        deep.rmdir()
        deep.parent.rmdir()

    assert all(follow([Subject(str(file))], [appear, disappear, appear])), way


def test_a_directory_that_is_removed_and_made_again_before_anybody_looks(way: str, tmp_path: Path) -> None:
    """The new one may have the number of the old one: file systems give them again."""
    specs = tmp_path / "cdi"
    specs.mkdir()

    def again() -> None:
        for _time in range(8):
            specs.rmdir()
            specs.mkdir()

    assert all(follow([Subject(str(specs), file_state.contents)], [again, write(specs / "a.json")])), way


def test_directories_that_take_each_others_place_leave_no_watch_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(watch, "INTERVAL", 3600)
    specs = tmp_path / "cdi"
    specs.mkdir()
    watches: list[int] = []

    def count() -> None:
        told = [path.read_text() for path in Path("/proc/self/fdinfo").iterdir() if path.exists()]
        watches.append(sum(text.count("inotify wd:") for text in told))

    def swap() -> None:
        count()
        new = tmp_path / f"new{len(watches)}"
        new.mkdir()
        specs.rename(tmp_path / f"old{len(watches)}")
        new.rename(specs)

    assert all(follow([Subject(str(specs), file_state.contents)], [swap, swap, swap]))
    assert watches[0] == watches[-1] > 0


def test_one_directory_by_two_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As by a bind mount, here by a symlink that nobody resolves: inotify has one descriptor for both."""
    monkeypatch.setattr(watch, "INTERVAL", 3600)
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    told: list[str] = []

    async def whole() -> None:
        watching = Watch(Log(io.StringIO()))
        watching.start()
        for name in ("one", "two"):
            subject = Subject(str(tmp_path / name), file_state.contents)
            watching.follow(name, [subject], lambda name=name: told.append(name))  # type: ignore[misc]
        await asyncio.sleep(10 * watch.SETTLE)
        write(tmp_path / "one/a.json")()
        for _turn in range(DEADLINE * 100):
            if {"one", "two"} == set(told):
                break
            await asyncio.sleep(0.01)
        watching.stop()

    asyncio.run(whole())
    assert {"one", "two"} == set(told)


def test_a_directory_behind_a_symlink(way: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var-run").symlink_to("run")
    file = tmp_path / "run" / "a.json"
    assert follow([Subject(str(tmp_path / "var-run"), file_state.contents)], [write(file)]) != [0], way


def test_only_which_nodes_there_are_matters_in_dev(way: str, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.write_text("")
    calls = []

    def use_it() -> None:
        node.write_text("used")  # as each write to a terminal
        (tmp_path / "new").write_text("")
        time.sleep(2 * file_state.TICK / 1e9)  # what changed in the current tick is looked at, and told, once more

    calls = follow([Subject(str(tmp_path), file_state.entries)], [use_it])
    assert calls == [1], way


def test_without_inotify_it_polls_and_says_so_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(inotify, "Inotify", exhausted)
    monkeypatch.setattr(watch, "INTERVAL", 0.05)
    stream = io.StringIO()
    file = tmp_path / "file"
    follow([Subject(str(file))], [write(file), file.unlink], Log(stream))
    assert stream.getvalue().count("event=polling") == 1
    assert "max_user_instances" in stream.getvalue()


def test_what_is_urgent_is_looked_at_even_if_no_event_comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "INTERVAL", 0.05)
    monkeypatch.setattr(inotify.Inotify, "read", lambda _self: iter(()))
    monkeypatch.setattr(Watch, "_readable", lambda _self: None)
    file = tmp_path / "kubelet.sock"
    assert all(follow([Subject(str(file), urgent=True)], [write(file)]))


def test_a_burst_is_read_once_and_costs_only_what_it_may_have_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An Allocate writes files beside which it waits for the loop: these may not wake it again and again."""
    monkeypatch.setattr(watch, "INTERVAL", 3600)
    looks: list[str] = []
    reads: list[int] = []
    read = inotify.Inotify.read
    monkeypatch.setattr(inotify.Inotify, "read", lambda self: reads.append(1) or read(self))

    def look(path: str) -> file_state.State:
        looks.append(path)
        return file_state.contents(path)

    busy, calm = tmp_path / "busy", tmp_path / "calm"
    busy.mkdir()
    calm.mkdir()

    async def whole() -> None:
        watching = Watch(Log(io.StringIO()))
        watching.start()
        watching.follow("key", [Subject(str(busy), look), Subject(str(calm), look)], lambda: None)
        await asyncio.sleep(10 * watch.SETTLE)  # what came before it was watched
        looks.clear()
        reads.clear()
        for number in range(50):
            (busy / "file").write_text(str(number))
            await asyncio.sleep(0)
        await asyncio.sleep(10 * watch.SETTLE)
        watching.stop()

    asyncio.run(whole())
    assert set(looks) == {str(busy)}
    assert 1 <= len(reads) < 50 and len(looks) == len(reads)


def test_where_events_were_lost_everything_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "INTERVAL", 3600)
    read = inotify.Inotify.read

    def overflow(self: inotify.Inotify) -> Iterator[tuple[int, int]]:
        return iter([(inotify.LOST, inotify.OVERFLOW)] if list(read(self)) else [])

    file = tmp_path / "file"
    steps = [lambda: monkeypatch.setattr(inotify.Inotify, "read", overflow) or write(file)(), file.unlink]
    assert all(follow([Subject(str(file))], steps))


def test_a_read_that_fails_does_not_make_it_deaf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "INTERVAL", 0.05)
    monkeypatch.setattr(watch, "CALM", 3600)
    monkeypatch.setattr(inotify.Inotify, "read", exhausted)
    stream = io.StringIO()
    file = tmp_path / "file"
    assert all(follow([Subject(str(file))], [write(file), file.unlink], Log(stream)))
    assert stream.getvalue().count("event=polling") == 1


def test_events_without_an_end_let_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of somebody who writes faster than they are read, as he may: the loop has more to do."""
    monkeypatch.setattr(os, "read", lambda _fd, _size: struct.pack("iIII", 1, inotify.CREATE, 0, 0))
    instance = inotify.Inotify()
    assert list(instance.read())
    instance.close()


def test_following_anew_loses_no_change(tmp_path: Path) -> None:
    file = tmp_path / "file"

    async def whole() -> int:
        told = [0]
        watching = Watch(Log(io.StringIO()))
        watching.start()
        for _time in range(2):
            watching.follow("key", [Subject(str(file))], lambda: told.__setitem__(0, told[0] + 1))
            file.write_text("x")  # before the second call, and not told by then
        for _turn in range(DEADLINE * 100):
            if told[0]:
                break
            await asyncio.sleep(0.01)
        watching.stop()
        return told[0]

    assert asyncio.run(whole()) >= 1
