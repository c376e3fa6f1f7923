# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration on stdin. Private API of fleet.cdi."""

from __future__ import annotations

import os
import select
import time

from ..protocol import errors, messages
from ..protocol.errors import ProtocolError

PATIENCE = 10.0  # seconds to wait for all of it


def read() -> bytes:
    """What is on stdin, up to one byte more than a configuration may have. Raises ProtocolError 107, 108."""
    content = b""
    deadline = time.monotonic() + PATIENCE
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while len(content) <= messages.LARGEST:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise ProtocolError(
                errors.TIME, f"stdin: no end of the config within {PATIENCE:g} s; expected a file there"
            )
        try:
            chunk = os.read(0, 65536)
        except OSError as error:
            raise ProtocolError(errors.CONTENT, f"stdin: can't be read ({error.strerror}); expected a config") from None
        if not chunk:
            break
        content += chunk
    return content
