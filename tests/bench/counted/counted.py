# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's local connection, which notes in the file $COUNTED what it is given and what that costs.

A line is "SORT NUMBER". There is one for each call, with its bytes. For each command there is one more, of sort `host`,
with the microseconds of processor time that its processes took.
"""

from __future__ import annotations

import os
import resource
from typing import Any, Optional

from ansible.plugins.connection.local import DOCUMENTATION as LOCAL
from ansible.plugins.connection.local import Connection as LocalConnection

DOCUMENTATION = LOCAL.replace("name: local", "name: counted")


def note(sort: str, number: int) -> None:
    """Append a line, which the processes of several hosts may do at the same time."""
    handle = os.open(os.environ["COUNTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{sort} {number}\n".encode())
    os.close(handle)


def note_command(command: str, data: Optional[bytes]) -> None:
    """Note a command. A module comes as Python on its standard input; our launcher gets JSON there."""
    module = bool(data) and not (data or b"").startswith(b"{")
    note("module" if module else "command", len(command) + len(data or b""))


class Connection(LocalConnection):
    """A connection plugin finds its way by this name."""

    transport = "counted"

    def exec_command(self, cmd: str, in_data: Optional[bytes] = None, sudoable: bool = True) -> Any:
        """Run a command."""
        note_command(cmd, in_data)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            return super().exec_command(cmd, in_data, sudoable)
        finally:
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            note("host", int(1e6 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)))

    def put_file(self, in_path: str, out_path: str) -> None:
        """Send a file."""
        note("file", os.path.getsize(in_path))
        super().put_file(in_path, out_path)
