# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call at a time for each request whose devices are being set up or torn down. Private API of fleet.cdi.

Two DELs of one request that ran its teardown side by side could end so that the slower one tears down what somebody
else was granted meanwhile (k8snetworkplumbingwg/sriov-cni#219 is such a case). The lock is one byte of one file for
each request, so that no files pile up; the kernel gives it back when a process is killed. It keeps processes apart, not
the threads of one.
"""

from __future__ import annotations

import fcntl
import os
import time
from binascii import crc32
from collections.abc import Iterator
from contextlib import contextmanager

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.grant import Key
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

NAME = "commands.lock"
INTERVAL = 0.01  # seconds between two tries


@contextmanager
def turn(state_dir: str, key: Key, limit: float) -> Iterator[None]:
    """Be the only one who works on `key`. Raises ProtocolError 108 if another call does so for `limit` seconds, 102."""
    path = os.path.join(state_dir, NAME)
    handle = _open(path)
    try:
        byte = crc32("\0".join(key).encode())
        deadline = time.monotonic() + limit
        while True:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ProtocolError(
                        errors.TIME, f"request {key.request_id}: another call has been working on it for {limit:g} s"
                    ) from None
                time.sleep(INTERVAL)
            except OSError as error:
                raise ProtocolError(errors.STORE, f"{path}: can't be locked ({error.strerror})") from None
        yield
    finally:
        os.close(handle)


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            from ansible_collections.fleet.cdi.plugins.module_utils import files

            files.make_directory(os.path.dirname(path))
            return os.open(path, flags, 0o600)
    except (OSError, CdiError) as error:
        raise ProtocolError(errors.STORE, f"{path}: can't be opened ({error})") from None
