# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of container edits a command on the host can have: device nodes and variables (CDI SPEC.md, "containerEdits").

Pure. A mount or node with the same path on both sides is there already, and so is a node whose path in containers leads
to the same device on the host, as links below /dev/dri/by-path do. Others can't be had without a container, nor can a
network interface. Hooks prepare a container's root directory, and the host's root needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ...records import CdiError, Node
from ...spec.items import Edits

ACCESS = "rwm"  # of a node whose spec gives no permissions, as in a container

# Variables that say where programs and libraries lie: their paths are those of a container. And they would decide which
# code a process of root runs on the host. The usual ones: no list has those of all programs.
LEFT_OUT = {
    *("PATH", "HOME", "IFS", "ENV", "BASH_ENV", "CDPATH", "SHELL"),
    *("NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    *("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"),
}
LEFT_OUT_PREFIXES = ("LD_", "GLIBC_", "GCONV_", "OPENSSL_", "PYTHON", "PERL", "RUBY", "BASH_FUNC_", "FLEET_CDI_")


class HostEdits(NamedTuple):
    """The part of container edits that a command on the host gets."""

    allowed: tuple[tuple[Node, str], ...]  # device node and permissions, letters of "rwm"
    env: Mapping[str, str]


def host_edits(
    edits: Sequence[Edits], read: Callable[[str], Node], leads_to: Callable[[str], Optional[tuple[str, int, int]]]
) -> HostEdits:
    """Return what a command on the host gets of `edits`.

    `read` reads the node at a path of the host. `leads_to` returns the type and the numbers of the device to which a
    path leads, also by links; None if it leads to none.

    Raises CdiError for an edit that only a container can have.
    """
    allowed: dict[str, tuple[Node, str]] = {}
    env: dict[str, str] = {}
    for one in edits:
        for field in ("netDevices", "intelRdt"):
            if one.get(field):
                raise CdiError(f"the claim has {field}, and only a container can have them. {_INSTEAD}")
        for mount in one.get("mounts") or ():
            if mount.get("hostPath") != mount["containerPath"]:
                raise _elsewhere("mount", mount.get("hostPath"), mount["containerPath"])
        for node in one.get("deviceNodes") or ():
            path = node.get("hostPath") or node["path"]
            found = _node(node, path, read)
            if path != node["path"] and leads_to(node["path"]) != (found.type, found.major, found.minor):
                raise _elsewhere("device node", path, node["path"])
            allowed[path] = (found, node.get("permissions") or ACCESS)
        for item in one.get("env") or ():
            name, _equals, value = item.partition("=")
            if name not in LEFT_OUT and not name.startswith(LEFT_OUT_PREFIXES):
                env[name] = value
    return HostEdits(tuple(pair for pair in allowed.values() if pair[0].type != "p"), env)


_INSTEAD = "Start a container with the claim instead (fleet-cdi claim add)."


def _elsewhere(what: str, host: Any, container: str) -> CdiError:
    return CdiError(f"the claim has a {what} at {container!r} that is {host!r} on the host. {_INSTEAD}")


def _node(node: Mapping[str, Any], path: str, read: Callable[[str], Node]) -> Node:
    if "major" in node and "minor" in node and node.get("type"):
        return Node(
            path, "b" if node["type"] == "b" else "p" if node["type"] == "p" else "c", node["major"], node["minor"]
        )
    return read(path)
