# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A call of an executable: the input and the answer of each command."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from ..discovery.inventory import Inventory
from ..layout import SPEC_DIRS, Layout
from ..protocol import errors, messages
from ..protocol.errors import ProtocolError
from ..protocol.messages import Config
from ..protocol.plugin_args import PluginArgs
from ..protocol.pools import pool_path
from . import devices

PATIENCE = 10.0  # seconds to wait for the whole configuration


class Call(NamedTuple):
    """A call with a valid version, command and configuration."""

    plugin: str
    version: str
    command: str  # in lower case
    variables: Mapping[str, str]
    config: Config
    settings: PluginArgs
    host: Layout
    boot_id: str

    def pool(self) -> Inventory:
        """Return the devices of the configuration. Raises ProtocolError 101."""
        path = pool_path(self.host.inventory, self.config.type, self.plugin, self.config.args)
        return devices.read(path, self.boot_id)


Answer = tuple[int, bytes, Callable[[], None]]  # exit status, stdout, and a function to call if stdout can't be written


def host_of(defaults: Mapping[str, Any]) -> Layout:
    """Return the host from the defaults of the launcher."""
    given = {name: value for name, value in defaults.items() if name in Layout._fields}
    return Layout(**{**given, "spec_dirs": tuple(defaults.get("spec_dirs", SPEC_DIRS))})


def read_config() -> bytes:
    """Return the configuration on stdin, cut soon after messages.LARGEST. Raises ProtocolError 107, 108."""
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
