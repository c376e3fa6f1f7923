# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read documents from files, with a size limit and only from regular files, and parse JSON without duplicate keys.

The executables of the 2017 proposal read the inventory with this file in every call, so it imports little.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any, Optional

from .records import CdiError

# O_NONBLOCK: the reader must not wait for a FIFO.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

LONGEST_NUMBER = 100  # characters of an integer in a text of another program

DENIED = (errno.EACCES, errno.EPERM)

# The next step after a failure, by errno. Nothing is imported for it: a process may be out of descriptors.
ADVICE = {
    errno.ENOSPC: "Free some space there and run again",
    errno.EDQUOT: "Free some space there and run again",
    errno.EFBIG: "Lift the limit on file sizes and run again",
    **dict.fromkeys(DENIED, "Run as root (`sudo`, or `become: true` in a playbook), or choose another place"),
    errno.EROFS: "Make the file system writable, or choose another place",
    errno.ELOOP: "Remove the link that is in the way (`namei -l PATH` shows it), or choose another place",
    errno.EISDIR: "Move the directory away, or choose another place",
    errno.ENOTDIR: "Move the file away that is in the place of a directory (`namei -l PATH` shows it), or choose "
    "another place",
}


def content(path: str, limit: int) -> Optional[bytes]:
    """Return the content of the file at `path`, symlinks followed; None if it is missing.

    Raises CdiError for a FIFO, a device or a directory, which is not opened, for a file larger than `limit` bytes, and
    for one that can't be read.
    """
    try:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed("read", path, error) from None
    except ValueError:  # a NUL, or half of a character
        raise failed("read", repr(path), OSError(errno.EINVAL, os.strerror(errno.EINVAL))) from None
    try:
        mode = os.fstat(at).st_mode
        if not stat.S_ISREG(mode):
            raise irregular(path, mode)
        try:
            handle = os.open(f"/proc/self/fd/{at}", READ)
        except FileNotFoundError:  # an image has no /proc, and no other processes
            handle = os.open(path, READ)
    except OSError as error:
        raise failed("read", path, error) from None
    finally:
        os.close(at)
    with os.fdopen(handle, "rb") as file:
        return bounded(path, file, limit)


def parse(text: bytes, where: str, integer: Callable[[str], int] = int) -> Any:
    """Return the JSON document in `text`; `where` names it in errors. Raises CdiError.

    `integer` makes a number of its digits, or raises ValueError. Python before 3.10.7 takes seconds for a
    megabyte of digits (3.9: 4.3 s for 900,000), so a text of another program needs a bound: `short_integer`.
    """
    try:
        text_ = text.decode("utf-8")
        return json.loads(text_, object_pairs_hook=_object, parse_constant=_no_constant, parse_int=integer)
    except UnicodeDecodeError as error:
        why = f"the byte {error.object[error.start]:#04x} at {error.start} is not UTF-8"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = str(error)
    raise CdiError(f"{where}: is not a JSON document ({why}); correct it")


def short_integer(text: str) -> int:
    """Return the integer that `text` is. Raises ValueError if it is longer than LONGEST_NUMBER."""
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number has {len(text)} characters; expected {LONGEST_NUMBER} at most")
    return int(text)


def misfit(error: Exception) -> str:
    """Say why a JSON document could not be made a record, for the error of Python that stopped it."""
    if isinstance(error, KeyError):
        return f"the field {error.args[0]!r} is missing"
    return str(error) if isinstance(error, ValueError) else "a field has another type, or is unknown"


def twice(pairs: Sequence[tuple[str, Any]]) -> Optional[str]:
    """Return a key that an object of these keys and values has twice. RFC 8259 does not define which one counts."""
    if len(dict(pairs)) == len(pairs):
        return None
    last = {key: position for position, (key, _value) in enumerate(pairs)}
    return next(key for position, (key, _value) in enumerate(pairs) if last[key] != position)


def other_version(path: str, found: Any, reads: int) -> CdiError:
    """Return the error for a document of another release of fleet.cdi."""
    return CdiError(f"{path}: has version {found!r}; this release reads {reads}. Use the release that wrote it.")


def bounded(path: str, file: Any, limit: int) -> bytes:
    """Return the content of an open file of at most `limit` bytes. Raises CdiError."""
    try:
        found: bytes = file.read(limit + 1)
    except OSError as error:
        raise failed("read", path, error) from None
    if len(found) > limit:
        size = f"{limit >> 20} MiB" if limit >> 20 else f"{limit} bytes"
        raise CdiError(f"{path}: is larger than {size}; expected a smaller file. Make it smaller, or move it away.")
    return found


def irregular(path: str, mode: int) -> CdiError:
    """Return the error for a path that is not a regular file."""
    return CdiError(f"{path}: is not a regular file ({stat.filemode(mode)}); expected one, or none. Move it away.")


class CallFailed(CdiError):
    """A system call failed, so nothing is known of the file."""


class CallDenied(CallFailed):
    """A system call failed because this user may not make it."""


def advice(error: OSError) -> str:
    """Return the next step after a system call that failed; "" if none is known."""
    return ADVICE.get(error.errno or 0, "")


def failed(what: str, path: str, error: OSError) -> CallFailed:
    """Return the error for a system call that failed, with the next step."""
    next_step = advice(error)
    kind = CallDenied if error.errno in DENIED else CallFailed
    return kind(f"{path}: can't {what} it: {error.strerror or error}" + (f". {next_step}" if next_step else ""))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    key = twice(pairs)
    if key is not None:
        raise ValueError(f"an object has the key {json.dumps(key[:60])} twice")
    return dict(pairs)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
