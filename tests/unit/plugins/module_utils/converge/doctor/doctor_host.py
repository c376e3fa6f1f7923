# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host for the tests of the doctor: its specs, inventory and runtimes."""

from __future__ import annotations

import json
from unittest import mock

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import rule, view
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec_info
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import managed_keys
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Health, Node
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import installations, table
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import CdiReading, InstalledRuntime, Setting
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.running import Asked, RunningDaemon
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import RuntimeState
from ansible_collections.fleet.cdi.tests.unit import builders

KIND = "vendor.com/gpu"


class Host:
    """Spec directories, a manifest and an inventory of a test's own."""

    def __init__(self, root):
        self.root = root
        self.directories = [str(root / "etc"), str(root / "run")]
        for directory in self.directories:
            (root / directory).mkdir()

    def put(self, name, *devices, ours=False, version="0.5.0", kind=KIND, **edits):
        path = str(self.root / name)
        content = json.dumps(builders.spec(dict.fromkeys(devices, edits or {"env": ["A=1"]}), kind, version)).encode()
        if ours:
            with locked_manifest(str(self.root / "state")) as manifest:
                manifest.write(path, content, kind)
        else:
            (self.root / name).write_bytes(content)
        return path

    def list_devices(self, *devices, boot_id=None):
        content = inventory.render(inventory.Inventory(devices), boot_id or inventory.boot_id())
        (self.root / "inventory.json").write_bytes(content)

    def asks_for(self, name, on=True):
        """Our key is in the configuration of the runtime as container_runtime left it, as far as that says so."""
        path = str(self.root / f"{name}.json")
        settings = [Setting(path, ((("features", "cdi"), on),))]
        made = managed_keys.amended(path, None, settings, f"{name}/system", "json", "")
        with locked_manifest(str(self.root / "state")) as manifest:
            manifest.amend(path, made.after, made.record)

    def survey(self):
        return spec_info.survey(self.directories, str(self.root / "state"), str(self.root / "inventory.json"))

    def view(self, *runtimes, warnings=(), **running):
        """What the doctor sees here; there are no runtimes and no systemd but those that a test names."""
        places = Layout(
            str(self.root / "state"),
            str(self.root / "inventory.json"),
            prefix=str(self.root / "cdi"),
            spec_dirs=tuple(self.directories),
        )
        found = installations.Installations(tuple(one.place for one in runtimes), tuple(warnings))
        installed = mock.patch.object(installations, "find_installations", lambda *_arguments: found)
        with installed, mock.patch.object(view, "survey_runtimes", lambda *_arguments: runtimes):
            seen = view.take(places, booted=False)
        return seen._replace(running=seen.running._replace(**running))

    def link_directory(self):
        """Make the first directory a symlink."""
        (self.root / "etc").rename(self.root / "real")
        (self.root / "etc").symlink_to("real")

    def ask_for_devices(self):
        """The settings ask for devices of the kind in the first directory."""
        memory = {"wanted": {"entries": {}}, "inventory": "", "gone": {}, "offered": {"id:x": ["x"]}}
        with locked_manifest(str(self.root / "state")) as manifest:
            manifest.remember({KIND: {**memory, "directory": self.directories[0]}})

    def diagnose(self, *runtimes, **running):
        return rule.find_problems(RULES, self.view(*runtimes, **running))


def device(*names, health="healthy"):
    return Device("id:" + names[0], "rule", KIND, names, (Node("/dev/null", "c", 1, 3),), health=Health(health))


def runtime(name, version, reads, *, enabled=True, running=None, error="", units=()):
    """A runtime that is installed; `running`: whether its daemon runs with CDI, None without a daemon."""
    place = InstalledRuntime(
        name, "system", version, table.numbers(version), reads, f"/usr/bin/{name}", f"/etc/{name}.json", units
    )
    asked = Asked(None) if running is None else Asked(RunningDaemon(running, ("/etc/cdi",)), "", True)
    return RuntimeState(place, None if error else CdiReading(enabled, "default", ("/etc/cdi",)), error, asked)


OLD = runtime("podman", "4.3.1", "0.5.0")
NEW = runtime("docker", "29.2.0", "1.1.0")
ANCIENT = runtime("podman", "3.4.0", "")
OFF = runtime("docker", "26.1.5", "0.6.0", enabled=False)
OFF_TOO = runtime("containerd", "1.7.24", "0.6.0", enabled=False)


def told(findings):
    return [(one.rule, one.subject) for one in findings]
