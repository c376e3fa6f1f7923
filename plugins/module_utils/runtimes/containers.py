# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which containers of this host were made with which CDI devices, by what podman and docker say of them.

An engine resolves the names again at every start: a container whose device has left its spec can't be started or
restarted. Where an engine notes the names (measured):

docker 26.1   HostConfig.DeviceRequests[].DeviceIDs, with Driver "cdi"; while its daemon does not run, HostConfig is the
              file hostconfig.json in the directory of each container, and its name is in config.v2.json
podman 4.3    Config.CreateCommand alone, as a word of `--device`; for a container made by its API, which has none, the
              nodes in HostConfig.Devices once it was started
podman 5      the same, and `--gpus` (by its source, not measured); podman 4 takes that word and ignores it

Containers of containerd and CRI-O are not asked: what pods got from our device plugin is in the ledger, and of others,
as of nerdctl, nothing is known. Those of podman for an ordinary user are that user's, and not seen.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

from ..system import proc

SECONDS = 30.0  # for all questions to one engine
AT_ONCE = 100  # containers in one question to podman
LARGEST = 64 << 20  # bytes of an answer: a container takes some 10 KiB
DOCKER = "/var/run/docker.sock"
DOCKER_ROOTS = ("/var/lib/docker", "/var/snap/docker/common/var-lib-docker")  # where it keeps containers by default
DOCKER_CONFIG = "/etc/docker/daemon.json"
DOCKER_NAMESPACE = "moby"  # of containerd, in the arguments of its containers' shims
SHIM, CONMON = "containerd-shim", "conmon"  # the processes that containers of docker and of podman have beside them
GPUS = ("nvidia.com/gpu", "amd.com/gpu")  # the kinds of which podman takes `--gpus`
PODMAN = ("/usr/bin/podman", "/usr/local/bin/podman")
UNTOLD = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)  # by a wrong answer
STOPPED = ("exited", "stopped", "dead", "removing", "configured", "created")


class Container(NamedTuple):
    """One container that has some of the devices that were asked for."""

    engine: str
    name: str
    state: str  # as the engine calls it: "running", "exited" ...
    devices: tuple[str, ...]  # qualified names

    @property
    def runs(self) -> bool:
        """Whether it has processes."""
        return self.state not in STOPPED

    def __str__(self) -> str:
        return f"container {self.name} ({self.engine}, {self.state})"


class RunningContainers(NamedTuple):
    """The containers, and why an engine could not be asked."""

    containers: tuple[Container, ...]
    trouble: tuple[str, ...] = ()
    may_run: bool = True  # a container of an engine that could not be asked may have processes

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why there may be more containers that have the devices, and how to find out, for people."""
        return tuple(f"{why}; run this again when it answers" for why in self.trouble)


class ListedContainers(NamedTuple):
    """The ids of all containers, and why an engine could not be asked."""

    ids: frozenset[str] = frozenset()
    trouble: tuple[str, ...] = ()


# What an engine knows of all its containers, as `inspect` prints them. Raises OSError or ValueError.
Inspect = Callable[[], list[dict[str, Any]]]


def find_containers(
    names: Mapping[str, Collection[str]], engines: Optional[Mapping[str, Inspect]] = None
) -> RunningContainers:
    """The containers with devices among `names` (qualified name -> the nodes that it brings).

    `engines`: name -> how its containers are inspected; None stands for those of this host.
    """
    found: list[Container] = []
    trouble: dict[str, str] = {}
    for engine, inspect in (ENGINES if engines is None else engines).items() if names else ():
        try:
            for document in inspect():
                devices = _devices(document, names)
                if devices:
                    found.append(_container(engine, document, devices))
        except UNTOLD as error:
            trouble[engine] = f"{engine}: its containers can't be told: {error}"
    may_run = any(MONITORED[engine]() for engine in trouble if engine in MONITORED)
    return RunningContainers(tuple(found), tuple(trouble.values()), may_run)


def finder() -> Callable[[Mapping[str, Collection[str]]], RunningContainers]:
    """Return `find_containers` with one question to each engine of this host, however often it is called."""
    return partial(find_containers, engines={name: _once(inspect) for name, inspect in ENGINES.items()})


def _once(inspect: Inspect) -> Inspect:
    """Return a function that always answers, or fails, as the first call of `inspect` does."""
    answers: list[list[dict[str, Any]]] = []
    errors: list[Exception] = []

    def answer() -> list[dict[str, Any]]:
        if not answers and not errors:
            try:
                answers.append(inspect())
            except UNTOLD as error:
                errors.append(error)
        for failure in errors:
            raise failure
        return answers[0]

    return answer


def list_containers() -> ListedContainers:
    """The ids of all containers of root's podman and of docker on this host, running or not."""
    ids: set[str] = set()
    trouble = []
    for engine, listing in LISTS.items():
        try:
            ids.update(listing())
        except UNTOLD as error:
            trouble.append(f"{engine}: its containers can't be told: {error}")
    return ListedContainers(frozenset(ids), tuple(trouble))


def using(engine: str) -> RunningContainers:
    """The containers of `engine` that were made with any CDI device.

    Docker alone is asked: podman can't be told to read no CDI, and of containers of the others nothing is known.
    """
    if engine != "docker":
        return RunningContainers(())
    try:
        found = [(document, _requested(document)) for document in ENGINES[engine]()]
        return RunningContainers(tuple(_container(engine, document, names) for document, names in found if names))
    except UNTOLD as error:
        trouble = f"{engine}: its containers can't be told: {error}"
        return RunningContainers((), (trouble,), MONITORED[engine]())


def _container(engine: str, document: Mapping[str, Any], devices: Sequence[str]) -> Container:
    state = (document.get("State") or {}).get("Status") or "unknown"
    return Container(engine, str(document.get("Name") or document.get("Id")).lstrip("/"), state, tuple(devices))


def _requested(document: Mapping[str, Any]) -> list[str]:
    """The names of CDI devices that docker notes."""
    requests = (document.get("HostConfig") or {}).get("DeviceRequests") or ()
    return [name for one in requests if one.get("Driver") == "cdi" for name in one.get("DeviceIDs") or ()]


def _devices(document: Mapping[str, Any], names: Mapping[str, Collection[str]]) -> list[str]:
    """Those of `names` that the container was made with."""
    host, config = document.get("HostConfig") or {}, document.get("Config") or {}
    present = {device.get("PathOnHost") for device in host.get("Devices") or ()}
    found = {*_requested(document)}
    if config.get("CreateCommand"):
        found |= _of_command(config["CreateCommand"], present, names)
    elif "CreateCommand" in config or "DeviceRequests" not in host:  # not docker, which lists devices by path here
        whole = {name for name, nodes in names.items() if nodes and present.issuperset(nodes)}
        unexplained = present.difference(*(names[name] for name in whole))
        found |= whole | {name for name, nodes in names.items() if not unexplained.isdisjoint(nodes)}
    return [name for name in names if name in found]


def _of_command(words: Sequence[str], present: set[str], names: Mapping[str, Collection[str]]) -> set[str]:
    """Those of `names` that a command of podman gives to a container, which has the nodes `present` since its start.

    Nodes that no word of the command explains are of devices that all containers get (containers.conf, `devices`).
    """
    given = _values(words, "--device")
    gpus = {f"{kind}={gpu}" for one in _values(words, "--gpus") for gpu in one.split(",") for kind in GPUS}
    named = names.keys() & {*given, *gpus}
    paths = [one.partition(":")[0].rstrip("/") for one in given if one.startswith("/")]
    others = [one for one in given if not one.startswith("/") and one not in named]
    if others or (gpus and not named & gpus):  # the nodes may be theirs
        return named
    explained = {node for name in named for node in names[name]}
    explained |= {node for node in present if any(f"{node}/".startswith(f"{path}/") for path in paths)}
    return named | {
        name for name, nodes in names.items() if present.issuperset(nodes) and not explained.issuperset(nodes)
    }


def _values(words: Sequence[str], option: str) -> list[str]:
    """The values of an option in a command."""
    found = [word[len(option) + 1 :] for word in words if word.startswith(f"{option}=")]
    return found + [value for word, value in zip(words, words[1:]) if word == option]


def _podman() -> list[dict[str, Any]]:
    program = next((path for path in PODMAN if os.access(path, os.X_OK)), None)
    if program is None:
        return []
    deadline = time.monotonic() + SECONDS
    return list(_inspected(program, _ids(program, deadline), deadline))


def _podman_ids() -> list[str]:
    program = next((path for path in PODMAN if os.access(path, os.X_OK)), None)
    return _ids(program, time.monotonic() + SECONDS) if program else []


def _ids(program: str, deadline: float) -> list[str]:
    return _run([program, "ps", "--all", "--quiet", "--no-trunc"], deadline).split()


def _inspected(program: str, ids: Sequence[str], deadline: float) -> Iterator[dict[str, Any]]:
    for first in range(0, len(ids), AT_ONCE):
        some = ids[first : first + AT_ONCE]
        try:
            yield from json.loads(_run([program, "container", "inspect", *some], deadline))
        except ValueError:
            for one in some:  # one of them was removed meanwhile
                try:
                    yield from json.loads(_run([program, "container", "inspect", one], deadline))
                except ValueError:
                    if one in _ids(program, deadline):
                        raise


def _run(command: list[str], deadline: float) -> str:
    """What `command` prints. Raises OSError, and ValueError where it fails or does not end in time."""
    from ..system import processes  # here, as most runs ask for no container

    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": os.path.expanduser("~")}
    try:
        done = processes.run(command, max(1.0, deadline - time.monotonic()), env=environment, largest=LARGEST)
    except TimeoutError:
        raise ValueError(f"{' '.join(command[:3])}: did not end within {SECONDS:g} seconds") from None
    if done.status:
        said = done.err.strip().split("\n")[-1] or "nothing"
        raise ValueError(f"{' '.join(command[:3])}: exit code {done.status}: {said}")
    return done.out


def _docker() -> list[dict[str, Any]]:
    deadline = time.monotonic() + SECONDS
    documents: list[dict[str, Any]] = []
    ids = _docker_answer()
    if ids is None:
        return _docker_records()
    if ids:
        from ..system import unix_http  # here: see there
    for one in ids:
        if time.monotonic() > deadline:
            raise ValueError(f"no answer for all {len(ids)} containers within {SECONDS:g} seconds")
        try:
            documents.append(json.loads(unix_http.fetch(DOCKER, f"/containers/{one}/json")))
        except unix_http.AnswerRefused as error:
            if error.status != 404:  # it was removed meanwhile
                raise
    return documents


def _docker_ids() -> list[str]:
    ids = _docker_answer()
    return [str(one["Id"]) for one in _docker_records()] if ids is None else ids


def _docker_answer() -> Optional[list[str]]:
    """The ids of docker's containers as its daemon says; None if that does not run."""
    if os.path.exists(DOCKER):
        from ..system import unix_http  # here: see there

        with suppress(ConnectionRefusedError):
            return [str(one["Id"]) for one in json.loads(unix_http.fetch(DOCKER, "/containers/json?all=1"))]
    return None


def _docker_records() -> list[dict[str, Any]]:
    """What a docker that does not run keeps of its containers, as far as we read what it says of them.

    Raises ValueError if there are others: with live-restore they go on without the daemon.
    """
    shims = _docker_shims()
    running = {word for words in shims for word in words}
    found = [document for path in _docker_kept() if (document := _docker_record(path, running))]
    by_id = {document["Id"]: document for document in found}  # one directory may have two names
    if any(by_id.keys().isdisjoint(words) for words in shims):
        raise ValueError("its daemon does not run, and its containers do")
    return list(by_id.values())


def _docker_shims() -> list[tuple[str, ...]]:
    """The arguments of the process that each running container of docker has, which has the container's id in them."""
    every = (proc.arguments(pid) for pid in _monitors(SHIM))
    return [words for words in every if DOCKER_NAMESPACE in words]


def _monitors(name: str) -> list[int]:
    """The processes of this name that an engine of this host may have. One in a container has a PID namespace."""
    return [pid for pid in proc.named(name) if proc.may_share_pids(pid)]


def _docker_record(path: str, running: Collection[str]) -> Optional[dict[str, Any]]:
    """One container; None for a directory that docker would not take for one either. Raises OSError or ValueError."""
    try:
        with open(f"{path}/config.v2.json", encoding="utf-8") as file:
            config = json.load(file)
    except FileNotFoundError:
        return None
    host: dict[str, Any] = {}
    with suppress(FileNotFoundError), open(f"{path}/hostconfig.json", encoding="utf-8") as file:
        host = json.load(file)
    state = "running" if config["ID"] in running else "exited"
    return {"Id": config["ID"], "Name": config["Name"], "State": {"Status": state}, "HostConfig": host}


def _docker_kept() -> Iterator[str]:
    """The directories of docker's containers."""
    from glob import escape, iglob  # here: most runs ask for no container

    roots = list(DOCKER_ROOTS)
    with suppress(*UNTOLD), open(DOCKER_CONFIG, encoding="utf-8") as file:
        roots.append(str(json.load(file)["data-root"]))
    # below a directory of user and group ids with userns-remap
    for root in roots:
        yield from (path for below in ("", "*.*/") for path in iglob(f"{escape(root)}/{below}containers/*"))


ENGINES: dict[str, Inspect] = {"podman": _podman, "docker": _docker}
# Whether a container of the engine may have processes: each has a process of these beside it.
MONITORED: dict[str, Callable[[], bool]] = {
    "podman": lambda: bool(_monitors(CONMON)),
    "docker": lambda: bool(_docker_shims()),
}
LISTS: dict[str, Callable[[], list[str]]] = {"podman": _podman_ids, "docker": _docker_ids}
