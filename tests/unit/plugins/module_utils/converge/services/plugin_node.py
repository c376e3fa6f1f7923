# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose systemd, processes and clock are the test's, for the tests of module device_plugin_service."""

from __future__ import annotations

import os

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_service as service
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit as unit_file
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.openers_unit import PROCESSES, SOCKET

UNIT = unit_file.PluginUnit()
OLD, NEW = "0.1.0-000000000000", "0.1.0-111111111111"


class Node:
    """systemd, the instances that it runs, and time, which passes while somebody waits."""

    def __init__(self, state_dir):
        self.state_dir, self.release, self.booted = state_dir, OLD, True
        self.enabled, self.processes, self.told, self.now = set(), {}, [], 0.0
        self.configs = {}  # the configurations with which instances were started
        self.socket, self.told_of_socket = set(), []  # what it is of enabled and active
        self.kubelet_takes = 1.0  # seconds until the kubelet watches what a new instance offers; None: it never does
        self.offers = {"vendor.com/gpu": {}, "vendor.com/nic": {}}
        self.error = None
        self.outdated = False  # systemd has read another unit than there is now
        self.stubborn = False  # its processes don't stop

    def install(self, unit=UNIT, check=False, wait=60):
        host = service.ServiceHost(
            self.run, lambda: self.booted, self.statuses, self.environment, lambda: self.now, self.sleep
        )
        return service.install(unit, self.release, self.state_dir, wait, check, host)

    def uninstall(self, kubelet_dir, check=False):
        host = service.ServiceHost(self.run, lambda: self.booted, self.statuses, self.environment)
        return service.uninstall(self.state_dir, kubelet_dir, check, host)

    def run(self, command):
        offline = command[:2] == ["env", "SYSTEMD_OFFLINE=1"]
        program, *words = command[2:] if offline else command
        assert offline == (words[0] in ("enable", "disable")), "systemd would read all units anew"
        if words[0] != "show" and SOCKET in words[1:2]:
            return self.run_socket(words)
        words = [word for word in words if word != SOCKET]
        names = [word.partition("@")[2].partition(".")[0] for word in words[1:] if not word.startswith("-")]
        if words[0] == "is-enabled":
            return 0, "".join("enabled\n" if one in self.enabled else "disabled\n" for one in names)
        if words[0] == "is-active":
            return 0, "".join("active\n" if one in self.processes else "inactive\n" for one in names)
        if words[0] == "show" and "NeedDaemonReload" in words[1]:
            outdated = "yes" if self.outdated else "no"
            return 0, "\n".join(f"Id={name}\nNeedDaemonReload={outdated}\n" for name in names)
        if words[0] == "show":
            return 0, f"{1000 + ord(names[0])}\n" if names[0] in self.processes else "0\n"
        if program == "journalctl":
            return 0, "level=error msg=broken\n"
        if words[0] == "stop" and self.stubborn:
            return 1, "Job timed out.\n"
        self.told.append(" ".join(words).replace("fleet-cdi-device-plugin@", "").replace(".service", ""))
        if words[0] in ("start", "restart"):
            self.now += 10
            with open(unit_file.path(), "rb") as file:
                text = file.read()
            mark = unit_file.unit_mark(text)
            self.configs[names[0]] = text.partition(b' --config "')[2].partition(b'"')[0].decode()
            self.processes[names[0]] = (mark, self.release, self.now, dict(self.offers))
        self.enabled |= set(names) if words[0] == "enable" else set()
        self.enabled -= set(names) if words[0] == "disable" else set()
        for name in names if words[0] == "stop" else ():
            self.processes.pop(name, None)
        return 0, ""

    def run_socket(self, words):
        if words[0] in ("is-enabled", "is-active"):
            good, bad = {"is-enabled": ("enabled", "disabled"), "is-active": ("active", "inactive")}[words[0]]
            return 0, f"{good if good in self.socket else bad}\n"
        assert words[2:] == ([PROCESSES] if words[0] == "stop" else []), words
        assert os.path.exists(unit_file.paths()[-1]) or words[0] in ("stop", "disable"), words
        self.told_of_socket.append(words[0])
        self.socket |= {"enable": {"enabled"}, "restart": {"active"}}.get(words[0], set())
        self.socket -= {"disable": {"enabled"}, "stop": {"active"}}.get(words[0], set())
        return 0, ""

    def statuses(self):
        watched = min((start for _mark, _release, start, _offers in self.processes.values()), default=0)

        def streams(start):
            return start == watched or (self.kubelet_takes is not None and self.now - start >= self.kubelet_takes)

        def ready(start):
            return self.now - start >= 0.4 or start == watched

        return {
            name: {
                "instance": name,
                "release": release,
                "ready": ready(start),
                "config": {"path": self.configs.get(name), "error": self.error if start != watched else None},
                "resources": {one: {"stream": streams(start)} for one in offers if ready(start)},
            }
            for name, (_mark, release, start, offers) in sorted(self.processes.items(), key=lambda item: item[1][2])
        }

    def environment(self, process):
        mark = self.processes[chr(process - 1000)][0]
        return f"PATH=/bin\0{unit_file.MARK}={mark}\0".encode()

    def sleep(self, seconds):
        self.now += seconds

    @property
    def runs(self):
        return {name: release for name, (_mark, release, _start, _offers) in self.processes.items()}
