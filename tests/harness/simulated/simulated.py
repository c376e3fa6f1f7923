# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's local connection, to a host of a simulated fleet (simulated_host.py).

Files in the directory of a host break its connection:

- `refused` refuses it, with the text in the file.
- `lost` kills the first command after as many seconds as the file says; then the host refuses connections.
- `half` lets half of each answer come.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import DOCUMENTATION as LOCAL
from ansible.plugins.connection.local import Connection as LocalConnection

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import simulated_host

DIRECTORY = """options:
        directory:
            description: The directory of the host.
            vars:
                - name: simulated_directory
"""
DOCUMENTATION = LOCAL.replace("name: local", "name: simulated").replace("options:\n", DIRECTORY, 1)
REFUSED, LOST, HALF = "refused", "lost", "half"


class Connection(LocalConnection):
    """A connection plugin finds its way by this name."""

    transport = "simulated"
    entered = False  # Ansible has a process for each host and task

    def exec_command(self, cmd: str, in_data: Optional[bytes] = None, sudoable: bool = True) -> Any:
        """Run a command on the host."""
        self._enter()
        seconds = self._fault(LOST)
        if seconds is not None:
            super().exec_command(f"timeout -s KILL {seconds} /bin/sh -c {shlex.quote(cmd)}", in_data, sudoable)
            self._file(REFUSED).write_text("Connection refused")
            raise AnsibleConnectionFailure("Connection closed by remote host")
        status, out, err = super().exec_command(cmd, in_data, sudoable)
        return status, out[: len(out) // 2] if self._fault(HALF) is not None else out, err

    def put_file(self, in_path: str, out_path: str) -> None:
        """Send a file to the host."""
        self._enter()
        super().put_file(in_path, out_path)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Get a file of the host."""
        self._enter()
        super().fetch_file(in_path, out_path)

    def _enter(self) -> None:
        refused = self._fault(REFUSED)
        if refused is not None:
            raise AnsibleConnectionFailure(refused)
        if not Connection.entered:
            simulated_host.enter(self.get_option("directory"))
            os.chdir("/")
            Connection.entered = True

    def _fault(self, name: str) -> Optional[str]:
        """Return the content of the file of a fault; None if the host does not have the fault."""
        file = self._file(name)
        return file.read_text().strip() if file.exists() else None

    def _file(self, name: str) -> Path:
        return Path(self.get_option("directory"), name)
