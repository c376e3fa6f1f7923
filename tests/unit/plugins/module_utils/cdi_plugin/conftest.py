# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with rendered devices, configurations, their pools as refresh makes them, and the real executables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import commands
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.pools import discover_pools
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.release import launcher
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, gpus
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

COLLECTION = Path(records.__file__).parents[5]  # the directory of `ansible_collections`


def config(plugin="drm", type_="gpu", version="0.0.1", **args):
    """A configuration as the proposal has it."""
    return {"cdiVersion": version, "name": "of a test", "type": type_, "plugin": plugin, "args": args}


class Host:
    """A host with devices, configurations and the launchers that a release gives it."""

    def __init__(self, directory: Path, tree: dict) -> None:
        self.directory = directory
        self.root = render(tree, directory / "root")
        self.inventory = str(directory / "run/cdi-inventory.json")
        self.state = directory / "state"
        (directory / "run/cdi-inventory.d").mkdir(parents=True)
        self.host = Layout(
            str(self.state),
            self.inventory,
            root=self.root,
            prefix=str(directory / "opt"),
            spec_dirs=(str(directory / "cdi"),),
        )

    def configure(self, *configs):
        """Put configurations into their folders, and refresh; returns the last."""
        for number, one in enumerate(configs):
            folder = self.directory / f"etc/{one['type']}.d"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{one['plugin']}{number}.conf").write_text(json.dumps(one))
        self.refresh()
        return configs[-1]

    def refresh(self):
        boot = Path(self.root + BOOT).read_text().strip()
        pools = discover_pools([str(self.directory / "etc")], self.inventory, boot, snapshot.take(self.root), None, {})
        assert not pools.failed, pools.failed
        for path, content in pools.documents.items():
            Path(path).write_bytes(content)

    def install(self, python="/usr/bin/python3"):
        """The launchers, beside the checkout's own code instead of a release's copy of it."""
        release = self.directory / "opt/lib/release"
        (release / "bin").mkdir(parents=True)
        (release / "ansible_collections").symlink_to(COLLECTION / "ansible_collections")
        (self.directory / "opt/bin").symlink_to("lib/release/bin")
        for name, text in launcher.texts(python, self.host._asdict()).items():
            path = release / "bin" / name
            path.write_text(text)
            path.chmod(0o755)

    def run(self, plugin, variables, stdin, **options):
        """Call the executable: (exit status, reply or None, stderr)."""
        content = stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode()
        command = [str(self.directory / "opt/bin" / plugin)]
        done = subprocess.run(command, input=content, env=variables, capture_output=True, check=False, **options)
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr.decode()

    def ask(self, command, conf, request="", request_id="", plugin=None, **variables):
        """The same in this process: (exit status, reply or None)."""
        given = {"CDI_VERSION": conf["cdiVersion"], "CDI_COMMAND": command, "CDI_REQUEST": request}
        given = {**given, "CDI_REQUEST_ID": request_id, **variables}
        content = json.dumps(conf).encode()
        status, reply, _undo = commands.answer(plugin or conf["plugin"], given, self.host, lambda: content)
        return status, json.loads(reply) if reply else None

    def add(self, conf, request, request_id, **variables):
        """The device nodes that an ADD is granted."""
        status, reply = self.ask("ADD", conf, request, request_id, **variables)
        assert status == 0, reply
        return reply["devices"]

    def refused(self, conf, request, request_id, **variables):
        """The error that an ADD gets."""
        status, reply = self.ask("ADD", conf, request, request_id, **variables)
        assert status == 1, reply
        assert reply["error"] == reply["code"]
        assert reply["message"] == reply["msg"]
        return reply["code"], reply.get("details", "")


@pytest.fixture(scope="session")
def hosts(tmp_path_factory):
    """Makes a host of a tree."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    return lambda tree: Host(tmp_path_factory.mktemp("host"), tree)


@pytest.fixture(scope="session")
def python():
    """The interpreter that hosts have."""
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


@pytest.fixture
def two(hosts):
    """A host with GPUs of 4 and 8 GiB and a configuration for them: (host, configuration)."""
    machine = hosts(gpus((4096, 8192)))
    return machine, machine.configure(config())
