# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of claims: which of them another user may have changed, and damaged ones."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.ended import ended_containers, has_ended, note_ended
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import make_users
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_record import PodRecord, read_pods, write_pod
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimRecord, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import (
    alone,
    claimed_requests,
    read_claim,
    read_claims,
    write_claim,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

USER = 65534
CLAIM = ClaimRecord(WantedClaim("one", {"gpu": 1}), token="0011")


@pytest.fixture
def state(tmp_path):
    """A state directory with one claim and one pod."""
    if os.geteuid() != 0:
        pytest.skip("only root gives files to another user")
    with alone(str(tmp_path), "one", Caller()):
        write_claim(str(tmp_path), CLAIM)
    (tmp_path / "pods").mkdir(0o700)
    write_pod(str(tmp_path), PodRecord("default/a", {"c": ("one",)}))
    return tmp_path


def of_the_user(path):
    os.chown(path, USER, USER)


def of_everybody(path):
    path.chmod(0o777)


def a_link(path):
    """A link to a directory of the user, who can put any file into it."""
    path.rename(path.with_name("elsewhere"))
    os.chown(path.with_name("elsewhere"), USER, USER)
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("attack", [of_the_user, of_everybody, a_link])
class TestDirectories:
    """Directories that another user can change."""

    def test_no_claim_is_read_or_written(self, state, attack):
        attack(state / "claims")
        with pytest.raises(CdiError):
            read_claim(str(state), "one")
        assert read_claims(str(state)).claims == () and len(read_claims(str(state)).errors) == 1
        with pytest.raises(CdiError):
            write_claim(str(state), CLAIM)
        with pytest.raises(CdiError):
            make_users(str(state), CLAIM)
        with pytest.raises(CdiError), alone(str(state), "two", Caller()):
            pass

    def test_no_pod_is_read_or_written(self, state, attack):
        attack(state / "pods")
        with pytest.raises(CdiError):
            read_pods(str(state))
        with pytest.raises(CdiError):
            write_pod(str(state), PodRecord("default/b", {"c": ("two",)}))

    def test_no_ended_name_is_read_or_noted(self, state, attack):
        path = state / "run/ended"
        note_ended(str(path), "boot", "one", ["a"])
        attack(path.parent)
        with pytest.raises(CdiError):
            note_ended(str(path), "boot", "two")
        with pytest.raises(CdiError):
            has_ended(str(path), "boot", "one")
        with pytest.raises(CdiError):
            ended_containers(str(path), "boot", "one")


@pytest.mark.parametrize("name", ["claims/one.json", "pods/default_a.json", "ended"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.mknod(path, 0o020600, os.makedev(1, 5))])
def test_what_is_no_file_is_not_opened(state, name, make):
    """A FIFO would be waited for, /dev/zero read without end."""
    path = state / name
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(CdiError, match=str(path)):
        if name == "ended":
            has_ended(str(path), "boot", "one")
        elif name.startswith("pods"):
            read_pods(str(state))
        else:
            read_claim(str(state), "one")
    if name == "ended" and not path.is_char_device():
        with pytest.raises(CdiError, match=str(path)):
            note_ended(str(path), "boot", "one")


def test_a_link_is_not_appended_to(state):
    path = state / "ended"
    path.symlink_to("victim")
    with pytest.raises(CdiError, match=str(path)):
        note_ended(str(path), "boot", "one")
    assert not (state / "victim").exists()


def test_a_name_that_is_noted_in_part_is_an_error_and_spoils_no_other(state):
    """write(2) takes the part for which there is room, as on a full /run, and reports no error."""
    path = str(state / "ended")
    note_ended(path, "boot", "one")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 8, limit[1]))
    try:
        with pytest.raises(CdiError, match="ended: can't write it: File too large"):
            note_ended(path, "boot", "two", ["a"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not has_ended(path, "boot", "two")
    note_ended(path, "boot", "three", ["b"])
    note_ended(path, "boot", "two", ["a"])
    for name, containers in (("one", set()), ("two", {"a"}), ("three", {"b"})):
        assert has_ended(path, "boot", name) and ended_containers(path, "boot", name) == containers


def test_nobody_else_reads_what_is_stored(state):
    make_users(str(state), CLAIM)
    note_ended(str(state / "ended"), "boot", "one")
    for path in (*state.glob("claims/**/*"), *state.glob("pods/*"), state / "claims", state / "pods", state / "ended"):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"version": 9}', b"[" * 99999])
def test_a_damaged_record_hides_no_other(state, content):
    Path(state, "claims/two.json").write_bytes(content)
    found = read_claims(str(state))
    assert found.claims == (CLAIM,)
    ((path, error),) = found.errors.items()
    assert path.endswith("/claims/two.json") and path in error and error.isprintable()


def test_the_first_ended_name_of_a_boot_empties_the_file(tmp_path):
    """Else the file would grow for ever: it does not lie where a reboot removes it."""
    path = tmp_path / "ended"
    for boot in ("boot-1", "boot-2"):
        note_ended(str(path), boot, "one", ["a"])
        note_ended(str(path), boot, "two")
    assert has_ended(str(path), "boot-2", "one") and has_ended(str(path), "boot-2", "two")
    assert b"boot-1" not in path.read_bytes()


def test_ended_names_and_containers_are_of_one_boot_and_one_name(tmp_path):
    path = str(tmp_path / "ended")
    note_ended(path, "boot", "one", ["a", "b"])
    note_ended(path, "boot", "one.more", ["c"])
    note_ended(path, "boot", "one", ["d"])
    assert ended_containers(path, "boot", "one") == {"a", "b", "d"}
    assert ended_containers(path, "boot", "more") == ended_containers(path, "other", "one") == frozenset()
    assert [has_ended(path, "boot", id_) for id_ in ("one", "one.more", "on", "one=a", "a")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_claimed_requests_count_damaged_claims(tmp_path):
    (tmp_path / "claims").mkdir(0o700)
    (tmp_path / "claims/job-1.json").write_text("{")
    assert claimed_requests(str(tmp_path)) == {"job-1"}
    assert claimed_requests(str(tmp_path / "none")) == frozenset()
