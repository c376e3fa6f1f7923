# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of the ledger. The `name` of each error is for the code that answers a caller.

After an error the operation did not take place. Only after Unusable from a failed write to disk it may have: it was not
acknowledged, and DEL or GC of the same request undoes it.
"""

from __future__ import annotations

import errno

from ...records import CdiError


class Refused(CdiError):
    """The ledger works and refuses the operation."""

    name = "refused"


class DevicesTaken(Refused):
    """The devices that were picked exclude devices that are held: the picker is wrong, and nothing was recorded."""

    name = "taken"


class Owned(Refused):
    """The kind belongs to another owner."""

    name = "owned"


class Different(Refused):
    """The request-id has the same resource-spec with another amount."""

    name = "different"


class Unfinished(Refused):
    """The ADD (setup) or DEL (teardown) of this request-id still runs, or was interrupted."""

    name = "unfinished"


class GrantGone(Refused):
    """The grant to change no longer exists: a DEL or GC freed it meanwhile."""

    name = "gone"


class Incomplete(Refused):
    """The store was damaged and may have lost grants: no new grants until the administrator says that none are lost."""

    name = "incomplete"


class Unusable(CdiError):
    """The store can't be used; `cause` is one of those in CAUSES, "newer", "older", "foreign", "network", "damaged"."""

    name = "unusable"

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Moved(Exception):
    """Another process wrote to the store meanwhile, without its lock. Only the ledger's own files see this error."""


class Damaged(Exception):
    """The store does not have what was written; rebuild.py rebuilds it. Only the ledger's own files see this error."""


# Text of SQLite's message (sqlite3_errstr; only Python 3.11 has its codes) -> cause, next step.
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

# The same for system calls.
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
    "foreign": "Remove the link; the store must not be a symlink",
}


def of_sqlite(path: str, error: Exception) -> Exception:
    """Return the exception for an error of sqlite3: Unusable or Damaged.

    The error has no text if SQLite's message quotes a damaged schema that can't be decoded: Python before 3.11 drops
    such a message (PyErr_SetString), later versions raise UnicodeDecodeError (store_file.translated).
    """
    text = str(error)
    if not text:
        return Damaged("its schema is not text any more")
    code = getattr(error, "sqlite_errorname", "")
    for part, cause, advice in CAUSES:
        if part in text.lower():
            return Unusable(f"{path}: {text}{f' ({code})' if code else ''}. {advice}.", cause)
    if any(part in text.lower() for part in DAMAGE):
        return Damaged(text)
    return Unusable(f"{path}: {text}{f' ({code})' if code else ''}. Look at the kernel's log and try again.", "other")


def of_system(path: str, what: str, error: OSError) -> Unusable:
    """Return the exception for a system call on `path` that failed."""
    cause = ERRNO.get(error.errno or 0, "io")
    return Unusable(f"{path}: can't {what} it: {error.strerror or error}. {ADVICE[cause]}.", cause)
