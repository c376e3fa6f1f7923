# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the container, pod, batch job or systemd unit of a process by its control group.

The names of groups have the forms of the programs that make them: docker (`docker-ID.scope`, `/docker/ID`), podman
(`libpod-ID.scope`; `libpod-payload-ID` with `--cgroups=split`, as in units of quadlet), containerd
(`cri-containerd-ID.scope`, `nerdctl-ID.scope`), CRI-O (`crio-ID.scope`), the kubelet (`kubepods...podUID`), Slurm
(`job_ID`), LXC (`lxc.payload.NAME`), systemd-machined (`machine-NAME.scope`), systemd.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import NamedTuple

# Compiled when the first process is described: most looks find no opener.
CONTAINERS = (  # one step of a path -> the engine
    (r"docker-([0-9a-f]{64})\.scope\Z", "docker"),
    (r"libpod-(?:payload-)?([0-9a-f]{64})(?:\.scope)?\Z", "podman"),
    (r"cri-containerd-([0-9a-f]{64})\.scope\Z", "containerd"),
    (r"nerdctl-([0-9a-f]{64})\.scope\Z", "containerd"),
    (r"crio-([0-9a-f]{64})(?:\.scope)?\Z", "CRI-O"),
    (r"lxc\.payload\.(.+)\Z", "LXC"),
    (r"machine-(.+)\.scope\Z", "machine"),
    (r"systemd-nspawn@(.+)\.service\Z", "machine"),
)
BELOW = {"docker": "docker", "lxc": "LXC"}  # a step -> the engine of the container in the next step
ID = r"[0-9a-f]{64}\Z"  # a container's own step, if its engine does not use systemd
POD = r"(?:(?:.+-)?kubepods(?:-[a-z]+)?-)?pod([0-9A-Za-z_-]{8,64})(?:\.slice)?\Z"
JOB = r"job_([0-9]+)\Z"
USERS_MANAGER = r"user@[1-9]"  # not root's own
UNIT = r".+\.(?:service|scope|socket|mount|swap)\Z"
LONGEST = 1 << 16  # bytes of /proc/PID/cgroup that are read: some 13 lines, each with a path of 4096 at most


class Group(NamedTuple):
    """The facts that a control group shows of its processes; "" if unknown."""

    path: str = ""
    unit: str = ""  # of the system's systemd: users can't choose its name
    container: str = ""  # id or name
    engine: str = ""
    pod: str = ""  # the uid that Kubernetes gave it
    job: str = ""  # Slurm's number

    def __str__(self) -> str:
        """Describe it in a few words."""
        words = []
        if self.container:
            name = self.container[:12] if re.match(ID, self.container) else self.container
            words.append(f"container {name} ({self.engine})" if self.engine else f"container {name}")
        if self.pod:
            words.append(f"pod {self.pod}")
        if self.job:
            words.append(f"job {self.job}")
        if not words and self.unit:
            words.append(f"unit {self.unit}")
        return ", ".join(words)


def parse(text: str) -> Group:
    """Parse the content of /proc/PID/cgroup (cgroups(7)).

    Takes the hierarchy with the most facts. Of equals the unified one comes first, then systemd's own.
    """
    paths = _paths(text)
    groups = [of_path(paths.get(name, "")) for name in ("", "name=systemd")]
    groups += [of_path(paths[name]) for name in sorted(paths)]
    return max(groups, key=_said)


def _paths(text: str) -> dict[str, str]:
    """Return the path for each list of controllers. A group's name may have any character but a newline and "/"."""
    rows = (line.split(":", 2) for line in text.split("\n"))
    return {row[1]: row[2] for row in rows if len(row) == 3}


def running_containers(ids: Collection[str], proc: str = "/proc") -> set[str]:
    """Return those of the containers `ids` (64 hexadecimal digits) that have a process in a control group of theirs.

    The outermost container of a path counts. Any user can give a group such a name below their own manager, and a
    container below its own group: neither counts, and no container hides by such a group. A service that root started
    for a user with `Delegate=` can do so, too, and counts: a claim that is kept for too long is better than a device
    that two containers have. Raises OSError where a process can't be looked at.
    """
    wanted = {id_: id_.encode("ascii") for id_ in ids if re.match(ID, id_)}
    found: set[str] = set()
    for name in os.listdir(proc) if wanted else ():
        if not name.isdigit():
            continue
        try:
            with open(f"{proc}/{name}/cgroup", "rb", 0) as file:
                content = file.read(LONGEST)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if any(digits in content for digits in wanted.values()):  # not so conmon's own group, which has the id, too
            for path in _paths(content.decode("utf-8", "surrogateescape")).values():
                found.update(wanted.keys() & {_outermost(path)})
    return found


def _outermost(path: str) -> str:
    """Return the container of the host that a group belongs to; "" below a user's manager, and without a container."""
    before = ""
    for step in path.split("/"):
        if re.match(USERS_MANAGER, step):
            return ""
        container, _engine = _container(step, before)
        if container:
            return container
        before = step
    return ""


def _container(step: str, before: str) -> tuple[str, str]:
    """Return the container that a step of a path names, and its engine; "" for none. `before`: the step above it."""
    for form, engine in CONTAINERS:
        found = re.match(form, step)
        if found:
            return found.group(1), engine
    return (step, BELOW.get(before, "")) if re.match(ID, step) or before in BELOW else ("", "")


def _said(group: Group) -> int:
    """Rank a group by its facts; max takes the first of equals."""
    return 2 * bool(group.container or group.pod or group.job) + bool(group.unit)


def of_path(path: str) -> Group:
    """Parse the path of a control group. Of nested containers the innermost counts."""
    unit = container = engine = pod = job = before = ""
    in_slurm = False
    for step in path.split("/"):
        inner, its_engine = _container(step, before)
        if inner:
            container, engine = inner, its_engine
        is_pod = re.match(POD, step) if "kubepods" in path else None
        if is_pod:
            pod = is_pod.group(1).replace("_", "-")
        in_slurm = in_slurm or "slurm" in step
        is_job = re.match(JOB, step) if in_slurm else None
        job = is_job.group(1) if is_job else job
        unit = unit or (step if re.match(UNIT, step) else "")
        before = step
    return Group(path, unit, container, engine, pod, job)
