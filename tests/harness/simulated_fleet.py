# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of simulated hosts, and the playbooks of the collection run on it by the real ansible-playbook."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import simulated_host

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
COLLECTIONS = CHECKOUT / "build/pythonpath"
PYTHON = "/usr/bin/python3"
FORKS = "4"

# The variables of all hosts. A real host has more that is its own.
VARIABLES = {
    "ansible_connection": "simulated",
    "ansible_become": False,
    "ansible_pipelining": True,
    "ansible_python_interpreter": PYTHON,
    "cdi_host_install_packages": False,
    "cdi_host_refresh": False,
}


class Done(NamedTuple):
    """A run of a playbook."""

    status: int
    said: str
    seconds: float
    cpu: float  # seconds of processor time, of controller and hosts together


class Fleet:
    """Hosts by name, in a directory."""

    shown_by = "fleet.cdi.progress"  # the callback

    def __init__(self, directory: Path, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        self.directory = directory
        self.hosts = {name: dict(variables) for name, variables in hosts.items()}
        for name in hosts:
            simulated_host.make(self.place(name))

    def place(self, host: str) -> Path:
        """Return the directory of a host."""
        return self.directory / "hosts" / host

    def on(self, host: str, script: str) -> str:
        """Run a shell script on a host, and return what it says. Raises CalledProcessError with its output."""
        command = [PYTHON, str(HERE / "simulated_host.py"), str(self.place(host)), "/bin/sh", "-ec", script]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{host}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def play(self, name: str, *options: str, collections: Path = COLLECTIONS) -> Done:
        """Run a playbook of a collection, or at a path, on all hosts."""
        process = self.start(name, *options, collections=collections)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        said, _none = process.communicate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Done(process.returncode, said, time.monotonic() - start, cpu)

    def start(self, name: str, *options: str, collections: Path = COLLECTIONS) -> subprocess.Popen[str]:
        """Start a playbook."""
        (self.directory / "hosts.json").write_text(json.dumps(self._inventory()))
        return subprocess.Popen(
            [str(PLAYBOOK), "-i", "hosts.json", name, "--forks", FORKS, *options],
            cwd=self.directory,
            env={**self._environment(), "ANSIBLE_COLLECTIONS_PATH": str(collections)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def plant(self, host: str, fault: Mapping[str, Any]) -> None:
        """Plant a fault on a host: a row of simulated_faults.yml or simulated_drifts.yml."""
        if "plant" in fault:
            self.on(host, fault["plant"])
        if "always" in fault:
            (self.place(host) / simulated_host.ALWAYS).write_text(f"{fault['always']}\n")
        for name, content in fault.get("connection", {}).items():
            (self.place(host) / name).write_text(content.replace("HOST", host))

    def share_release(self, first: str, without: Iterable[str] = (), copied: Iterable[str] = ()) -> None:
        """Provision one host, and let the others use the files of its release, but those in `without`.

        Those that are `copied` have files of their own, which can be changed.
        """
        done = self.play("fleet.cdi.provision", "--limit", first)
        assert done.status == 0, done.said
        release = self.place(first) / "opt/cdi"
        for name in self.hosts.keys() - {first, *without, *copied}:
            (self.place(name) / simulated_host.SHARED_RELEASE).symlink_to(release)
        for name in {*copied} - {first, *without}:
            shutil.copytree(release, self.place(name) / "opt/cdi", symlinks=True, dirs_exist_ok=True)

    def limit(self, hosts: Iterable[str]) -> tuple[str, str]:
        """Return the options that make a playbook take these hosts alone."""
        file = self.directory / "limit"
        file.write_text("".join(f"{host}\n" for host in hosts))
        return "--limit", f"@{file}"

    def read(self, name: str) -> dict[str, Any]:
        """Return a file of JSON that a playbook wrote."""
        return dict(json.loads((self.directory / name).read_text()))

    def _inventory(self) -> dict[str, Any]:
        found: dict[str, Any] = {"all": {"vars": VARIABLES, "hosts": {}}}
        for name, variables in self.hosts.items():
            found["all"]["hosts"][name] = {"simulated_directory": str(self.place(name)), **variables}
        return found

    def _environment(self) -> dict[str, str]:
        temporary = self.directory / "local"
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(CHECKOUT / "tests/harness/ansible.cfg"),
            "ANSIBLE_CONNECTION_PLUGINS": str(HERE / "simulated"),
            "ANSIBLE_HOME": str(temporary),
            "ANSIBLE_LOCAL_TEMP": str(temporary),
            "ANSIBLE_REMOTE_TEMP": str(temporary / "remote"),
            "ANSIBLE_STDOUT_CALLBACK": self.shown_by,
            "ANSIBLE_NOCOLOR": "1",
        }


def has_module(name: str) -> bool:
    """Return whether the Python of the hosts has a module."""
    return subprocess.run([PYTHON, "-c", f"import {name}"], check=False, capture_output=True).returncode == 0


def causes(report: Mapping[str, Any]) -> list[tuple[str, str, str, list[str]]]:
    """Return (rule, problem, next step, names of the hosts) for each cause of a report."""
    names = [report["strings"][place] for place in report["hosts"]["name"]]
    return [
        (one["rule"], one["problem"], one["next"], [names[place] for place in one["hosts"]]) for one in report["causes"]
    ]


def failures(said: str) -> list[tuple[str, str, list[str]]]:
    """Return (text, task, names of the hosts) for each cause at the end of a run; a cause of all hosts names none."""
    found = re.findall(r"^(?:[\d,]+|all) hosts?: (.*)\n  task: (.*)$(?:\n  --limit (\S+))?", said, re.MULTILINE)
    return [(text, task, limit.split(",") if limit else []) for text, task, limit in found]


def shown(found: Iterable[tuple[Any, ...]]) -> str:
    """Return causes as lines, for the message of a test that failed."""
    return "\n".join(" | ".join(map(str, one)) for one in found)
