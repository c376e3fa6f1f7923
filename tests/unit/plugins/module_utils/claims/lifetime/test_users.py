# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The containers of a claim: noted by the hook, judged by the kernel, and never forgotten while one starts."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import (
    ClaimUser,
    drop_users,
    end_use,
    make_users,
    note_command,
    read_users,
    users_path,
)
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimRecord, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.hooks import claim_user, error
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.system import control_group, process_mark
from ansible_collections.fleet.cdi.plugins.module_utils.system.commands import device_scope

CLAIM = ClaimRecord(WantedClaim("job/42", {"gpu": 1}), token="0011", boot_id=process_mark.boot_id())


@pytest.fixture
def state(tmp_path):
    make_users(str(tmp_path), CLAIM)
    return str(tmp_path)


@pytest.fixture
def start(state, tmp_path):
    """Start a container as its hook sees it: start(id) -> its process."""
    started = []

    def run(id_, claim=CLAIM):
        process = subprocess.Popen(["sleep", "600"])
        started.append(process)
        given = tmp_path / f"{id_}.state"
        given.write_text(json.dumps({"id": id_, "pid": process.pid}))
        claim_user.note_user(users_path(state, claim), str(given))
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def stop(process):
    process.kill()
    process.wait()


def test_the_directory_is_named_by_claim_and_token(state):
    assert os.path.basename(users_path(state, CLAIM)) == "job:2f42.0011.users"
    assert os.stat(users_path(state, CLAIM)).st_mode & 0o777 == 0o700
    assert read_users(state, CLAIM) == ()


def test_the_kernel_says_whether_a_container_runs(state, start):
    first = start("a")
    start("b")
    assert read_users(state, CLAIM) == (ClaimUser("a", True), ClaimUser("b", True))
    stop(first)  # as by kill -9 of everything: no hook tells
    assert read_users(state, CLAIM) == (ClaimUser("a", False), ClaimUser("b", True))


def test_one_that_has_ended_and_is_not_waited_for(state, start):
    process = start("a")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert read_users(state, CLAIM) == (ClaimUser("a", False),)


@pytest.mark.parametrize("mark", ["", "x", "boot 1 1 pid:[1]\n", "a b c d e\n", "ÿ\0", "9" * 5000])
def test_one_with_a_damaged_file_counts_as_running_and_says_so(state, mark):
    """Else one flipped bit gives a device in use to the next one."""
    path = f"{users_path(state, CLAIM)}/a"
    with open(path, "w", encoding="latin-1") as file:
        file.write(mark)
    (user,) = read_users(state, CLAIM)
    assert (user.container, user.runs) == ("a", True) and user.fault.startswith(f"{path}: is ")
    assert not end_use(state, CLAIM, {"a"})


def test_no_container_of_a_claim_of_an_earlier_boot_runs_whatever_its_file_says(state):
    """Else a claim that the reboot ended is never given back."""
    with open(f"{users_path(state, CLAIM)}/a", "w", encoding="ascii") as file:
        file.write("damaged")
    before = CLAIM._replace(boot_id="an-earlier-boot")
    assert read_users(state, before) == (ClaimUser("a", False),)
    assert end_use(state, before, {"a"})


@pytest.mark.parametrize("put", [os.mkdir, os.mkfifo, lambda path: os.symlink("nowhere", path)])
def test_one_whose_file_is_none_counts_as_running_and_says_so(state, put):
    put(f"{users_path(state, CLAIM)}/a")
    (user,) = read_users(state, CLAIM)
    assert (user.container, user.runs) == ("a", True) and f"{users_path(state, CLAIM)}/a: is " in user.fault


def test_a_start_that_was_killed_while_it_noted_the_container_is_no_start(state):
    with open(f"{users_path(state, CLAIM)}/.a.tmp", "w", encoding="ascii") as file:
        file.write("half")
    assert read_users(state, CLAIM) == ()
    drop_users(state, CLAIM)
    assert not os.path.exists(users_path(state, CLAIM))


def test_a_full_disk_leaves_the_mark_of_the_start_before(state, start, monkeypatch):
    """A write that fails in the middle: the container does not start, and its file is as it was."""
    stop(start("a"))
    write = os.write

    def full(handle, data):
        if len(data) > 20:
            return write(handle, data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        patch.setattr(claim_user, "process_mark", lambda _pid: "x" * 50)
        with pytest.raises(error.HookError, match="/a: can't write it: No space left on device. Free some space there"):
            start("a")
    assert read_users(state, CLAIM) == (ClaimUser("a", False),)
    assert os.listdir(users_path(state, CLAIM)) == ["a"]


RESTORED = "0123456789abcdef" * 4
USERS_OWN = "user.slice/user-1000.slice/user@1000.service"


@pytest.mark.parametrize(
    ("group", "runs"),
    [
        (f"machine.slice/libpod-conmon-{RESTORED}.scope", False),
        (f"machine.slice/libpod-{RESTORED}.scope/init", True),
        (f"libpod_parent/libpod-{RESTORED}", True),
        (f"system.slice/docker-{RESTORED}.scope", True),
        (f"docker/{RESTORED}", True),
        (f"system.slice/web.service/libpod-payload-{RESTORED}", True),  # podman run --cgroups=split, as quadlet's
        (f"user.slice/user-0.slice/user@0.service/app.slice/web.service/libpod-payload-{RESTORED}", True),
        # Made by a user below their own manager, or in a container, to keep the claim of a container of root.
        (f"{USERS_OWN}/app.slice/libpod-{RESTORED}.scope", False),
        (f"{USERS_OWN}/{RESTORED}", False),
        (f"{USERS_OWN}/app.slice/web.service/libpod-payload-{RESTORED}", False),
        (f"machine.slice/libpod-{'ab' * 32}.scope/container/libpod-{RESTORED}.scope", False),
        (f"docker/{'ab' * 32}/docker/{RESTORED}", False),
        (f"lxc.payload.web/system.slice/docker-{RESTORED}.scope", False),
        *((f"{USERS_OWN}/x{end}0::/machine.slice/libpod-{RESTORED}.scope", False) for end in "\r\v\x85\u2028"),
        # Made by the container itself, to end its claim while it runs.
        (f"machine.slice/libpod-{RESTORED}.scope/container/docker-{'ab' * 32}.scope", True),
        (f"machine.slice/libpod-{RESTORED}.scope/user.slice/user@1.service", True),
    ],
)
def test_a_container_that_was_restored_without_a_hook_runs(state, start, monkeypatch, tmp_path, group, runs):
    """Its first process is another one; the kernel knows it by its control group, if root's engine named that."""
    process = start(RESTORED)
    process.kill()
    process.wait()
    real = control_group.running_containers
    monkeypatch.setattr(control_group, "running_containers", lambda ids: real(ids, str(tmp_path)))
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(f"0::/{group}\n")
    assert read_users(state, CLAIM) == (ClaimUser(RESTORED, runs),)


def test_what_cannot_be_looked_at_is_no_container_that_has_ended(state, start, monkeypatch, tmp_path):
    process = start(RESTORED)
    process.kill()
    process.wait()
    real = control_group.running_containers
    monkeypatch.setattr(control_group, "running_containers", lambda ids: real(ids, str(tmp_path)))
    (tmp_path / "7").mkdir()  # a process that has ended
    assert read_users(state, CLAIM) == (ClaimUser(RESTORED, False),)
    (tmp_path / "7/cgroup").symlink_to("cgroup")  # any other error
    with pytest.raises(CdiError, match="/proc: can't read it: Too many levels of symbolic links"):
        read_users(state, CLAIM)


def test_the_number_of_a_process_of_before_the_reboot(state):
    with open(f"{users_path(state, CLAIM)}/a", "w", encoding="ascii") as file:
        file.write(process_mark.mark("an-earlier-boot", os.getpid(), 1, os.readlink("/proc/self/ns/pid")))
    assert read_users(state, CLAIM) == (ClaimUser("a", False),)


def test_use_ends_when_none_runs_and_all_are_gone(state, start):
    process = start("a")
    assert not end_use(state, CLAIM, {"a"})  # runs, whatever the engine says
    stop(process)
    assert not end_use(state, CLAIM, ())  # the engine has it: a restart
    again = start("a")
    assert not end_use(state, CLAIM, {"a"})
    stop(again)
    start("b")
    assert not end_use(state, CLAIM, {"a"})
    drop_users(state, CLAIM)
    assert not os.path.exists(users_path(state, CLAIM))
    drop_users(state, CLAIM)


def test_none_starts_with_a_claim_that_is_over(state, start):
    stop(start("a"))
    assert end_use(state, CLAIM, {"a"})
    with pytest.raises(HookError, match="the claim is over"):
        start("a")
    later = CLAIM._replace(token="0022")
    make_users(state, later)
    with pytest.raises(HookError, match="the claim is over"):
        start("a")  # made for the earlier claim of the same id
    assert read_users(state, later) == ()
    assert end_use(state, CLAIM, {"a"})


def test_a_start_and_the_end_at_the_same_time(state, tmp_path):
    """Either the container is refused, or the use does not end: 200 times, as close as two threads get."""
    outcomes = set()
    given = tmp_path / "given"
    given.write_text(json.dumps({"id": "a", "pid": os.getpid()}))
    for _time in range(200):
        make_users(state, CLAIM)
        stale = users_path(state, CLAIM) + "/a"
        with open(stale, "w", encoding="ascii") as file:
            file.write(process_mark.mark("an-earlier-boot", 1, 1, "pid:[1]"))
        barrier, ended = threading.Barrier(2), []

        def end(barrier, ended):
            barrier.wait()
            ended.append(end_use(state, CLAIM, {"a"}))

        thread = threading.Thread(target=end, args=(barrier, ended))
        thread.start()
        barrier.wait()
        try:
            claim_user.note_user(users_path(state, CLAIM), str(given))
            started = True
        except HookError:
            started = False
        thread.join()
        assert started != ended[0]
        outcomes.add(started)
        drop_users(state, CLAIM)
    assert outcomes  # both, on most machines


def test_a_command_of_the_host_is_a_user_and_its_scope_ends_with_the_claim(state, start, monkeypatch):
    stopped = []
    monkeypatch.setattr(device_scope, "stop_scope", stopped.append)
    note_command(state, CLAIM, os.getpid())
    assert read_users(state, CLAIM) == (ClaimUser("fleet-cdi-claim-0011.scope", True),)
    assert not end_use(state, CLAIM, {"fleet-cdi-claim-0011.scope"})
    drop_users(state, CLAIM)
    assert stopped == ["fleet-cdi-claim-0011.scope"]
    make_users(state, CLAIM)
    stop(start("fleet-cdi-claim-0022.scope"))  # a container may have any id; only the claim's own scope is ended
    drop_users(state, CLAIM)
    assert len(stopped) == 1
