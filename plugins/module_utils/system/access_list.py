# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access control lists of files: give one user rights, and take them back, without a change for anybody else.

Sources: acl(5); linux/posix_acl_xattr.h for the extended attribute. setfacl(1) is not used: it computes the mask anew,
which can give other users rights that the mask has taken from them, and it takes two steps to find out.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple, Optional

from ..directories import ACCESS_LIST

READ, WRITE = 4, 2

# The tags of entries, in the order that the kernel wants.
OWNER, USER, GROUP, NAMED_GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
MASKED = (USER, GROUP, NAMED_GROUP)
NOBODY = 0xFFFFFFFF  # the id in an entry that names no user or group

_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")


class AccessEntry(NamedTuple):
    """One entry of an access control list."""

    tag: int
    rights: int  # READ, WRITE and 1 (execute)
    id: int = NOBODY


AccessList = tuple[AccessEntry, ...]


def of_mode(mode: int) -> AccessList:
    """Return the list that says the same as the permission bits of `mode`."""
    return (AccessEntry(OWNER, mode >> 6 & 7), AccessEntry(GROUP, mode >> 3 & 7), AccessEntry(OTHER, mode & 7))


def parse_attribute(content: bytes) -> AccessList:
    """Return the list in an extended attribute. Raises ValueError."""
    if content[:4] != _VERSION or len(content) % _ENTRY.size != len(_VERSION):
        raise ValueError(f"found {content[:16].hex()}; expected an access control list of version 2")
    return tuple(AccessEntry(*fields) for fields in _ENTRY.iter_unpack(content[4:]))


def render_attribute(entries: Sequence[AccessEntry]) -> bytes:
    """Return the extended attribute of a list."""
    return _VERSION + b"".join(_ENTRY.pack(*entry) for entry in sorted(entries, key=lambda one: (one.tag, one.id)))


def mask_of(entries: AccessList) -> int:
    """Return the rights that no entry of MASKED exceeds."""
    return next((one.rights for one in entries if one.tag == MASK), 7)


def user_rights(entries: AccessList, uid: int) -> Optional[int]:
    """Return the rights in the user's own entry, without the mask; None without one."""
    return next((one.rights for one in entries if (one.tag, one.id) == (USER, uid)), None)


def effective_rights(entries: AccessList, uid: int) -> int:
    """Return the rights that the user's own entry gives in fact."""
    return (user_rights(entries, uid) or 0) & mask_of(entries)


def may_open(entries: AccessList, owner: tuple[int, int], uid: int, gids: Collection[int]) -> bool:
    """Tell if a user with these groups may read or write the file, by the rules of acl(5). `owner`: user and group.

    As the kernel does (fs/namei.c, acl_permission_check), ignore named entries if the mask is empty.
    """
    mask = mask_of(entries)
    if not mask:
        entries = tuple(one for one in entries if one.tag not in (USER, NAMED_GROUP))
    if uid == owner[0]:
        found = [one.rights for one in entries if one.tag == OWNER]
    elif user_rights(entries, uid) is not None:
        found = [effective_rights(entries, uid)]
    else:
        groups = [
            one.rights & mask
            for one in entries
            if (one.tag == GROUP and owner[1] in gids) or (one.tag == NAMED_GROUP and one.id in gids)
        ]
        found = groups or [one.rights for one in entries if one.tag == OTHER]
    return bool(_union(found) & (READ | WRITE))


def with_user(entries: AccessList, uid: int, rights: int) -> AccessList:
    """Return the list in which the user has `rights`.

    Raises ValueError if the mask would then let other users have more than now.
    """
    others = tuple(one for one in entries if (one.tag, one.id) != (USER, uid) and one.tag != MASK)
    before = mask_of(entries)
    group_rights = _union(one.rights & before for one in others if one.tag in MASKED)
    mask = (before if any(one.tag == MASK for one in entries) else group_rights) | rights
    wider = [one for one in others if one.tag in MASKED and one.rights & mask & ~before]
    if wider:
        raise ValueError(
            f"its access list has entries that its mask limits ({_shown(wider[0])}); expected entries that say what "
            "they give. Write them anew (setfacl)"
        )
    return (*others, AccessEntry(USER, rights, uid), AccessEntry(MASK, mask))


def without_user(entries: AccessList, uid: int) -> AccessList:
    """Return the list without the user's own entry; all others have the rights that they have now."""
    if user_rights(entries, uid) is None:
        return entries
    mask = mask_of(entries)
    kept = tuple(one for one in entries if (one.tag, one.id) != (USER, uid) and one.tag != MASK)
    if any(one.tag in (USER, NAMED_GROUP) for one in kept):
        return (*kept, AccessEntry(MASK, mask & _union(one.rights for one in kept if one.tag in MASKED)))
    return tuple(one._replace(rights=one.rights & mask) if one.tag == GROUP else one for one in kept)


def _union(rights: Iterable[int]) -> int:
    return reduce(or_, rights, 0)


def _shown(entry: AccessEntry) -> str:
    kind = {USER: "user", GROUP: "group", NAMED_GROUP: "group"}[entry.tag]
    return f"{kind}:{'' if entry.id == NOBODY else entry.id}:{stat.filemode(entry.rights)[-3:]}"


def read_access(handle: int) -> AccessList:
    """Return the list of an open file; of one without, what its mode says. O_PATH is enough. Raises OSError."""
    try:
        return parse_attribute(os.getxattr(f"/proc/self/fd/{handle}", ACCESS_LIST))
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
    return of_mode(os.fstat(handle).st_mode)


def write_access(handle: int, entries: AccessList) -> None:
    """Give an open file this list, in one step. O_PATH is enough. Raises OSError.

    A list that permission bits can say becomes permission bits.
    """
    os.setxattr(f"/proc/self/fd/{handle}", ACCESS_LIST, render_attribute(entries))
