# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Allow one call at a time for each request whose devices are being set up or torn down.

If two DELs of one request ran its teardown at the same time, the slower one could tear down a device that was granted
again meanwhile (k8snetworkplumbingwg/sriov-cni#219 is such a case). The lock is one byte of one file for each request,
so the number of files does not grow. The kernel releases it when a process is killed.
"""

from __future__ import annotations

import os
import time
from binascii import crc32
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...protocol import errors
from ...protocol.errors import ProtocolError
from ...records import CdiError
from ..ledger.grant import Key
from ..ledger.lock_file import lock_bytes

NAME = "commands.lock"
INTERVAL = 0.01  # seconds between two tries


@contextmanager
def turn(state_dir: str, keys: Sequence[Key], limit: float) -> Iterator[None]:
    """Hold the turn of `keys`. Raises ProtocolError 108 if another call holds it for `limit` seconds, 102."""
    path = os.path.join(state_dir, NAME)
    handle = _open(path)
    try:
        deadline = time.monotonic() + limit
        # In one order, so that two calls with the same keys never wait for each other.
        for byte, key in sorted((crc32("\0".join(key).encode()), key) for key in keys):
            while not _locked(handle, byte, path):
                if time.monotonic() > deadline:
                    raise ProtocolError(
                        errors.TIME, f"request {key.request_id}: another call has been working on it for {limit:g} s"
                    )
                time.sleep(INTERVAL)
        yield
    finally:
        os.close(handle)


def _locked(handle: int, byte: int, path: str) -> bool:
    """Lock the byte of the file; return False if it is locked already. Raises ProtocolError 102."""
    try:
        return lock_bytes(handle, byte, 1)
    except OSError as error:
        raise ProtocolError(errors.STORE, f"{path}: can't be locked ({error.strerror})") from None


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            from ... import files
            from ..ledger.store_file import sync

            for directory in files.make_directory(os.path.dirname(path)):  # the grant will be stored there, too
                sync(os.path.dirname(directory))
            return os.open(path, flags, 0o600)
    except (OSError, CdiError) as error:
        raise ProtocolError(errors.STORE, f"{path}: can't be opened ({error})") from None
