# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the runtimes of a host are: the distribution's, and those that a snap or a Kubernetes distribution brings.

Source: docs.k3s.io ("Advanced options", containerd), docs.rke2.io, microk8s.io ("containerd"), snapcraft.io/docker, and
the packages of Debian.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Callable, NamedTuple, Optional

from ..documents import content
from ..system import proc
from . import arguments, detect, table
from .place import InstalledRuntime


class Installation(NamedTuple):
    """One way in which a runtime is installed."""

    config: str
    units: tuple[str, ...] = ()
    socket: str = ""
    programs: tuple[str, ...] = ()  # directories of its programs; () for the usual ones
    generated: bool = False


RANCHER = "/var/lib/rancher"
SNAP = "/var/snap/microk8s"

INSTALLATIONS: dict[str, dict[str, Installation]] = {
    "docker": {
        "system": Installation("/etc/docker/daemon.json", ("docker.service",), "/var/run/docker.sock"),
        "snap": Installation(
            "/var/snap/docker/current/config/daemon.json",
            ("snap.docker.dockerd.service",),
            "/var/run/docker.sock",
            ("/snap/docker/current/bin",),
        ),
    },
    "podman": {"system": Installation("/etc/containers/containers.conf")},
    "containerd": {
        "system": Installation(
            "/etc/containerd/config.toml", ("containerd.service",), "/run/containerd/containerd.sock"
        ),
        "k3s": Installation(
            f"{RANCHER}/k3s/agent/etc/containerd/config.toml",
            ("k3s.service", "k3s-agent.service"),
            "/run/k3s/containerd/containerd.sock",
            (f"{RANCHER}/k3s/data/current/bin",),
            True,
        ),
        "rke2": Installation(
            f"{RANCHER}/rke2/agent/etc/containerd/config.toml",
            ("rke2-server.service", "rke2-agent.service"),
            "/run/k3s/containerd/containerd.sock",
            (f"{RANCHER}/rke2/bin",),
            True,
        ),
        # A template, from which the configuration is made at every start: TOML, with ${variables} in strings.
        "microk8s": Installation(
            f"{SNAP}/current/args/containerd-template.toml",
            ("snap.microk8s.daemon-containerd.service",),
            f"{SNAP}/common/run/containerd.sock",
            ("/snap/microk8s/current/bin",),
        ),
    },
    "cri-o": {"system": Installation("/etc/crio/crio.conf", ("crio.service",), "/var/run/crio/crio.sock")},
}

ENVIRONMENT = 1 << 20  # bytes of an environment file of a unit

# The option of the command line that names another configuration file.
CONFIG_OPTIONS = {"docker": ("--config-file",), "containerd": ("--config", "-c"), "cri-o": ("--config", "-c")}


class Installations(NamedTuple):
    """The runtimes of a host, and what could not be told."""

    places: tuple[InstalledRuntime, ...]
    warnings: tuple[str, ...]


def find_installations(
    path: str,
    show: Callable[[str], str] = arguments.show,
    names: Iterable[str] = tuple(table.ENGINES),
    detected: Optional[detect.DetectedRuntimes] = None,
) -> Installations:
    """The runtimes in the directories of `path` and those of INSTALLATIONS. Nothing is started, nothing raised.

    `show` answers what systemd says of a unit. `detected`: the runtimes of the host, if they were asked already.
    """
    found = detected or detect.detect(path)
    wanted = set(names)
    places = [place(one, show) for one in found.runtimes if one.name in wanted]
    return Installations(tuple(places), found.warnings)


def place(runtime: detect.Runtime, show: Callable[[str], str] = arguments.show) -> InstalledRuntime:
    """Where the things of an installed runtime are, by its program and by what it is started with."""
    directory = os.path.dirname(runtime.path)
    kinds = INSTALLATIONS[runtime.name]
    name = next((name for name, one in kinds.items() if directory in one.programs), "system")
    usual = kinds[name]
    unit = arguments.unit_of(usual.units, show)
    words = arguments.of_unit(unit, _text) or _running(runtime, usual)
    named = [] if usual.generated else arguments.values(words, *CONFIG_OPTIONS.get(runtime.name, ()))
    return InstalledRuntime(
        runtime.name,
        name,
        runtime.version,
        table.numbers(runtime.version) or (0, 0, 0),
        runtime.reads,
        runtime.path,
        named[-1] if named else usual.config,
        usual.units,
        usual.socket,
        usual.generated,
        words,
    )


def _running(runtime: detect.Runtime, usual: Installation) -> tuple[str, ...]:
    """What a daemon that systemd did not start was started with."""
    for pid in proc.running(runtime.path) if usual.units else ():
        return proc.arguments(pid, os.path.realpath(runtime.path))
    return ()


def _text(path: str) -> str:
    return (content(path, ENVIRONMENT) or b"").decode(errors="surrogateescape")
