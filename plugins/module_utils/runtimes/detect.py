# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container runtimes a host has, and which CDI version each reads, without starting any.

The engine's own program is asked for its version: `docker` may be a client of another host, and a package's version is
not the running one if an administrator unpacked an archive to /usr/local.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, NamedTuple

from ..records import CdiError
from . import table

# Where packages, archives of the vendors, snaps and Kubernetes distributions put engines, whatever PATH there is.
DIRECTORIES = (
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/snap/docker/current/bin",
    "/snap/bin",
    "/snap/microk8s/current/bin",
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/rancher/rke2/bin",
)

SECONDS = 10.0  # an answer takes 0.1 s; a cold disk may make it more
BYTES = 4096  # the banner is in the first line


class Runtime(NamedTuple):
    """One installed engine. `reads` is the newest CDI version that it reads; "" if it is from before CDI."""

    name: str  # docker, podman, containerd or cri-o
    version: str
    path: str  # of its program; "" if the user named it
    reads: str


class DetectedRuntimes(NamedTuple):
    """The engines of a host, and what could not be told, by path."""

    runtimes: tuple[Runtime, ...]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...] = ()  # programs of engines that did not say which release they are


def version_text(program: str, seconds: float = SECONDS) -> str:
    """What `program --version` prints (its first BYTES), run with nothing of our environment and for `seconds` at most.

    Raises OSError if it can't be run, ValueError if another user could change it or it does not end well in time.
    """
    from ..system import processes  # here, as most runs ask no program
    from ..system import programs as trusted

    try:
        trusted.check(program)  # PATH of sudo may have a user's own directory
    except CdiError as error:
        raise ValueError(str(error).rstrip(".")) from None
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        # A program that prints on and on has answered.
        done = processes.run([program, "--version"], seconds, env=environment, largest=BYTES, cut=("stdout", "stderr"))
    except TimeoutError:
        raise ValueError(f"no answer to --version within {seconds:g} seconds") from None
    if done.status and len(done.stdout) < BYTES:
        how = f"signal {-done.status}" if done.status < 0 else f"status {done.status}"
        raise ValueError(f"--version ended with {how}")
    return done.out


def detect(path: str, ask: Callable[[str], str] = version_text) -> DetectedRuntimes:
    """Return the engines in the directories of `path` (as the variable PATH) and DIRECTORIES.

    `ask` answers what a program prints with --version, or raises OSError or ValueError with why it can't be told.
    An engine that is installed twice counts twice; one that does not answer is a warning.
    """
    runtimes, warnings, unknown = [], [], []
    for name, engine in table.ENGINES.items():
        for program in programs(engine.program, (*path.split(os.pathsep), *DIRECTORIES)):
            try:
                version = _version(engine, ask(program))
            except (OSError, ValueError) as error:
                unknown.append(program)
                warnings.append(
                    f"{program}: can't tell its version: {error}. Which CDI versions this {name} reads is unknown, and "
                    "specs are written without regard to it. Repair or remove it, or name the runtimes yourself."
                )
                continue
            runtimes.append(runtime(name, version, program))
    warnings += [newer(found) for found in runtimes if _is_newer(found)]
    return DetectedRuntimes(tuple(runtimes), tuple(warnings), tuple(unknown))


def named(versions: Mapping[str, Any]) -> DetectedRuntimes:
    """The engines that the user says a host has, name -> version. Raises CdiError for a bad name or version."""
    for name, version in versions.items():
        if name not in table.ENGINES:
            raise CdiError(f"runtimes: found the runtime {name!r}; expected one of {', '.join(table.ENGINES)}")
        # Not the number 1.30, which YAML makes 1.3.
        if not isinstance(version, str) or table.numbers(version) is None:
            raise CdiError(
                f"runtimes: found the version {version!r} of {name}; expected its release as text, as in '1.30'"
            )
    runtimes = tuple(runtime(name, version, "") for name, version in versions.items())
    return DetectedRuntimes(runtimes, tuple(newer(found) for found in runtimes if _is_newer(found)))


def runtime(name: str, version: str, path: str) -> Runtime:
    """The engine with what the table says of its release."""
    return Runtime(name, version, path, table.reads(name, table.numbers(version) or (0, 0, 0)))


def newer(found: Runtime) -> str:
    """The warning for a release that the table does not know yet."""
    major, minor = table.ENGINES[found.name].newest
    return (
        f"{found.path or found.name}: {found.name} {found.version} is newer than {major}.{minor}, the last that this "
        f"collection knows: it is taken to read CDI {found.reads}, as that one does"
    )


def programs(name: str, directories: Iterable[str]) -> Iterator[str]:
    """The paths of the program in `directories`, each file once: /bin is a link to /usr/bin."""
    seen = set()
    for directory in directories:
        path = os.path.join(directory, name)
        real = os.path.realpath(path)
        if os.path.isabs(path) and real not in seen and os.path.isfile(real) and os.access(real, os.X_OK):
            seen.add(real)
            yield path


def _version(engine: table.Engine, text: str) -> str:
    """Return the version in an engine's output. Raises ValueError for an output without one."""
    line = text.strip().partition("\n")[0].strip()
    words = line[len(engine.banner) :].replace(",", " ").split() if line.startswith(engine.banner) else []
    for word in words:
        if table.numbers(word):
            return word
    shown = repr(line if len(line) <= 60 else line[:57] + "...")
    raise ValueError(f"--version printed {shown}, not {engine.banner + '...'!r}")


def _is_newer(found: Runtime) -> bool:
    return table.is_newer(found.name, table.numbers(found.version) or (0, 0, 0))
