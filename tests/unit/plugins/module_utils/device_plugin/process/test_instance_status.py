# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of the daemon beside each other: which live, and which has a resource."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.tests.unit.limits import settle

NAME = "acme.com/widget"
KUBELET = (1, 2, 3)
IMPORTS = next(path for path in sys.path if path.endswith("build/pythonpath"))
LIVES = """
import sys, time
sys.path.insert(0, sys.argv[1])
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
one = instance_status.InstanceEntry(sys.argv[2], sys.argv[3])
one.enter()
resources = {sys.argv[5]: {"state": "registered", "stream": True, "kubelet": [1, 2, 3], "socket": sys.argv[2]}}
one.write({"instance": sys.argv[3], "since_boot": float(sys.argv[4]), "resources": resources})
print("in", flush=True)
time.sleep(600)
"""


def another(run_dir: Path, name: str, since_boot: float) -> subprocess.Popen[str]:
    """An instance in a process of its own."""
    command = [sys.executable, "-c", LIVES, IMPORTS, str(run_dir), name, str(since_boot), NAME]
    found = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert found.stdout
    assert found.stdout.readline() == "in\n"
    return found


def document(name: str, since_boot: float, state: str) -> dict[str, object]:
    found = {
        "state": state,
        "stream": state == instance_status.REGISTERED,
        "kubelet": list(KUBELET),
        "socket": __file__,
    }
    return {"instance": name, "since_boot": since_boot, "resources": {NAME: found}}


def instances(run_dir: Path) -> list[tuple[str, bool]]:
    """Names, and whether they live."""
    return [(seen.document["instance"], seen.alive) for seen in instance_status.instances_in(str(run_dir))]


def test_an_instance_lives_until_it_is_killed_and_the_next_clears_it_away(tmp_path: Path) -> None:
    other = another(tmp_path, "b", 20.0)
    try:
        own = instance_status.InstanceEntry(str(tmp_path), "a")
        assert own.enter() == []
        own.write(document("a", 10.0, instance_status.REGISTERED))
        assert instances(tmp_path) == [
            ("a", True),
            ("b", True),
        ]
        older, younger = (
            instance_status.Peers(str(tmp_path), "a", 10.0),
            instance_status.Peers(str(tmp_path), "b", 20.0),
        )
        assert (older.heard(NAME, KUBELET), younger.heard(NAME, KUBELET)) == ("b", "")
        assert (older.heard(NAME, (1, 2, 4)), older.heard(NAME, ())) == ("", "b"), "another kubelet; one that finds us"
        assert (older.hopeful(NAME), younger.hopeful(NAME), older.serve(NAME)) == (True, False, True)
    finally:
        other.kill()
        other.wait()
    assert instances(tmp_path) == [
        ("a", True),
        ("b", False),
    ]
    assert (older.heard(NAME, KUBELET), older.hopeful(NAME), older.serve(NAME)) == ("", False, False)
    third = instance_status.InstanceEntry(str(tmp_path), "c")
    assert [seen.document["instance"] for seen in third.enter()] == ["b"]
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.lock", "c.lock"]
    for one in (own, third):
        one.leave()


def test_an_instance_that_gives_no_sign_of_life_hangs_and_one_that_never_did_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of an earlier release has a lock of a time of the calendar, which is ahead of any since the host began."""
    monkeypatch.setattr(instance_status, "STALE", 60.0)  # no pause of this process is as long
    own, peers = instance_status.InstanceEntry(str(tmp_path), "b"), instance_status.Peers(str(tmp_path), "a", 10.0)
    own.enter()
    own.write(document("b", 20.0, instance_status.REGISTERED))
    before = os.listdir(tmp_path), (tmp_path / "b.json").stat().st_ctime_ns
    for ago, hangs in (
        (0, False),
        (instance_status.STALE / 2, False),
        (instance_status.STALE + 1, True),
        (-1e9, False),
    ):
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - int(ago * 1e9)
        os.utime(tmp_path / "b.lock", ns=(now, now))
        [seen] = instance_status.instances_in(str(tmp_path))
        assert (seen.alive, seen.hangs) == (True, hangs)
        assert peers.heard(NAME, KUBELET) == ("" if hangs else "b")
        assert peers.hopeful(NAME) != hangs
        assert peers.serve(NAME), "its stream may be open"
    own.beat()
    assert not instance_status.instances_in(str(tmp_path))[0].hangs
    assert (os.listdir(tmp_path), (tmp_path / "b.json").stat().st_ctime_ns) == before, "nothing is written for it"
    own.leave()
    assert not instance_status.instances_in(str(tmp_path))[0].hangs, "one that is gone does not hang"


def test_a_document_without_a_lock_is_that_of_none_that_lives(tmp_path: Path) -> None:
    own = instance_status.InstanceEntry(str(tmp_path), "a")
    own.enter()
    own.write(document("a", 10.0, instance_status.REGISTERED))
    assert instances(tmp_path) == [("a", True)]
    (tmp_path / "a.lock").unlink()
    assert instances(tmp_path) == [("a", False)]
    own.leave()


def test_who_may_not_ask_whether_it_lives_takes_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plugin status` of somebody else than root; a lock that they could hold would keep an instance from starting."""
    own = instance_status.InstanceEntry(str(tmp_path), "a")
    own.enter()
    own.write(document("a", 10.0, instance_status.REGISTERED))
    own.leave()
    assert (tmp_path / "a.lock").stat().st_mode & 0o077 == 0
    assert instances(tmp_path) == [("a", False)]

    really = os.open

    def refused(path: str, *arguments: int, dir_fd: Optional[int] = None) -> int:
        if path.endswith(".lock"):
            raise PermissionError(path)
        return really(path, *arguments, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refused)
    assert instances(tmp_path) == [("a", True)]


def test_what_another_instance_says_is_read_once_and_again_when_it_says_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each resource asks every second, and a document may name ten thousand devices."""
    reads, read = [], instance_status.files.read
    monkeypatch.setattr(instance_status.files, "read", lambda *given: reads.append(1) or read(*given))
    other, peers = instance_status.InstanceEntry(str(tmp_path), "b"), instance_status.Peers(str(tmp_path), "a", 10.0)
    other.enter()
    other.write(document("b", 20.0, instance_status.IDLE))
    settle()
    assert [peers.heard(NAME, KUBELET) for _time in range(3)] == ["", "", ""]
    other.beat()
    assert peers.heard(NAME, KUBELET) == ""
    assert len(reads) == 1
    other.write(document("b", 20.0, instance_status.REGISTERED))
    settle()
    assert peers.heard(NAME, KUBELET) == "b"
    other.leave()
    assert peers.heard(NAME, KUBELET) == "", "whether it lives is asked each time"
    assert len(reads) == 2


def test_what_instances_said_that_are_gone_is_kept_by_nobody(tmp_path: Path) -> None:
    """In pods each start has another name, and a document may name ten thousand devices."""

    def kept() -> int:
        return sum(isinstance(one, dict) and one.get("instance") == "gone" for one in gc.get_objects())

    peers = instance_status.Peers(str(tmp_path), "a", 10.0)
    other = instance_status.InstanceEntry(str(tmp_path), "gone")
    other.enter()
    other.write(document("gone", 20.0, instance_status.WAITING))
    other.leave()
    assert (peers.heard(NAME, KUBELET), kept()) == ("", 1)
    (tmp_path / "gone.json").unlink()
    assert (peers.heard(NAME, KUBELET), kept()) == ("", 0)


def test_who_asks_whether_an_instance_lives_does_not_keep_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask by a lock, which they have for a moment: the older instance, for each resource, every second."""
    own = instance_status.InstanceEntry(str(tmp_path), "a")
    with open(tmp_path / "a.lock", "w", encoding="ascii") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        pauses: list[float] = []
        monkeypatch.setattr(time, "sleep", lambda seconds: pauses.append(seconds) or asking.close())
        own.enter()
        assert len(pauses) == 1
    own.leave()


def test_one_name_runs_once(tmp_path: Path) -> None:
    first, second = (instance_status.InstanceEntry(str(tmp_path), "a") for _number in range(2))
    first.enter()
    with pytest.raises(CdiError, match="runs already"):
        second.enter()
    first.leave()
    second.enter()
    second.leave()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1}', '{"version": 2, "instance": "x"}', "null"])
def test_a_document_that_is_none_is_left_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    assert instance_status.instances_in(str(tmp_path)) == []
    assert instance_status.instances_in(str(tmp_path / "nowhere")) == []
