# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A prefix of its own for each test, small but real releases to install, and this interpreter to run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, host, install, launcher

MODULE_UTILS = Path(records.__file__).parent

# What `fleet-cdi --version`, `cdi-hook --version` and a plugin's VERSION need, so that a test which installs a hundred
# times stays fast.
SMALL = (
    "__init__.py",
    "records.py",
    "safe_text.py",
    "cdi_plugin/__init__.py",
    "light_typing.py",
    "cdi_plugin/main.py",
    "cli/__init__.py",
    "cli/completion.py",
    "cli/main.py",
    "cli/man.py",
    "cli/pages.py",
    "cli/plain_command.py",
    "cli/start.py",
    "layout.py",
    "cli/terminal.py",
    "hooks/__init__.py",
    "hooks/error.py",
    "hooks/container_root.py",
    "hooks/main.py",
    "hooks/request.py",
    "hooks/state.py",
    "protocol/__init__.py",
    "protocol/versions.py",
    "release/__init__.py",
)

PATHS = {"state_dir": "/var/lib/cdi", "inventory": "/run/cdi-inventory.json", "spec_dirs": ["/etc/cdi"]}


def start(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


class Host:
    """One prefix, and releases of several versions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.prefix = str(directory / "opt/cdi")
        self.lib = Path(self.prefix, "lib")
        self.python = host.probe(sys.executable, start)

    def release(self, version="1.0.0", **sources):
        """A release of `version`; `sources` are further modules: name=text."""
        tree = self.directory / f"source-{version}"
        shutil.rmtree(tree, ignore_errors=True)
        for name in SMALL:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(MODULE_UTILS / name, tree / name)
        (tree / "release/version.py").write_text(f'VERSION = "{version}"\n')
        for name, text in sources.items():
            (tree / f"{name}.py").write_text(text)
        return build.build(str(tree))

    def install(self, release, check=False, archive=True, python=None, run=start, edit=dict, on_path=None, **paths):
        """What the module does with state=present; archive=True: it has been transferred; `edit` takes launchers."""
        python = python or self.python
        launchers = edit(launcher.texts(python.path, {**PATHS, **paths, "prefix": self.prefix}))
        packed = build.pack(release) if archive is True else archive or None
        return install.present(self.prefix, release.id, python, launchers, run, packed, check, on_path)

    def options(self, release, state_dir):
        """Options of module host_release, with state=present."""
        return {
            "state": "present",
            "prefix": self.prefix,
            "release": release.id,
            "python": sys.executable,
            "parts": [],
            "supported_only": False,
            "command_link": None,
            "archive": None,
            "state_dir": str(state_dir),
            "device_list": PATHS["inventory"],
            "spec_dirs": PATHS["spec_dirs"],
        }

    def rollback(self, check=False, run=start):
        return install.rollback(self.prefix, run, check)

    def remove(self, check=False):
        return install.remove(self.prefix, check)

    def says(self):
        """What an operator sees: the release that bin/fleet-cdi --version names."""
        done = subprocess.run(
            [f"{self.prefix}/bin/fleet-cdi", "--version"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().rpartition(" ")[2]

    def tree(self):
        """Everything below the directory that holds the prefix: path -> mode and content or link target."""
        found = {}
        for path in sorted((self.directory / "opt").rglob("*") if (self.directory / "opt").exists() else ()):
            status = path.lstat()
            held = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(self.directory))] = (oct(status.st_mode), held)
        return found


@pytest.fixture
def target(tmp_path):
    return Host(tmp_path)


@pytest.fixture
def run():
    """Run one command: (exit status, stdout, stderr), as a module's run_command."""
    return start
