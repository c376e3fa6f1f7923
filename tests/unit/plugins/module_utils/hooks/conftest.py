# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hook as containers' runtimes start it, and a machine that must not notice."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.release import launcher

COLLECTIONS = Path(launcher.__file__).parents[5]  # ansible_collections


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """cdi-hook, as a release has it."""
    release = tmp_path_factory.mktemp("release")
    (release / "bin").mkdir()
    (release / "ansible_collections").symlink_to(COLLECTIONS)
    path = release / "bin/cdi-hook"
    path.write_text(launcher.texts(sys.executable, {})[launcher.CDI_HOOK])
    path.chmod(0o755)
    return path


def tree(root):
    """Everything below a directory: path -> mode and content or target."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        held = os.readlink(path) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[str(path.relative_to(root))] = (oct(status.st_mode), held)
    return found


class Bundle:
    """A container's bundle, and what lies beside it on the host."""

    def __init__(self, directory, program):
        self.directory = directory / "bundle"
        self.root = self.directory / "root"
        self.outside = directory / "outside"
        self.program = program
        self.command = [str(program)]
        self.root.mkdir(parents=True)
        (self.outside / "folder").mkdir(parents=True)
        (self.outside / "secret").write_text("of the host")
        (self.outside / "secret").chmod(0o600)
        (self.directory / "config.json").write_text(json.dumps({"root": {"path": "root"}}))

    def fill(self, files):
        for name, what in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(what, str):
                path.write_text(what)
            elif "link" in what:
                path.symlink_to(self.named(what["link"]))
            else:
                path.mkdir(exist_ok=True)
                path.chmod(what["mode"])

    def named(self, text):
        return text.replace("{outside}", str(self.outside)).replace("{bundle}", str(self.directory))

    def place(self, name):
        """Where in the container a path is: one of the host's is taken to be the container's own."""
        return self.root / self.named(name).lstrip("/")

    def run(self, *words, state=None, **more):
        """The hook, as a runtime starts it."""
        usual = {"ociVersion": "1.0.2", "id": "one", "status": "created", "bundle": str(self.directory)}
        given = json.dumps(usual) if state is None else state
        words = [*self.command, *map(self.named, words)]
        return subprocess.run(words, input=given, capture_output=True, text=True, check=False, timeout=60, **more)


@pytest.fixture
def bundle(tmp_path, program):
    return Bundle(tmp_path, program)
