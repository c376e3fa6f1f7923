# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The access of an ordinary user to the nodes of a claim that root made for them, and to its spec.

A container of an ordinary user gets no device of its own: its runtime mounts the node of the host (runc, crun: a user
namespace may not make nodes). So the kernel asks the access list of that node, as for any process of the user. The
claim adds an entry for the user there while it lives, as logind does for a seat, and nothing else decides: no file that
the user can write, and no hook, which in such a container has the user's rights alone.

The plan is in the claim's record before anything is given. A node counts only by its numbers, on a descriptor that
follows no link, so that no other file gets or loses an entry.
"""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Optional

from ... import documents
from ...allocation.ledger import filesystem
from ...directories import FLAGS
from ...layout import Layout
from ...records import CdiError, Node
from ...system import access_list, device_nodes
from ..ended import this_boot
from ..record import ClaimRecord, NodeAccess
from ..store import DIRECTORY, read_claims, write_claim
from .users import locked

GIVEN = access_list.READ | access_list.WRITE
OTHERS = 0o006  # of a mode: who may read and write a node as any user needs no entry
TRY = 'test -r "$1" || exit 1; i=1; shift; for n; do i=$((i + 1)); test -r "$n" && test -w "$n" || exit $i; done'
TRYING = 30.0  # seconds
ANEW = filesystem.VOLATILE | {"devtmpfs"}  # types of file systems whose nodes a reboot makes anew


def user_id(name: str) -> int:
    """Return the id of the user of a claim. Raises CdiError for a user who can't have a claim."""
    try:
        uid = pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise CdiError(f"for_user: found {name!r}, and this host has no such user; expected the name of one") from None
    if uid == 0:
        raise CdiError(f"for_user: found {name}, who is root; expected an ordinary user. Root needs no --for.")
    return uid


def plan_access(places: Layout, claim: ClaimRecord) -> ClaimRecord:
    """Return the claim with the access that it has to give, after a look at its nodes. Changes nothing.

    Raises CdiError if a node can't have an entry for the user.
    """
    if not claim.uid:
        return claim
    if user_id(claim.wanted.for_user) != claim.uid:
        raise CdiError(
            f"user {claim.wanted.for_user} has another user id than the claim; found {user_id(claim.wanted.for_user)}, "
            f"expected {claim.uid}"
        )
    known = {
        one.node: one
        for holder in (claim, *companions(places, claim))
        for one in holder.access
        if _in_force(places, one)
    }
    found, boot_id = [], this_boot(places)
    for node in claim.nodes:
        with opened(places, node) as handle:
            wanted = _looked(handle, node, claim)
        if wanted:
            found.append(known.get(node, wanted._replace(boot_id=boot_id)))
    return claim._replace(access=tuple(found))


def give_access(places: Layout, claim: ClaimRecord) -> None:
    """Give the user the access in the claim's record, where it is missing. Raises CdiError."""
    if not claim.access:
        return
    with locked(os.path.join(places.state_dir, DIRECTORY)):
        for one in claim.access:
            with opened(places, one.node) as handle:
                entries = access_list.read_access(handle)
                if access_list.effective_rights(entries, claim.uid) & GIVEN != GIVEN:
                    rights = GIVEN | max(one.before, 0)
                    access_list.write_access(handle, access_list.with_user(entries, claim.uid, rights))


def take_back(places: Layout, claim: ClaimRecord) -> ClaimRecord:
    """Take back the access that the claim gave, and note that in its record; return that. Raises CdiError.

    Another claim of the same user may have the same node (/dev/nvidiactl): the last one takes the entry back. A node
    that is gone, or is another device now, has taken the entry with it, and so has a reboot: an entry that a node of
    this boot has is of others (logind).
    """
    if not any(one.given for one in claim.access):
        return claim
    with locked(os.path.join(places.state_dir, DIRECTORY)):
        shared = {one.node for holder in companions(places, claim) for one in holder.access if _in_force(places, one)}
        for one in claim.access:
            if not _in_force(places, one) or one.node in shared or _other_device(places, one.node):
                continue
            with opened(places, one.node) as handle:
                entries = access_list.read_access(handle)
                if access_list.user_rights(entries, claim.uid) is not None:
                    left = access_list.without_user(entries, claim.uid)
                    if one.before >= 0:
                        left = access_list.with_user(left, claim.uid, one.before)
                    access_list.write_access(handle, left)
        claim = claim._replace(access=tuple(one._replace(given=False) for one in claim.access))
        write_claim(places.state_dir, claim)
    return claim


def access_faults(places: Layout, claim: ClaimRecord) -> list[str]:
    """Return which nodes the user can't open, although the claim gave access."""
    found = []
    for one in claim.access:
        with suppress(CdiError), opened(places, one.node) as handle:  # another look reports a node that is gone
            if access_list.effective_rights(access_list.read_access(handle), claim.uid) & GIVEN != GIVEN:
                found.append(
                    f"{one.node.path}: user {claim.wanted.for_user} has lost the access that the claim gave; udev or "
                    "logind may have set the node's access list or mode"
                )
    return found


def spec_attribute(claim: ClaimRecord) -> bytes:
    """Return the access list of the claim's spec, as an attribute: root writes it, and the user alone reads it."""
    return access_list.render_attribute(access_list.with_user(access_list.of_mode(0o600), claim.uid, access_list.READ))


def has_spec_access(claim: ClaimRecord, path: str) -> bool:
    """Tell if the spec at `path` has the access list of `spec_attribute`. Raises CdiError."""
    try:
        handle = os.open(path, FLAGS)
        try:
            return access_list.render_attribute(access_list.read_access(handle)) == spec_attribute(claim)
        finally:
            os.close(handle)
    except OSError as error:
        raise documents.failed("read", path, error) from None


def check_access(places: Layout, claim: ClaimRecord, spec: str) -> None:
    """Have the kernel say that the user can read the file `spec` and open the nodes. Opens none. Raises CdiError.

    It asks access(2) in a process of the user, so directories on the way and security modules count, too.
    """
    if not claim.uid:
        return
    from ...system import processes  # other claims need not pay for it

    user = pwd.getpwuid(claim.uid)
    paths = [spec, *(places.root.rstrip("/") + node.path for node in claim.nodes)]
    identity = processes.RunAs(claim.uid, user.pw_gid, os.getgrouplist(user.pw_name, user.pw_gid))
    try:
        # The user can stop or change this process: only its status counts.
        done = processes.run(["/bin/sh", "-c", TRY, "sh", *paths], TRYING, env={}, identity=identity)
    except OSError as error:
        raise CdiError(f"can't ask the kernel what user {user.pw_name} may open: {error}") from None
    if done.status:
        path = paths[min(max(done.status, 1), len(paths)) - 1]
        raise CdiError(
            f"{path}: user {user.pw_name} can't open it, although its access list says so. Look for a directory on the "
            "way that the user can't enter, and for a security policy"
        )


def companions(places: Layout, claim: ClaimRecord) -> list[ClaimRecord]:
    """Return the other claims of the same user."""
    return [one for one in read_claims(places.state_dir).claims if one.uid == claim.uid and one.id != claim.id]


def _looked(handle: int, node: Node, claim: ClaimRecord) -> Optional[NodeAccess]:
    """Return the access that the user needs to a node, or None if the user has it. Raises OSError, ValueError."""
    status = os.fstat(handle)
    if status.st_uid == claim.uid or status.st_mode & OTHERS == OTHERS:
        return None
    entries = access_list.read_access(handle)
    before = access_list.effective_rights(entries, claim.uid)
    access_list.with_user(entries, claim.uid, GIVEN | before)
    return NodeAccess(node, -1 if access_list.user_rights(entries, claim.uid) is None else before)


def _in_force(places: Layout, one: NodeAccess) -> bool:
    """Tell if the access that was given can still be there."""
    if not one.given or one.boot_id in ("", this_boot(places)):
        return one.given
    return filesystem.type_of(places.root.rstrip("/") + one.node.path) not in ANEW


def _other_device(places: Layout, node: Node) -> bool:
    return bool(device_nodes.fault(node, device_nodes.below(places.root))[1])


@contextmanager
def opened(places: Layout, node: Node) -> Iterator[int]:
    """Give a descriptor (O_PATH) of the node, which has its numbers. Raises CdiError, also for what fails meanwhile."""
    handle = -1
    try:
        handle = os.open(places.root.rstrip("/") + node.path, FLAGS)
        why = device_nodes.fault(node, lambda _path: os.fstat(handle))[1]
        if why:
            raise CdiError(why)
        yield handle
    except ValueError as error:
        raise CdiError(f"{node.path}: {error}") from None
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            raise CdiError(
                f"{node.path}: its file system has no access lists, so a claim can't let one user open it; expected "
                "one with them, as /dev usually is (devtmpfs with CONFIG_TMPFS_POSIX_ACL)"
            ) from None
        raise documents.failed("set the access list of", node.path, error) from None
    finally:
        if handle >= 0:
            os.close(handle)
