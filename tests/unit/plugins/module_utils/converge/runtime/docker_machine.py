# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A docker for the tests of module container_runtime: its file is real, its daemon and systemctl only remember."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import container_runtime, daemon_restart
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers, running, survey
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import InstalledRuntime, Source, WantedCdi
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.verify import Said

ON = WantedCdi(True)
THEIRS = b'{\n  "debug": true\n}\n'
OURS = b'{\n  "features": {"cdi": true},\n  "debug": true\n}\n'


class Machine:
    """A docker whose daemon takes what is in its file whenever it is restarted, and a systemd that runs it."""

    def __init__(self, root):
        self.config, self.state = str(root / "etc/daemon.json"), str(root / "state")
        (root / "etc").mkdir()
        self.place = InstalledRuntime(
            "docker", "system", "26.1.5", (26, 1, 5), "0.7.0", "dockerd", self.config, ("docker.service",)
        )
        self.runs, self.containers, self.told, self.refuses, self.unit = None, 0, [], (), "active"
        self.users, self.trouble = [], []  # containers with CDI devices
        self.by = daemon_restart.Restarter(
            self.run,
            self.show,
            self.ask,
            lambda _seconds: None,
            lambda: self.containers,
            lambda _engine: containers.RunningContainers(tuple(self.users), tuple(self.trouble)),
        )

    def write(self, content):
        with open(self.config, "wb") as file:
            file.write(content)

    @property
    def content(self):
        live = files.read(self.config)
        return live.content if live else None

    def run(self, command):
        self.told.append(" ".join(command[:3]))
        if any(word in self.refuses for word in command):
            self.refuses = tuple(word for word in self.refuses if word not in command)  # once
            return Said(1, "", "no such option")
        if command[:2] == ["systemctl", "restart"]:
            self.start()
        return Said(0, "the daemon's last words" if command[0] == "journalctl" else "", "")

    def start(self):
        reading = survey.CONFIGURATIONS["docker"].read(self.place, Source())
        self.runs = running.RunningDaemon(
            reading.enabled, reading.spec_dirs if reading.enabled else (), self.containers
        )

    def show(self, _unit):
        return f"ActiveState={self.unit}\nKillMode=control-group\nExecStart=x\n"

    def ask(self, _place):
        return running.Asked(self.runs and self.runs._replace(would_die=self.containers), "", self.runs is not None)

    def converge(self, wanted=ON, **options):
        return container_runtime.converge_runtime(self.place, wanted, self.state, by=self.by, **options)
