# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out if a process of a claim's user still has a node open that the claim granted.

A descriptor stays valid when the access is taken back: the kernel asks the access list at open(2) alone. The user may
have handed it on: to a thread, to a process of another user, or to a socket that nobody reads yet. What can't be seen
counts as open, so that nobody else gets the device meanwhile. Nodes that every user may open count, too.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import struct
import time
from contextlib import ExitStack, suppress

from ...layout import Layout
from ...records import CdiError, Node
from ...safe_text import one_line
from ...system import access_list, openers, passed_files, proc
from ...system.occupied import SHARED
from ...system.openers import Opener
from ..record import ClaimRecord
from .user_access import GIVEN, companions, opened

NS_GET_PARENT, NS_GET_OWNER_UID = 0xB702, 0xB704  # ioctl_ns(2)
LOOKING = 20.0  # seconds for a look at all processes: the user can make many
# Looks at files that wait in sockets, and seconds between them: a message that its receiver takes does not count.
LOOKS, PAUSE = 3, 0.1


def open_nodes(places: Layout, claim: ClaimRecord, given_only: bool = False) -> str:
    """Return who may have a node of the claim open, or why that can't be seen; "" if nobody. Raises CdiError.

    `given_only`: leave out nodes that the user can open without the claim. Nodes that all devices of a driver share
    (occupied.SHARED) count only if the claim gave access to them.
    """
    others = {node for holder in companions(places, claim) for node in holder.nodes}
    given = {one.node for one in claim.access if one.before & GIVEN != GIVEN or one.before < 0}
    wanted = given if given_only else given.union(node for node in claim.nodes if node.path not in SHARED)
    nodes = {(node.type, node.major, node.minor): node for node in sorted(wanted - others)}
    if not nodes:
        return ""
    seen = openers.look(nodes.keys(), seconds=LOOKING)
    for number, found in seen.openers.items():
        users = [one for one in found if _belongs(one, claim.uid) or _was_handed(places, one, nodes[number])]
        if users:
            return one_line(f"{nodes[number].path} is open in {openers.named_openers(users)}")
    paths = ", ".join(node.path for node in nodes.values())
    if seen.hidden:
        return one_line(f"it can't be seen whether {paths} is open: {seen.gaps}")
    for pid in seen.restless:
        return one_line(
            f"it can't be seen whether {paths} is open: pid {pid} opens and closes files faster than they can be "
            f"looked at. Stop it meanwhile (kill -STOP {pid}, and kill -CONT {pid} afterwards)"
        )
    return _passed()


def _passed() -> str:
    """Return which socket has files that wait for a receiver in each of several looks; "" if none has."""
    waiting = passed_files.look_for_passed(seconds=LOOKING)
    for _again in range(LOOKS - 1):
        if not waiting.sockets or waiting.trouble:
            break
        time.sleep(PAUSE)
        again = passed_files.look_for_passed(seconds=LOOKING)
        kept = {name: one for name, one in again.sockets.items() if name in waiting.sockets}
        waiting = again._replace(sockets=kept)
    if waiting.trouble:
        return one_line(waiting.trouble)
    for one in waiting.sockets.values():
        return one_line(f"one of its nodes may be among {one}, which nobody has received yet")
    return ""


def _was_handed(places: Layout, opener: Opener, node: Node) -> bool:
    """Tell if a process of another ordinary user has a node open that this user can't open.

    Not one in a user namespace of root, as engines make them: it got its devices from root.
    """
    owners = _owners(opener)
    if opener.uid <= 0 or 0 in owners:
        return False
    try:
        with opened(places, node) as handle:
            status = os.fstat(handle)
            entries = access_list.read_access(handle)
    except CdiError:
        return False  # the device has gone, and nobody gets it
    of_file = (status.st_uid, status.st_gid)
    rights = {opener.uid: _groups(opener), **{owner: _groups_of(owner) for owner in owners}}
    return not any(access_list.may_open(entries, of_file, uid, gids) for uid, gids in rights.items())


def _groups(opener: Opener) -> set[int]:
    """Return the groups of a process; none if it has ended."""
    with suppress(OSError):
        process = os.open(f"/proc/{opener.pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return proc.group_ids(process)
        finally:
            os.close(process)
    return set()


def _groups_of(uid: int) -> set[int]:
    """Return the groups of a user by the host's files; none for an unknown user."""
    with suppress(KeyError):
        user = pwd.getpwuid(uid)
        return {*os.getgrouplist(user.pw_name, user.pw_gid)}
    return set()


def _belongs(opener: Opener, uid: int) -> bool:
    """Tell if a process is the user's: it has this user id, or is in a user namespace that the user made."""
    return opener.uid == uid or uid in _owners(opener)


def _owners(opener: Opener) -> set[int]:
    """Return the users who made the user namespaces of a process, without that of the host."""
    found: set[int] = set()
    with suppress(OSError), ExitStack() as stack:
        handle = os.open(f"/proc/{opener.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        while True:
            stack.callback(os.close, handle)
            parent = fcntl.ioctl(handle, NS_GET_PARENT)  # the first namespace has none, and this is refused
            found.add(struct.unpack("I", fcntl.ioctl(handle, NS_GET_OWNER_UID, bytes(4)))[0])
            handle = parent
    return found
