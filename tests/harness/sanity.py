# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make sanity`: ansible-test sanity with no ignore file, on every Python of the machine that a host may have.

sanity.py COPY [OPTION]...   COPY is the collection at .../ansible_collections/fleet/cdi (tests/harness/mirror.py), an
                             OPTION one of ansible-test
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

# ansible-test fetches pip's bootstrap script from a site that many build machines can't reach, unless it is cached;
# Python has all that it takes.
GET_PIP = """\
import runpy, subprocess, sys
subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
sys.argv = ["pip", "install", *(option for option in sys.argv[1:] if option not in ("--no-setuptools", "--no-wheel"))]
runpy.run_module("pip", run_name="__main__")
"""


# ansible-test's own environments: what pip says about them drowns what the tests say.
PIP_CHATTER = re.compile(
    r"\s+|Collecting |Installing collected|Successfully |Using cached pip|Installing requirements|WARNING: Using locale"
)
# What takes as long as all other tests: it runs on each Python.
HALF = ("import", "compile")
# Of the Pythons that hosts may have (tests/config.yml) and that ansible-test knows.
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def starts(python: str) -> bool:
    """Whether this interpreter runs. Version managers put names on the path that only print advice."""
    return (
        subprocess.run([python, "-c", ""], check=False, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    )


def search_path(environment: dict[str, str]) -> list[str]:
    """PATH without directories whose pythonX.Y don't start, and with all that pyenv holds."""
    installed = sorted(Path(environment.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin"))
    directories = [*environment["PATH"].split(os.pathsep), *map(str, installed)]
    interpreters = {name: [os.path.join(name, f"python{version}") for version in PYTHONS] for name in directories}
    return [name for name in directories if all(starts(path) for path in interpreters[name] if os.path.exists(path))]


def cache_get_pip() -> None:
    """Put the bootstrap script where this ansible-test looks for it, unless there is one."""
    import ansible_test._internal.python_requirements as pinned

    version = re.search(r"^\s+pip='([\d.]+)',$", Path(pinned.__file__).read_text(), re.MULTILINE)
    if version is None:
        raise SystemExit(f"sanity: no pinned pip in {pinned.__file__}; adapt cache_get_pip to this ansible-core")
    script = Path.home() / ".ansible/test/cache" / f"get_pip_{version[1].replace('.', '_')}.py"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(GET_PIP)


def start(copy: Path, options: Iterable[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """ansible-test in a copy of the collection."""
    command = ["ansible-test", "sanity", "--local", "--color", "no", *options]
    return subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main(copy: Path, more: list[str]) -> int:
    """Run all sanity tests, with `more` options of ansible-test; 1 if any failed."""
    cache_get_pip()
    environment = {**os.environ, "PATH": os.pathsep.join(search_path(dict(os.environ)))}
    ignored = list(copy.glob("tests/sanity/ignore*"))
    if ignored:
        print(f"sanity: no ignore files here: {', '.join(path.name for path in ignored)}")
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        other = Path(scratch) / "ansible_collections/fleet/cdi"  # each writes into its copy
        shutil.copytree(copy, other, symlinks=True)
        halves = {copy: [word for name in HALF for word in ("--test", name)]}
        halves[other] = [word for name in HALF for word in ("--skip-test", name)]
        running = [start(where, [*options, *more], environment) for where, options in halves.items()]
        said = [one.communicate()[0] for one in running]
        for line in "".join(said).splitlines(keepends=True):
            if not PIP_CHATTER.match(line):
                print(line, end="", flush=True)
        passed = [text.count("\nRunning sanity test ") for one, text in zip(running, said) if one.returncode == 0]
        print(f"checks: {sum(passed)} passed", flush=True)
    return int(any(one.returncode for one in running))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
