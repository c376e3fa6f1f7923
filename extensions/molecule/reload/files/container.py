# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""container.py start|look NAME NODE: a container of runc with systemd cgroups and one device; whether it may open that.

No driver has the device's number, so one that may open it gets ENXIO.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

TOP = "/srv/test"


def configuration(name: str, node: str) -> dict[str, object]:
    """The OCI configuration, of the device and what a shell needs."""
    number = os.stat(node).st_rdev
    device = {"type": "c", "major": os.major(number), "minor": os.minor(number)}
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    mounts.append({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]})
    process = {
        "args": ["/bin/busybox", "sleep", "100000"],
        "env": ["PATH=/bin"],
        "cwd": "/",
        "user": {"uid": 0, "gid": 0},
    }
    return {
        "ociVersion": "1.0.2",
        "process": process,
        "root": {"path": f"{TOP}/root"},
        "mounts": mounts,
        "linux": {
            "cgroupsPath": f"system.slice:test:{name}",
            "devices": [{**device, "path": node, "fileMode": 0o666, "uid": 0, "gid": 0}],
            "resources": {"devices": [{"allow": False, "access": "rwm"}, {**device, "allow": True, "access": "rwm"}]},
            "namespaces": [{"type": one} for one in ("pid", "mount", "ipc", "uts")],
        },
    }


def start(name: str, node: str) -> None:
    """Start a container, which stays."""
    bundle = f"{TOP}/{name}"
    os.makedirs(bundle)
    with open(f"{bundle}/config.json", "w", encoding="ascii") as file:
        json.dump(configuration(name, node), file)
    command = ["runc", "--systemd-cgroup", "run", "--detach", "--bundle", bundle, name]
    with open(f"{bundle}/log", "wb") as log:  # a pipe would stay open as long as the container runs
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)


def look(name: str, node: str) -> None:
    """Say whether the container may open its device."""
    done = subprocess.run(
        ["runc", "exec", name, "/bin/busybox", "cat", node], capture_output=True, text=True, check=False
    )
    words = {"No such device or address": "allowed", "Operation not permitted": "refused"}
    sys.stdout.write(next((word for text, word in words.items() if text in done.stderr), done.stderr))


{"start": start, "look": look}[sys.argv[1]](*sys.argv[2:])
