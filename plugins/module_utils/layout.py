# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things are on a host. Modules repeat these defaults, because ansible-doc reads them there; a test compares."""

from __future__ import annotations

from typing import NamedTuple

SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")  # CDI SPEC.md: what each runtime reads by default; lowest priority first
RUN = "/run"


class Layout(NamedTuple):
    """The directories and files of one host."""

    state_dir: str = "/var/lib/cdi"
    inventory: str = f"{RUN}/cdi-inventory.json"  # beside it are the pools; "": none is written
    config_dir: str = SPEC_DIRS[0]  # of the executables' configurations; those that the manifest has may be elsewhere
    root: str = "/"  # of the host whose devices are discovered
    prefix: str = "/opt/cdi"  # of the release
    spec_dirs: tuple[str, ...] = SPEC_DIRS  # lowest priority first; our specs are in the first
    run_dir: str = f"{RUN}/cdi-device-plugin"
    path: str = ""  # the variable PATH, by which runtimes are found besides their usual directories

    @property
    def spec_dir(self) -> str:
        """Where our specs are."""
        return self.spec_dirs[0]


USUAL = Layout()
