# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The OCI runtimes of a host, and the faults of their releases.

Some give a hook without `env` the environment of the container's image, which is its author's choice. A hook runs on
the host, as root, and its dynamic linker obeys LD_PRELOAD before the program itself does anything (CVE-2025-23266 was
that, for NVIDIA's hook).

Some do not tell systemd of a device whose number has no link in /dev/char or /dev/block. They let the container use it;
systemd takes that back when it next sets up all cgroups, at any `systemctl daemon-reload`.
"""

from __future__ import annotations

import os
from typing import Callable, NamedTuple

from . import detect, table

# CRI-O's packages bring runtimes of their own.
DIRECTORIES = (*detect.DIRECTORIES, "/usr/libexec/crio")


class Releases(NamedTuple):
    """The releases of one OCI runtime that pass the environment on, at `stages`; none of them where both are equal."""

    banner: str  # what comes before the version in what `program --version` prints
    since: table.Version
    before: table.Version
    stages: tuple[str, ...]


# runc: libcontainer/configs/config.go (Command.Run) starts a hook with Go's exec.Cmd, which inherits where Env is nil;
# libcontainer/init_linux.go (populateProcessEnvironment) had set the container's variables in the process that runs
# createContainer hooks. 1.3.0 stopped that (commit 06f1e0765). Hooks of other stages are run by the process that the
# engine started. All tags from 1.0.0 to 1.5.1 were read; 1.1.5, 1.1.15 and 1.3.6 were tried.
# crun: src/libcrun/container.c (do_hooks) inherits, too, but container_init_setup sets the container's variables after
# the createContainer hooks: 0.15 to 1.29.1 were read, 1.8.1, 1.21 and 1.28 were tried.
RUNTIMES = {
    "runc": Releases("runc version ", (1, 0, 0), (1, 3, 0), ("createContainer",)),
    "crun": Releases("crun version ", (0, 0, 0), (0, 0, 0), ()),
}


class OciRuntime(NamedTuple):
    """One installed OCI runtime."""

    name: str  # runc or crun
    version: str
    path: str

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.name} {self.version} ({self.path})"


def detect_oci(path: str, ask: Callable[[str], str] = detect.version_text) -> tuple[OciRuntime, ...]:
    """Those in the directories of `path` (as the variable PATH) and DIRECTORIES that tell their version.

    `ask` answers what a program prints with --version, or raises OSError or ValueError.
    """
    found = []
    for name, releases in RUNTIMES.items():
        for program in detect.programs(name, (*path.split(os.pathsep), *DIRECTORIES)):
            try:
                first = ask(program).strip().partition("\n")[0]
            except (OSError, ValueError):
                continue  # it starts no container either
            version = first[len(releases.banner) :].split()[:1] if first.startswith(releases.banner) else []
            if version and table.numbers(version[0]):
                found.append(OciRuntime(name, version[0], program))
    return tuple(found)


def passes_environment(runtime: OciRuntime, stage: str) -> bool:
    """Whether a hook of this stage that has no `env` gets the environment of the container's image."""
    releases = RUNTIMES[runtime.name]
    version = table.numbers(runtime.version) or (0, 0, 0)
    return stage in releases.stages and releases.since <= version < releases.before


# Releases of runc that tell systemd only of devices with a link: since the first, before the last; the middle one looks
# into /sys/dev as well (libcontainer/cgroups/systemd/common.go, systemdProperties, read in 1.0.0, 1.1.2 to 1.1.7,
# 1.1.12, 1.2.0, 1.2.4, 1.2.5 and 1.3.0; 1.1.5 was tried). Others take the number for enough, as systemd does from 240
# on. So does crun from 1.18 on; before, it told systemd of no device, which then left them alone (1.8.1 was tried).
NEEDS_LINK, ASKS_SYSFS, NEEDS_NO_LINK = (1, 1, 3), (1, 1, 5), (1, 1, 7)


def needs_link(runtime: OciRuntime, in_sysfs: bool) -> bool:
    """Whether a container of this runtime with systemd cgroups loses a device that has no link by its number.

    `in_sysfs`: the kernel lists the number in /sys/dev.
    """
    version = table.numbers(runtime.version) or (0, 0, 0)
    return runtime.name == "runc" and NEEDS_LINK <= version < (ASKS_SYSFS if in_sysfs else NEEDS_NO_LINK)
