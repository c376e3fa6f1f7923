# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A claim of an ordinary user does not end while a process may have its device open, wherever the descriptor is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import refuse_used
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import open_nodes as module
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.open_nodes import open_nodes
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

from .user_nodes import UID, USER, Nodes

OTHER = 65534  # another ordinary user, "nobody"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: needs root"),
    pytest.mark.usefixtures("only_own_processes"),
]


@pytest.fixture
def nodes(tmp_path):
    return Nodes(tmp_path)


@pytest.fixture
def full(nodes):
    """A node like /dev/full, which only processes of the test have open, in a claim of USER."""
    node = nodes.make("full", 7)
    return node, nodes.claim("job", node)


@pytest.mark.parametrize(
    ("start", "counts"),
    [
        (["setpriv", "--reuid", USER, "--clear-groups"], True),
        (["setpriv", "--euid", USER, "unshare", "--user"], True),  # real user id 0, in a user namespace of the user
        (["unshare", "--user"], False),
        ([], False),
    ],
)
def test_processes_of_the_user_that_have_a_node_open(nodes, full, start, counts):
    if "unshare" in start and subprocess.run([*start, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no user namespaces here")
    node, claim = full
    with open("/dev/full", "rb") as file:
        words = [*start, "cat"]
        with subprocess.Popen(words, stdin=-1, stdout=-1, bufsize=0, pass_fds=[file.fileno()]) as process:
            process.stdin.write(b"x")
            assert process.stdout.read(1) == b"x"
            found = open_nodes(nodes.places, claim)
            assert found.startswith(f"{node.path} is open in pid {process.pid} ") == counts, found
            process.stdin.close()
    assert open_nodes(nodes.places, claim) == ""


@pytest.fixture
def users():
    """A process of the claim's user that has /dev/full open."""
    words = ["setpriv", "--reuid", USER, "--clear-groups", "cat"]
    with open("/dev/full", "rb") as file:
        process = subprocess.Popen(words, stdin=-1, stdout=-1, bufsize=0, pass_fds=[file.fileno()])
    with process:
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"
        yield process
        process.stdin.close()


def anybody(_path):
    """Its mode lets every user open it."""


def owned(path):
    os.chmod(path, 0o600)
    os.chown(path, UID, 0)


def entered(path):
    os.chmod(path, 0o600)
    subprocess.run(["setfacl", "-m", f"u:{USER}:rw", path], check=True)


@pytest.mark.counterpart("acl")
@pytest.mark.parametrize("made", [anybody, owned, entered])
def test_a_node_that_the_user_can_open_without_the_claim_is_in_use_too(nodes, users, made):
    node = nodes.make("full", 7, 0o666)
    made(str(nodes.root) + node.path)
    claim = nodes.claim("job", node)
    for find in (open_nodes, lambda *given: str(raised(refuse_used, *given))):
        assert f"/dev/full is open in pid {users.pid} (" in find(nodes.places, claim)
    assert open_nodes(nodes.places, claim, given_only=True) == ""


def raised(function, *given):
    with pytest.raises(CdiError) as error:
        function(*given)
    return error.value


def test_a_node_that_all_devices_of_a_driver_share_counts_only_with_an_entry(nodes, users):
    control = nodes.make("nvidiactl", 7, 0o666)
    assert open_nodes(nodes.places, nodes.claim("job", control)) == ""
    os.chmod(str(nodes.root) + control.path, 0o660)
    assert f"pid {users.pid} (" in open_nodes(nodes.places, nodes.claim("job", control))


def test_processes_that_could_not_be_looked_at_may_have_it_open(nodes, full, monkeypatch):
    """A user can start so many that the time does not suffice."""
    monkeypatch.setattr(module, "LOOKING", -1)
    assert "it can't be seen whether /dev/full is open" in open_nodes(nodes.places, full[1])


def test_a_process_that_moves_its_files_all_the_time_may_have_it_open(nodes, full, monkeypatch):
    seen = module.openers.OpenersSeen(processes=1, restless=(4711,))
    monkeypatch.setattr(module.openers, "look", lambda *_given, **_more: seen)
    assert open_nodes(nodes.places, full[1]) == (
        "it can't be seen whether /dev/full is open: pid 4711 opens and closes files faster than they can be looked "
        "at. Stop it meanwhile (kill -STOP 4711, and kill -CONT 4711 afterwards)"
    )


FORKS = """
import os, select, sys
f, uid = map(int, sys.argv[1:3]); os.setgroups([]); os.setgid(uid); os.setuid(uid)
print(1, flush=True)
while not select.select([0], [], [], float(sys.argv[3]))[0]:
    if os.fork():
        os._exit(0)
"""


@pytest.mark.parametrize("pause", [0, 0.001, 0.02])
def test_a_user_who_forks_again_and_again_is_not_overlooked(nodes, full, pause):
    """Each process has the device for `pause` seconds, and hands it to the next one by fork(2)."""
    with open("/dev/full", "rb") as file:
        words = [sys.executable, "-c", FORKS, str(file.fileno()), str(UID), str(pause)]
        process = subprocess.Popen(words, stdin=-1, stdout=-1, pass_fds=[file.fileno()])
    with process:
        process.stdout.readline()
        found = [open_nodes(nodes.places, full[1]) for _look in range(20)]
        process.stdin.close()
        process.stdout.read()  # until the last one has ended
    assert "" not in found
    assert open_nodes(nodes.places, full[1]) == ""


HOLDS = "import os, socket, sys; f, uid = map(int, sys.argv[1:]); os.setgroups([]); os.setgid(uid); os.setuid(uid); "
SENT = "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [f]); os.close(f); "


@pytest.fixture
def holder():
    """Start a process of a user that has /dev/full open, and then does more: holder(uid, then="") -> Popen."""
    started = []

    def start(uid, then=""):
        with open("/dev/full", "rb") as file:
            words = [sys.executable, "-c", f"{HOLDS}{then}print(1, flush=True); input()", str(file.fileno()), str(uid)]
            started.append(subprocess.Popen(words, stdin=-1, stdout=-1, pass_fds=[file.fileno()]))
        assert started[-1].stdout.readline() == b"1\n"
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


# Texts that a process may take as its name, proc_pid_comm(5). Python's str.splitlines ends a line at each.
ENDS_OF_LINES = ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
NAMED = "import ctypes; ctypes.CDLL(None).prctl(15, {!r}.encode()); "


@pytest.mark.parametrize("end", ENDS_OF_LINES, ids=ascii)
def test_a_process_that_forges_the_ids_of_its_status_by_its_name(nodes, full, holder, end):
    """With the name "a\\vUid:\\t0" a process of the user passed for one of root's."""
    process = holder(UID, NAMED.format(f"a{end}Uid:\t0"))
    assert f"/dev/full is open in pid {process.pid} (" in open_nodes(nodes.places, full[1])


@pytest.mark.counterpart("acl")
@pytest.mark.parametrize("end", ENDS_OF_LINES, ids=ascii)
def test_a_process_that_forges_its_groups_by_its_name(nodes, full, holder, end):
    """The groups of a process tell whether it can open the node without the user's help."""
    subprocess.run(["setfacl", "-m", "g:44:rw", str(nodes.root) + full[0].path], check=True)
    other = holder(OTHER, NAMED.format(f"a{end}Gid:\t44"))
    assert f"/dev/full is open in pid {other.pid} (" in open_nodes(nodes.places, full[1])


def test_a_descriptor_that_was_handed_to_another_user(nodes, full, holder):
    other = holder(OTHER)
    assert f"/dev/full is open in pid {other.pid} (" in open_nodes(nodes.places, full[1])


@pytest.mark.counterpart("acl")
@pytest.mark.parametrize("how", ["group", "entry"])
def test_who_can_open_it_without_the_claim_did_not_get_it_from_the_user(nodes, full, holder, how):
    path = str(nodes.root) + full[0].path
    entry = f"g:{OTHER}:rw" if how == "group" else f"u:{OTHER}:rw"
    subprocess.run(["setfacl", "-m", entry, path], check=True)
    holder(OTHER)
    assert open_nodes(nodes.places, full[1]) == ""


def test_a_device_that_has_gone_is_nobodys(nodes, full, holder):
    holder(OTHER)
    os.unlink(str(nodes.root) + full[0].path)
    assert open_nodes(nodes.places, full[1]) == ""


@pytest.mark.parametrize("uid", [UID, OTHER])
def test_a_descriptor_that_waits_in_a_socket(nodes, full, holder, uid):
    process = holder(uid, SENT)
    found = open_nodes(nodes.places, full[1])
    assert "1 open file in socket:[" in found and f"of pid {process.pid}, which nobody has received" in found


def test_files_that_are_received_in_time_are_no_reason(nodes, full, monkeypatch):
    looks = [{"socket:[1]": "x"}, {"socket:[2]": "x"}]
    seen = module.passed_files.PassedFilesSeen
    monkeypatch.setattr(module.passed_files, "look_for_passed", lambda **_given: seen(looks.pop(0)))
    assert open_nodes(nodes.places, full[1]) == "" and looks == []
