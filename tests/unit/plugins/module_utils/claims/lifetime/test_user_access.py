# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The access of a claim's user: given to the granted nodes alone, and taken back, also after attacks and crashes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import directories
from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import user_access
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimPart as Part
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimRecord, NodeAccess, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Node
from ansible_collections.fleet.cdi.plugins.module_utils.system import access_list
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT

from .user_nodes import UID, USER, Nodes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: needs root")


@pytest.fixture
def nodes(tmp_path):
    return Nodes(tmp_path)


def test_access_is_given_and_taken_back(nodes):
    gpu, other = nodes.make("gpu0", 3), nodes.make("gpu1", 5)
    claim = nodes.claim("job", gpu)
    assert (nodes.rights(gpu), nodes.rights(other)) == (6, 0)
    assert user_access.access_faults(nodes.places, claim) == []
    back = user_access.take_back(nodes.places, claim)
    assert nodes.state(gpu) == nodes.state(other) == ("0o20600", False)
    assert store.read_claim(nodes.places.state_dir, "job") == back
    assert user_access.take_back(nodes.places, back) == back


def test_a_killed_claim_is_taken_back_by_its_record(nodes):
    gpu, second = nodes.make("gpu0", 3), nodes.make("gpu1", 5)
    nodes.claim("job", gpu, second)
    os.removexattr(str(nodes.root) + second.path, directories.ACCESS_LIST)  # killed between the two
    os.chmod(str(nodes.root) + second.path, 0o600)
    user_access.take_back(nodes.places, store.read_claim(nodes.places.state_dir, "job"))
    assert nodes.state(gpu) == nodes.state(second) == ("0o20600", False)


def test_the_last_of_a_users_claims_takes_a_shared_node_back(nodes):
    control = nodes.make("control", 3)
    first, second = nodes.claim("first", control), nodes.claim("second", control)
    assert first.access == second.access == (NodeAccess(control, boot_id=inventory.boot_id()),)
    for claim, rights in ((first, 6), (second, 0)):
        user_access.take_back(nodes.places, claim)
        assert nodes.rights(control) == rights
    assert nodes.state(control) == ("0o20600", False)


@pytest.mark.counterpart("acl")
@pytest.mark.parametrize("entries", [f"u:{UID}:r", f"u:{UID}:rw,m::r"])
def test_an_entry_of_others_gives_afterwards_what_it_gave_before(nodes, entries):
    gpu = nodes.make("gpu0", 3)
    subprocess.run(["setfacl", "-m", entries, str(nodes.root) + gpu.path], check=True)
    claim = nodes.claim("job", gpu)
    assert claim.access == (NodeAccess(gpu, access_list.READ, boot_id=inventory.boot_id()),)
    assert nodes.rights(gpu) == 6
    user_access.take_back(nodes.places, claim)
    assert nodes.rights(gpu) == access_list.READ


def reboot(nodes, monkeypatch, kept, *entries):
    """Make all nodes anew, with these entries; `kept`: on a file system that outlives the boot, where they stay."""
    (nodes.root / "proc/sys/kernel/random").mkdir(parents=True)
    (nodes.root / BOOT[1:]).write_text("boot-2\n")
    monkeypatch.setattr(user_access.filesystem, "type_of", lambda _path: "ext4" if kept else "devtmpfs")
    for path in () if kept else (nodes.root / "dev").iterdir():
        os.removexattr(path, directories.ACCESS_LIST)
        os.chmod(path, 0o600)
        subprocess.run(["setfacl", "-m", ",".join(entries), path], check=True)


@pytest.mark.counterpart("acl")
def test_after_a_reboot_an_entry_is_of_others_and_stays(nodes, monkeypatch):
    """logind lets the user in before the claim is restored, and goes on doing so after the claim."""
    gpu = nodes.make("gpu0", 3)
    claim = nodes.claim("job", gpu)
    reboot(nodes, monkeypatch, False, f"u:{UID}:rw")
    back = user_access.take_back(nodes.places, claim)
    assert nodes.rights(gpu) == 6 and not back.access[0].given
    again = nodes.claim("job", gpu)
    assert again.access == (NodeAccess(gpu, 6, boot_id="boot-2"),)
    user_access.take_back(nodes.places, again)
    assert nodes.rights(gpu) == 6


@pytest.mark.counterpart("acl")
def test_a_claim_of_an_earlier_boot_tells_nothing_of_the_entries_of_this_one(nodes, monkeypatch):
    """Else the first claim of this boot would leave the user's access, or take that of others."""
    gpu = nodes.make("gpu0", 3)
    nodes.claim("old", gpu)
    reboot(nodes, monkeypatch, False, f"u:{UID}:r")
    new = nodes.claim("new", gpu)
    assert new.access == (NodeAccess(gpu, access_list.READ, boot_id="boot-2"),) and nodes.rights(gpu) == 6
    user_access.take_back(nodes.places, new)
    assert nodes.rights(gpu) == access_list.READ


def test_nodes_that_outlive_a_boot_are_taken_back_after_it(nodes, monkeypatch):
    gpu = nodes.make("gpu0", 3)
    claim = nodes.claim("job", gpu)
    reboot(nodes, monkeypatch, True)
    user_access.take_back(nodes.places, claim)
    assert nodes.state(gpu) == ("0o20600", False)


@pytest.mark.parametrize("owned", [False, True])
def test_a_node_that_the_user_can_open_anyway_is_left_alone(nodes, owned):
    gpu = nodes.make("gpu0", 3, 0o600 if owned else 0o666)
    if owned:
        os.chown(str(nodes.root) + gpu.path, UID, 0)
    assert nodes.claim("job", gpu).access == ()
    assert not nodes.state(gpu)[1]


def test_access_that_udev_took_is_a_fault_and_given_again(nodes):
    gpu = nodes.make("gpu0", 3)
    claim = nodes.claim("job", gpu)
    os.chmod(str(nodes.root) + gpu.path, 0o600)  # the mask
    assert nodes.rights(gpu) == 0
    assert "has lost the access" in user_access.access_faults(nodes.places, claim)[0]
    user_access.give_access(nodes.places, user_access.plan_access(nodes.places, claim))
    assert nodes.rights(gpu) == 6
    user_access.take_back(nodes.places, claim)
    assert nodes.state(gpu) == ("0o20600", False)


@pytest.mark.counterpart("acl")
@pytest.mark.parametrize(
    "how", ["link to a file", "link to a device", "link to the device", "another device", "file", "missing"]
)
@pytest.mark.parametrize("step", ["plan", "give", "take back"])
def test_what_lies_elsewhere_gets_and_loses_nothing(nodes, tmp_path, how, step):
    gpu, second = nodes.make("gpu0", 3), nodes.make("gpu1", 5)
    secret = tmp_path / "secret"
    secret.touch(0o600)
    subprocess.run(["setfacl", "-m", f"u:{UID}:r", secret, str(nodes.root) + second.path], check=True)
    claim = ClaimRecord(WantedClaim("job", {}, for_user=USER), parts=(Part("x", (gpu,)),), uid=UID, token="0")
    if step != "plan":
        claim = nodes.claim("job", gpu)
        user_access.take_back(nodes.places, claim)
    path = nodes.root / gpu.path[1:]
    if how == "link to the device":
        path.rename(nodes.root / "dev/moved")
        subprocess.run(["setfacl", "-m", f"u:{UID}:r", nodes.root / "dev/moved"], check=True)
        second = gpu._replace(path="/dev/moved")
    else:
        path.unlink()
    if how == "another device":
        os.rename(str(nodes.root) + second.path, path)
    elif how == "file":
        secret.rename(path)
        secret = path
    elif how != "missing":
        path.symlink_to(secret if how.endswith("file") else str(nodes.root) + second.path)
    files = [one for one in (secret, str(nodes.root) + second.path, path) if os.path.exists(one)]
    before = [os.getxattr(one, directories.ACCESS_LIST) for one in files]
    act = {"plan": user_access.plan_access, "give": user_access.give_access, "take back": user_access.take_back}[step]
    if step == "take back":
        act(nodes.places, claim)
    else:
        with pytest.raises(CdiError, match="/dev/gpu0"):
            act(nodes.places, claim)
    assert [os.getxattr(one, directories.ACCESS_LIST) for one in files] == before


def test_a_node_without_access_lists_is_refused(nodes, monkeypatch):
    # procfs has none. It has no device nodes either, so the look is told that this is one.
    monkeypatch.setattr(user_access.device_nodes, "fault", lambda *_given: ("", ""))
    (nodes.root / "proc").symlink_to("/proc")
    gpu = Node("/proc/version", "c", 1, 3)
    with pytest.raises(CdiError, match="has no access lists"):
        nodes.claim("job", gpu)


@pytest.mark.parametrize(("name", "why"), [("root", "is root"), ("no such", "no such user"), ("a\0b", "no such user")])
def test_who_can_not_have_a_claim(name, why):
    with pytest.raises(CdiError, match=why):
        user_access.user_id(name)
    assert user_access.user_id(USER) == UID


def test_a_user_who_has_another_number_by_now_gets_nothing(nodes):
    with pytest.raises(CdiError, match="another user id"):
        nodes.claim("job", nodes.make("gpu0", 3), uid=UID + 1)


TERMINAL = """
import os, sys
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import user_access
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimRecord, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
user_access.TRY = "if (: < /dev/tty) 2> /dev/null; then exit 1; fi"
user_access.check_access(Layout(), ClaimRecord(WantedClaim("job", {}, for_user=sys.argv[1]), uid=int(sys.argv[2])), "/")
print("refused")
"""


def test_the_process_that_tries_as_the_user_has_not_roots_terminal():
    """The user may take this process over, and could type into the terminal of root (TIOCSTI)."""
    pid, terminal = pty.fork()
    if pid == 0:
        words = [sys.executable, "-c", TERMINAL, USER, str(UID)]
        os.execve(words[0], words, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    said = b""
    with suppress(OSError):  # at its end
        while piece := os.read(terminal, 4096):
            said += piece
    os.waitpid(pid, 0)
    os.close(terminal)
    assert said.strip() == b"refused"
