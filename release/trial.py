# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try the collection's archive where nothing else of this repository is: a new environment of Python, and other paths.

trial.py ARCHIVE COMMIT     COMMIT: the git commit that the installed release has to name

It installs the archive, has ansible-galaxy compare the files, runs fleet.cdi.provision in check mode, and then the demo
from the installed collection: provision, a container with its device if podman is there, the proof of the commit, and
the undo. procedure.py runs it as root in a mount namespace in which the places of specs and releases are empty, so the
machine stays as it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PACKAGES = ("ansible-core>=2.17", "jsonschema", "pyudev")
KEPT = ("PATH", "LANG", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "http_proxy", "https_proxy", "no_proxy")
PROVISION = "fleet.cdi.provision"


class Failed(Exception):
    """A step of the trial did not do what it should."""


class Environment:
    """A place with a Python of its own and the collection, and no other configuration."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.programs = place / "venv/bin"
        self.collection = place / "collections/ansible_collections/fleet/cdi"
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {"HOME": str(place), "ANSIBLE_HOME": str(place / "ansible"), "LC_ALL": "C.UTF-8"}
        self.variables = {**kept, **own, "ANSIBLE_COLLECTIONS_PATH": str(place / "collections")}

    def run(self, title: str, *words: str | Path) -> str:
        """Run a command, and return what it prints. Raises Failed with its output."""
        print(f"  {title}", flush=True)
        command = [str(word) for word in words]
        done = subprocess.run(
            command,
            check=False,
            env=self.variables,
            cwd=self.place,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise Failed(f"{title}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def prepare(self, archive: Path) -> None:
        """Install ansible-core and the archive."""
        venv.create(self.place / "venv", with_pip=True)
        pip: list[str | Path] = [self.programs / "pip", "install", "--quiet", "--disable-pip-version-check"]
        self.run("install ansible-core into a new environment", *pip, *PACKAGES)
        galaxy: list[str | Path] = [self.programs / "ansible-galaxy", "collection"]
        self.run("install the archive", *galaxy, "install", "--offline", "--no-deps", archive)
        self.run("compare the installed files with their list", *galaxy, "verify", "--offline", "fleet.cdi")


def provision_in_check_mode(environment: Environment) -> None:
    """Run the playbook on this machine without changing anything. Raises Failed."""
    state = environment.place / "host"
    chosen = {"demo_dir": str(state), "cdi_host_spec_dir": str(state / "cdi")}
    inventory = environment.collection / "examples/demo/inventory.yml"
    playbook: list[str | Path] = [environment.programs / "ansible-playbook", "-i", inventory, "-e", json.dumps(chosen)]
    said = environment.run(f"run {PROVISION} in check mode", *playbook, "--check", PROVISION)
    if "failed=0" not in said or (state / "opt").exists() or (state / "cdi").exists():
        raise Failed(f"{PROVISION}, in check mode: changed something\n{said}")


def demo(environment: Environment, archive: Path, commit: str) -> None:
    """Run the demo of the installed collection, prove the commit of what it installed, and undo it. Raises Failed."""
    root = os.geteuid() == 0
    run = environment.collection / "examples/demo/run.py"
    place = Path("/var/lib/fleet-cdi/demo") if root else environment.collection / "build/demo"
    try:
        said = environment.run("run the demo from the installed collection", sys.executable, run, archive)
        print(
            "".join(f"    {line}\n" for line in said.splitlines() if line.startswith(("==", "Exactly", "Not run"))),
            end="",
        )
        proof = environment.run("prove its commit", place / "opt/cdi/bin/fleet-cdi", "version", "--verify", "--json")
    finally:
        undone = environment.run("undo the demo", sys.executable, run, "undo")
    if "Nothing of the demo is left" not in undone or place.exists():
        raise Failed(f"the undo of the demo left something:\n{undone}")
    found = json.loads(proof)
    if not found["verified"] or found["commit"] != commit:
        raise Failed(f"the installed release names commit {found['commit']!r}; expected {commit!r}")


def main(archive: Path, commit: str) -> int:
    """Try the archive; 1 if something fails."""
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-trial-") as place:
        os.chmod(place, 0o755)
        environment = Environment(Path(place))
        try:
            environment.prepare(archive)
            provision_in_check_mode(environment)
            demo(environment, archive, commit)
        except Failed as problem:
            print(f"FAILED: {problem}")
            return 1
    print(f"  {archive.name} works where nothing else of this repository is, and names commit {commit}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    os.umask(0o022)
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2]))
