# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller of a virtual machine: the collection as users build and install it, an inventory, the playbooks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mirror  # tests/harness
import yaml
from machine import Machine, Silent

CHECKOUT = Path(__file__).resolve().parents[2]
COLLECTIONS = CHECKOUT / "build/machines/collections"
SETTINGS = Path(__file__).with_name("settings.yml")
RECAP = re.compile(r"^machine +: .*$", re.MULTILINE)


def install() -> None:
    """Build the collection of this checkout and install it into COLLECTIONS. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-") as directory:
        copy = Path(directory, "copy")
        mirror.mirror(CHECKOUT, copy)
        galaxy = [_program("ansible-galaxy"), "collection"]
        _run([*galaxy, "build", "--output-path", directory, str(copy)])
        shutil.rmtree(COLLECTIONS, ignore_errors=True)
        archives = [str(path) for path in Path(directory).glob("fleet-cdi-*.tar.gz")]
        _run([*galaxy, "install", "--force", "--no-deps", "--offline", "-p", str(COLLECTIONS), *archives])


class Controller:
    """Ansible for one machine, with settings of its own. `install` comes first."""

    def __init__(self, machine: Machine, settings: Path = SETTINGS, collections: Path = COLLECTIONS) -> None:
        self.directory = machine.directory
        self.collections = collections
        self.inventory = self.directory / "inventory.yml"
        self.settings: dict[str, Any] = yaml.safe_load(settings.read_text(encoding="utf-8"))
        known = {"all": {"hosts": {"machine": machine.variables}, "vars": self.settings}}
        self.inventory.write_text(yaml.safe_dump(known), encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the user's Ansible. Connections are those of the machine's ssh_config."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        return {
            **kept,
            "ANSIBLE_CONFIG": str(CHECKOUT / "tests/harness/ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_HOME": str(self.directory / "ansible"),
            "ANSIBLE_SSH_ARGS": "",
            "ANSIBLE_NOCOLOR": "1",
        }

    def start(self, playbook: str, *options: str, **more: Any) -> subprocess.Popen[str]:
        """Start a playbook of the collection."""
        command = [_program("ansible-playbook"), "-i", str(self.inventory), f"fleet.cdi.{playbook}", *options]
        return subprocess.Popen(command, env=self.environment, text=True, stdin=subprocess.DEVNULL, **more)

    def play(self, playbook: str, *options: str) -> dict[str, int]:
        """Run a playbook of the collection; return its recap: ok, changed, failed, ... Raises OSError if it fails.

        Raises Silent, which is an OSError, if the machine does not answer.
        """
        process = self.start(playbook, *options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _none = process.communicate()
        recap = RECAP.search(said)
        if process.returncode or recap is None:
            error = Silent if "unreachable=1" in said else OSError
            raise error(f"{playbook}: status {process.returncode}: {said[-6000:]}")
        return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", recap.group())}

    def module(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Run a module of the collection; return its result. Raises OSError if it fails."""
        command = [_program("ansible"), "-i", str(self.inventory), "machine", "-m", f"fleet.cdi.{name}"]
        said = _run([*command, "-a", json.dumps(arguments)], self.environment)
        found: dict[str, Any] = json.JSONDecoder().raw_decode(said.partition(" => ")[2])[0]
        return found


def _program(name: str) -> str:
    """A program of the environment that runs this one."""
    return str(Path(sys.executable).with_name(name))


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it printed. Raises OSError."""
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{Path(command[0]).name} {command[1]}: {done.stdout}{done.stderr}")
    return done.stdout
