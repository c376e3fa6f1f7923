# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is tested, on a node: the installed release, devices that can be plugged, and the device plugin's processes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

from ansible_collections.fleet.cdi.plugins.module_utils.layout import kubelet_layout

HERE = Path(__file__).resolve().parent
FLEET_CDI = "/opt/cdi/bin/fleet-cdi"
CONFIGURATION = "/etc/fleet-cdi/device-plugin.json"
ACCEL = "vendor.com/accel"  # the kind of the devices that can be plugged, and their resource
SPEC = "/etc/cdi/vendor.json"
TTY = "fleet.cdi/tty"
RECONCILED = 1.0  # seconds between two looks of the kubelet's at what it has found (pluginmanager's reconciler)
CONSOLE = 4  # major number (Documentation/admin-guide/devices.txt)
CONSOLES = range(56, 64)  # host.yml
ALL = {"accel0", "accel1", "accel2"}  # those that are there when a test begins


class Product:
    """The release on a node. Devices of ACCEL are a foreign spec's, their nodes have a console's number."""

    def __init__(self, node, cluster=None):
        self.node, self.cluster = node, cluster
        self.programs, self.count = [], 0
        for number in CONSOLES:
            self._make(f"tty{number}", number)
        tools = str(Path(sys.executable).parent)
        play = [f"{tools}/ansible-playbook", "--inventory=node,", "--connection=local", HERE / "host.yml"]
        play += ["--extra-vars=ansible_python_interpreter=/usr/bin/python3"]
        home, collections = self.node.directory / "ansible", self.node.directory / "collections"
        for part in ("plugins", "meta"):  # a copy: the release is that of one moment
            target = collections / "ansible_collections/fleet/cdi" / part
            shutil.copytree(HERE.parents[1] / part, target, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(HERE.parents[1] / "galaxy.yml", target.parent)
        self.node.run(*play, ANSIBLE_HOME=str(home), ANSIBLE_COLLECTIONS_PATH=str(collections))
        self.node.run(FLEET_CDI, "refresh")

    # -- devices

    def _make(self, name, minor):
        path = self.node.path(f"/dev/{name}")
        if not path.exists():
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(CONSOLE, minor))
            path.chmod(0o666)

    @staticmethod
    def number(name):
        """Major and minor number of a device's node."""
        return CONSOLE, 40 + int(name.removeprefix("accel"))

    def plug(self, *names):
        """Device nodes come: /dev/<name>."""
        for name in names:
            self._make(name, self.number(name)[1])

    def unplug(self, *names):
        """Their nodes go."""
        for name in names:
            self.node.path(f"/dev/{name}").unlink(missing_ok=True)

    def describe(self, *names):
        """The vendor's spec: these devices. Each has a node, a variable and a mount."""
        self.node.path("/run/vendor").mkdir(exist_ok=True)
        devices = []
        for name in names:
            self.node.path(f"/run/vendor/{name}").write_text(name)
            mount = {"hostPath": f"/run/vendor/{name}", "containerPath": f"/vendor/{name}", "options": ["ro", "bind"]}
            edits = {"deviceNodes": [{"path": f"/dev/{name}"}], "env": [f"VENDOR_{name.upper()}=1"], "mounts": [mount]}
            devices.append({"name": name, "containerEdits": edits})
        self._put(SPEC, {"cdiVersion": "0.5.0", "kind": ACCEL, "devices": devices})

    def withdraw(self):
        """The vendor's spec goes."""
        self.node.path(SPEC).unlink(missing_ok=True)

    def _put(self, path, document):
        target = self.node.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(document))
        os.rename(unfinished, target)

    # -- the device plugin

    def configure(self, resources=(ACCEL,), **settings):
        """Write its configuration. `resources`: names, or name -> settings."""
        named = resources if isinstance(resources, dict) else {name: {} for name in resources}
        self._put(CONFIGURATION, {"version": 1, "resources": named, **settings})

    def start(self, configuration=CONFIGURATION):
        """Start a device plugin."""
        return self.run("plugin", FLEET_CDI, "plugin", "run", "--config", configuration)

    def run(self, name, *command, **environment):
        """Start a program that ends with the test."""
        self.count += 1  # each has a log of its own
        self.programs.append(self.node.start(f"{name}-{self.count}", command, **environment))
        return self.programs[-1]

    def serve(self, wanted, resource=ACCEL):
        """Start one, and wait until the kubelet has what is wanted of it."""
        since = self.cluster.now()
        program = self.start()
        self.cluster.await_allocatable(resource, set(wanted), since, needs=program)
        return program

    def fleet_cdi(self, *words):
        """The document that a verb prints."""
        done = self.node.attempt(FLEET_CDI, *words, "--json")
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    def holds(self):
        """Device -> the keys (resource-type, plugin, request-id) of those who hold it, by the ledger."""
        found = {}
        for grant in self.fleet_cdi("grants", "list")["grants"]:
            key = grant["key"]["resource_type"], grant["key"]["plugin"], grant["key"]["request_id"]
            for part in grant["parts"]:
                for hold in part["holds"]:
                    found.setdefault(hold["device"], set()).add(key)
        return found

    def reset(self):
        """End what a test left: plugins, grants, devices."""
        for program in self.programs:
            program.stop(9)
        self.programs = []
        # The kubelet takes the resource away, by its name, when it sees that they are gone: not in the next test.
        sockets = [*self.node.path(kubelet_layout().registry_dir).glob("*fleet-cdi-*")]
        for socket in sockets:
            socket.unlink()
        if sockets:
            time.sleep(2 * RECONCILED)
        self.withdraw()
        self.unplug(*[path.name for path in self.node.path("/dev").glob("accel*")])
        self.node.run(FLEET_CDI, "plugin", "forget")
        for device, keys in self.holds().items():
            for _type, plugin, request_id in keys:
                if "/" in plugin:  # the device plugin's: what could not be torn down stays withheld
                    self.node.run(FLEET_CDI, "grants", "release", device)
                    continue
                call(self.node, f"/opt/cdi/bin/{plugin}", CDI_COMMAND="DEL", CDI_REQUEST_ID=request_id)
        assert not self.holds()


def call(node, *words, **environment):
    """An executable of the 2017 proposal: exit status and its reply."""
    with open(node.path("/etc/cdi/tty.d/generic-tty.conf"), "rb") as configuration:
        done = subprocess.run(
            [*node.enter, *words],
            stdin=configuration,
            capture_output=True,
            text=True,
            check=False,
            env={**node.environment, "CDI_VERSION": "0.0.2", **environment},
        )
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}


def seen(output):
    """Of what a container printed: of which devices it has something, and of which node, variable and mount."""
    lines = output.splitlines()
    found = [
        {line.split()[-1] for line in lines if line.startswith("c")},
        {line[7:].partition("=")[0].lower() for line in lines if line.startswith("VENDOR_")},
        {line.split()[4].removeprefix("/vendor/") for line in lines if " /vendor/" in line},
    ]
    return {name for name in ALL if any(name in one for one in found)}, {
        name for name in ALL if all(name in one for one in found)
    }
