# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make matrix`: every ansible-core from the floor to the newest, and every Python of hosts (tests/matrix.yml).

matrix.py [cores|hosts|CORE|SUITE ...] [provision|units|sanity]     all rows, or these; all of a core, or this

A row of `cores` builds and installs the collection as users do, provisions the root directory of its suite (check, run,
repeat, remove; nothing may be left), and runs the units of what Ansible loads and all of sanity. A row of `hosts` runs
the units of what runs on hosts.
docs/tested.yml gets what they gave. A row that can't run says why, is not a failure, and keeps what stands there.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Optional

import debian_root
import floor
import footprint
import host_pythons
import mirror
import report
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
TABLE = yaml.safe_load((CHECKOUT / "tests/matrix.yml").read_text(encoding="utf-8"))
TESTED = CHECKOUT / "docs/tested.yml"
PACKAGES = ["python3", "python3-venv", "git", "make", "ca-certificates", "shellcheck"]
ALSO = ("jsonschema", "PyYAML")  # what the collection and the harness import on a controller
UNITS = CHECKOUT / "tests/requirements-floor.txt"  # what the units need besides an ansible-core
RECAP = re.compile(r"^localhost +: ok=(\d+) +changed=(\d+) +unreachable=0 +failed=0 ", re.MULTILINE)
# A sanity test that pip could install nothing for.
UNREACHABLE = re.compile(
    r'^Running sanity test "(\S+)"\nERROR: Could not install packages .*?\(host=\'([^\']+)\'', re.MULTILINE
)

STEPS = ["provision", "units", "sanity"]
Row = dict[str, Any]


class Failed(Exception):
    """A row that did not pass; its text says why, with what was printed."""


class Missing(Exception):
    """A row that can't run here; its text says why."""


class Controller:
    """One ansible-core in a root directory, with the collection as a user installs it."""

    def __init__(self, core: str, suite: str, source: str) -> None:
        self.root = debian_root.made(suite, PACKAGES)
        self.home = self.root.home / core
        self.source = source
        self.collections = self.home / "collections"
        self.inventory = self.home / "inventory.json"

    def run(
        self, *words: str, cwd: str = "/root", collections: Optional[Path] = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in the root directory, with the installed collections or with these."""
        variables = {
            **debian_root.network(),
            "PATH": f"{self.home}/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "ANSIBLE_CONFIG": str(CHECKOUT / "tests/harness/ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(collections or self.collections),
            "ANSIBLE_NOCOLOR": "1",
        }
        command = self.root.command(words, (*debian_root.NETWORK, str(CHECKOUT)), variables, cwd)
        return subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def do(self, *words: str, **options: Any) -> str:
        """Run a command that has to work, as `run` does; return what it printed. Raises Failed."""
        done = self.run(*words, **options)
        if done.returncode:
            raise Failed(f"{' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def install(self) -> dict[str, str]:
        """Make the environment and install the collection; return the versions. Raises Missing and Failed."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        self.do("python3", "-m", "venv", str(self.home / "venv"))
        got = self.run("pip", "install", "--quiet", "--disable-pip-version-check", self.source, *ALSO)
        if got.returncode:
            raise Missing(f"pip install {self.source}: {(got.stderr.strip().splitlines() or ['?'])[-1]}")
        copy = self.home / "copy"
        mirror.mirror(CHECKOUT, copy)
        self.do("ansible-galaxy", "collection", "build", "--output-path", str(self.home), str(copy))
        (archive,) = map(str, self.home.glob("fleet-cdi-*.tar.gz"))
        self.do("ansible-galaxy", "collection", "install", "--offline", "-p", str(self.collections), archive)
        asked = "import platform, ansible.release as r; print(r.__version__, platform.python_version())"
        core, python = self.do("python", "-c", asked).split()
        return {"ansible_core": core, "python": python}

    def play(self, playbook: str, *options: str) -> int:
        """Run a playbook of the collection on this root directory; return how many tasks changed it. Raises Failed."""
        said = self.do("ansible-playbook", "-i", str(self.inventory), f"fleet.cdi.{playbook}", *options)
        recap = RECAP.search(said)
        if recap is None or "[DEPRECATION WARNING]" in said or "[ERROR]" in said:
            raise Failed(f"{playbook}: no good end, or something deprecated\n{said}")
        return int(recap[2])

    def provision(self) -> str:
        """Check, run, repeat and remove; return a word for the table. Raises Failed."""
        local = {"ansible_connection": "local", "ansible_become": False}
        python = {"ansible_python_interpreter": "/usr/bin/python3"}
        hosts = {"all": {"hosts": {"localhost": {**local, **python, **TABLE["settings"]}}}}
        self.inventory.write_text(json.dumps(hosts), encoding="utf-8")
        before = footprint.look(str(self.root.path))
        steps = (
            ("provision", ("--check", "--diff"), True, before.__eq__),
            ("provision", (), True, before.__ne__),
            ("provision", (), False, before.__ne__),
            ("remove", (), True, before.__eq__),
        )
        for playbook, options, changes, expected in steps:
            changed = self.play(playbook, *options)
            after = footprint.look(str(self.root.path))
            if bool(changed) != changes or not expected(after):
                seen = "\n".join(footprint.changes(before, after))
                raise Failed(f"{playbook} {' '.join(options)}: {changed} tasks changed the host, and:\n{seen}")
        return "passed"

    def units(self) -> str:
        """Run the units of what Ansible loads, as `make floor` does; return how many passed. Raises Failed."""
        lines = UNITS.read_text(encoding="utf-8").splitlines()
        needed = [line for line in lines if not line.startswith(("#", "ansible-core"))]
        self.do("pip", "install", "--quiet", "--disable-pip-version-check", *needed)
        words = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit", *floor.IGNORED]
        return passed(self.do(*words, cwd=str(CHECKOUT), collections=CHECKOUT / "build/pythonpath"))

    def sanity(self) -> str:
        """Run all of sanity; return how many checks passed. Raises Failed."""
        copy = self.home / "sanity/ansible_collections/fleet/cdi"
        mirror.mirror(CHECKOUT, copy)
        command = ["python", str(CHECKOUT / "tests/harness/sanity.py"), str(copy)]
        done = self.run(*command)
        if lacking := UNREACHABLE.search(done.stdout):
            test, site = lacking.groups()
            print(f"SKIPPED in matrix: sanity test {test} of {self.source} (it needs {site})", flush=True)
            done = self.run(*command, "--skip-test", test)
        if done.returncode:
            raise Failed(done.stdout + done.stderr)
        return f"{report.tests(done.stdout)['passed']} passed{', 1 skipped' if lacking else ''}"


def passed(said: str) -> str:
    """Return how many tests passed, and how many were skipped, from what pytest said."""
    counted = report.tests(said)
    return ", ".join(f"{counted[word]} {word}" for word in ("passed", "skipped") if counted[word])


def core_row(core: str, suite: str, source: str, steps: Collection[str]) -> Row:
    """Provision and check with one ansible-core, or do one of these `steps`. Raises Failed and Missing."""
    series = "ansible-core" if core == "newest" else f"ansible-core~={core}.0"
    controller = Controller(core, suite, source or series)
    row: Row = {"core": core, "debian": suite, **controller.install()}
    can = {"provision": controller.provision, "units": controller.units, "sanity": controller.sanity}
    return {**row, **{step: can[step]() for step in STEPS if step in steps}}


def host_row(suite: str) -> Row:
    """Run the units under the Python of a suite. Raises Failed."""
    root = debian_root.made(suite, host_pythons.PACKAGES)
    asked = "import platform, sqlite3; print(platform.python_version(), sqlite3.sqlite_version)"
    versions = root.command(["python3", "-c", asked], (), {}, "/")
    python, sqlite = subprocess.run(versions, check=True, capture_output=True, text=True).stdout.split()
    done = subprocess.run(host_pythons.command(suite, []), check=False, capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stdout + done.stderr)
    return {"debian": suite, "python": python, "sqlite": sqlite, "units": passed(done.stdout)}


def rows(chosen: list[str]) -> Iterator[tuple[str, str, Callable[[], Row]]]:
    """Section, name and function of each row that is wanted; of all rows where none is named."""
    steps = [word for word in chosen if word in STEPS] or STEPS
    named = set(chosen) - set(STEPS)
    for row in TABLE["cores"]:
        if not named or {"cores", row["core"]} & named:
            run = functools.partial(core_row, row["core"], row["suite"], row.get("from", ""), steps)
            yield "cores", row["core"], run
    for suite in TABLE["hosts"]:
        if (not named and steps == STEPS) or {"hosts", suite} & named:
            yield "hosts", suite, functools.partial(host_row, suite)


def write(found: dict[str, dict[str, Row]]) -> None:
    """Write what is known, in the order of the table."""
    order = {"cores": [row["core"] for row in TABLE["cores"]], "hosts": TABLE["hosts"]}
    known = {}
    for section, names in order.items():
        known[section] = {name: found[section][name] for name in names if name in found[section]}
    licence = "".join(Path(__file__).read_text(encoding="utf-8").splitlines(keepends=True)[:3])
    head = f"{licence}# Made by `make matrix`; docs/generate.py makes the tables of README from it.\n---\n"
    TESTED.write_text(head + yaml.safe_dump(known, sort_keys=False, width=1000), encoding="utf-8")


def passes(found: dict[str, dict[str, Row]], section: str, name: str, run: Callable[[], Row]) -> bool:
    """Run a row, and note in `found` what it gave. Returns False if it failed."""
    print(f"--- {section}: {name}", flush=True)
    try:
        row = {**run(), "date": datetime.date.today().isoformat()}
    except Missing as why:
        print(f"SKIPPED in matrix: {section} {name}: {why}", flush=True)
        return True
    except (Failed, OSError, subprocess.CalledProcessError) as why:
        found[section].pop(name, None)
        print(f"FAILED: {section} {name}: {why}", flush=True)
        return False
    was = found[section].get(name, {})
    # What another step said of the same version stays.
    same = all(was.get(key) == row.get(key) for key in ("ansible_core", "python"))
    found[section][name] = {**(was if same else {}), **row}
    print(json.dumps(row), flush=True)
    return True


def main(chosen: list[str]) -> int:
    """Run the rows; 1 if one failed."""
    if why := debian_root.lacking():
        print(f"SKIPPED in matrix: root directories of Debian ({why})")
        return 0
    found = yaml.safe_load(TESTED.read_text(encoding="utf-8")) if TESTED.exists() else {"cores": {}, "hosts": {}}
    try:
        failed = sum([not passes(found, *row) for row in rows(chosen)])
    finally:
        write(found)  # at the end: units that a later row runs compare README with this file
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
