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
LONGEST = 4096  # bytes of /proc/PID/cgroup that are read


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
    paths = {}
    for line in text.splitlines():
        _number, _colon, rest = line.partition(":")
        controllers, _colon, path = rest.partition(":")
        paths[controllers] = path
    groups = [of_path(paths.get(name, "")) for name in ("", "name=systemd")]
    groups += [of_path(paths[name]) for name in sorted(paths)]
    return max(groups, key=_said)


def running_containers(ids: Collection[str], proc: str = "/proc") -> set[str]:
    """Return those of the containers `ids` (64 hexadecimal digits) that have a process in a control group of theirs.

    Any user can give a group such a name below their own manager, and a container below its own group: neither counts.
    A service that root started for a user with `Delegate=` can do so, too, and counts: a claim that is kept for too
    long is better than a device that two containers have. Raises OSError where a process can't be looked at.
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
            group = parse(content.decode("utf-8", "surrogateescape"))
            if not _named_by_another(group):
                found.update(wanted.keys() & {group.container})
    return found


def _named_by_another(group: Group) -> bool:
    """Return True if a user's manager or another container is above the container's own group."""
    above = of_path(os.path.dirname(group.path[: group.path.find(group.container)]))
    return bool(above.container or re.match(USERS_MANAGER, above.unit))


def _said(group: Group) -> int:
    """Rank a group by its facts; max takes the first of equals."""
    return 2 * bool(group.container or group.pod or group.job) + bool(group.unit)


def of_path(path: str) -> Group:
    """Parse the path of a control group. Of nested containers the innermost counts."""
    unit = container = engine = pod = job = before = ""
    in_slurm = False
    for step in path.split("/"):
        found = [(match.group(1), name) for form, name in CONTAINERS for match in [re.match(form, step)] if match]
        if found:
            container, engine = found[0]
        elif re.match(ID, step):
            container, engine = step, BELOW.get(before, "")
        elif before in BELOW and step and not container:
            container, engine = step, BELOW[before]
        is_pod = re.match(POD, step) if "kubepods" in path else None
        if is_pod:
            pod = is_pod.group(1).replace("_", "-")
        in_slurm = in_slurm or "slurm" in step
        is_job = re.match(JOB, step) if in_slurm else None
        job = is_job.group(1) if is_job else job
        unit = unit or (step if re.match(UNIT, step) else "")
        before = step
    return Group(path, unit, container, engine, pod, job)
