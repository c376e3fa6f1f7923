# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ledger refuses and what can go wrong with its store; each error has a `name` for who answers a caller.

Whatever is raised, the operation did not take place, or (Unusable from a failed write to disk) may have: it was not
acknowledged, and DEL or GC of the same request sets it right. Private API of fleet.cdi.
"""

from __future__ import annotations

import errno

from ...records import CdiError


class Refused(CdiError):
    """The ledger works and says no."""

    name = "refused"


class DevicesTaken(Refused):
    """The devices that were picked can't be held beside what is held: the picker is wrong, nothing was recorded."""

    name = "taken"


class Owned(Refused):
    """The kind belongs to another owner."""

    name = "owned"


class Different(Refused):
    """The request-id has the same resource-spec with another amount."""

    name = "different"


class Unfinished(Refused):
    """The request-id is in the middle of an ADD (its setup) or of a DEL (its teardown), or that was interrupted."""

    name = "unfinished"


class GrantGone(Refused):
    """What was to be changed is no longer there: a DEL or GC came between."""

    name = "gone"


class Incomplete(Refused):
    """The store was damaged and may have lost grants: no new ones until somebody says that none are lost."""

    name = "incomplete"


class Unusable(CdiError):
    """The store can't be used; `cause` is one of those in CAUSES, "newer", "older", "foreign", "network", "damaged"."""

    name = "unusable"

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Damaged(Exception):
    """Inside of the room only: what is in the store can't be what was written. It gets rebuilt (rebuild.py)."""


# Text of SQLite's message (sqlite3_errstr; codes come with Python 3.11 only) -> cause, what to do next.
# https://www.sqlite.org/rescode.html
CAUSES = (
    ("disk is full", "full", "Free some space there and try again; DEL works meanwhile"),
    ("readonly database", "read-only", "Make the file system writable, or run as the user who owns the store"),
    ("database is locked", "busy", "Another program keeps the store locked: end it and try again"),
    ("unable to open", "open", "Make it readable and writable for this user"),
    ("disk i/o error", "io", "Look at the kernel's log; what was asked did not take place, or DEL takes it back"),
    ("not authorized", "permission", "Run as the user who owns the store"),
    ("access permission denied", "permission", "Run as the user who owns the store"),
    ("out of memory", "memory", "Free some memory and try again"),
)
DAMAGE = ("malformed", "not a database", "no such", "corrupt", "could not decode", "too big", "unsupported file format")

# The same for the calls that we make ourselves.
ERRNO = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EFBIG: "full",
    errno.EROFS: "read-only",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.ENOMEM: "memory",
    errno.EMFILE: "limit",
    errno.ENFILE: "limit",
    errno.ELOOP: "foreign",
}
ADVICE = {
    **{cause: advice for _text, cause, advice in CAUSES},
    "limit": "Raise the limit on open files and try again",
    "foreign": "Remove the link; the store is no symlink",
}


def of_sqlite(path: str, error: Exception) -> Exception:
    """What to raise for an error that sqlite3 raised: Unusable, or Damaged.

    Its text is empty where SQLite's message can't be decoded, which quotes a schema that is damaged: Python before 3.11
    drops such a message (PyErr_SetString), later ones raise UnicodeDecodeError (store.connected).
    """
    text = str(error)
    if not text:
        return Damaged("its schema is no text any more")
    code = getattr(error, "sqlite_errorname", "")
    for part, cause, advice in CAUSES:
        if part in text.lower():
            return Unusable(f"{path}: {text}{f' ({code})' if code else ''}. {advice}.", cause)
    if any(part in text.lower() for part in DAMAGE):
        return Damaged(text)
    return Unusable(f"{path}: {text}{f' ({code})' if code else ''}. Look at the kernel's log and try again.", "other")


def of_system(path: str, what: str, error: OSError) -> Unusable:
    """What to raise for a failed call on `path`."""
    cause = ERRNO.get(error.errno or 0, "io")
    return Unusable(f"{path}: can't {what} it: {error.strerror or error}. {ADVICE[cause]}.", cause)
