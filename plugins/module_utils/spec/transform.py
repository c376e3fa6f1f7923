# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A spec moved from one root directory to another, on the host or in the container.

A spec that was made in a container or for an image names paths of the place where it was made: with the host's root at
/host, say. Pure functions; the spec has to be well-formed.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from . import model
from .stale import in_container
from .versions import minimum_version

HOST, CONTAINER = "host", "container"  # whose paths are meant


def move(spec: dict[str, Any], before: str, after: str, whose: str) -> dict[str, Any]:
    """`spec` with the paths below `before` below `after`; those of the host, or those of the container.

    A hook is a program of the host, a startContainer hook one of the container (OCI runtime specification, config.md,
    "POSIX-platform Hooks"). Arguments of hooks are their own language and stay unchanged. The version is raised where
    a path of a node in the container becomes another one than on the host.
    """
    moved = _mover(before, after)
    document = {
        **spec,
        "devices": [
            {**device, "containerEdits": _edits(device["containerEdits"], moved, whose)} for device in spec["devices"]
        ],
    }
    if "containerEdits" in spec:
        document["containerEdits"] = _edits(spec["containerEdits"], moved, whose)
    versions = (spec["cdiVersion"].removeprefix("v"), minimum_version(document))
    return {**document, "cdiVersion": max(versions, key=model.VERSIONS.index)}


def _mover(before: str, after: str) -> Callable[[str], str]:
    """What a path becomes: one below `before`, or that itself, goes below `after`, any other stays."""
    old, new = (os.path.normpath(root).rstrip("/") for root in (before, after))

    def moved(path: str) -> str:
        if path == old or path.startswith(f"{old}/"):
            return f"{new}{path[len(old) :]}" or "/"
        return path

    return moved


def _edits(edits: dict[str, Any], moved: Callable[[str], str], whose: str) -> dict[str, Any]:
    changed = {
        "deviceNodes": [_node(node, moved, whose) for node in edits.get("deviceNodes", ())],
        "mounts": [
            {**mount, **{key: moved(mount[key]) for key in (MOUNT[whose],)}} for mount in edits.get("mounts", ())
        ],
        "hooks": [
            {**hook, "path": moved(hook["path"])} if whose == (CONTAINER if in_container(hook) else HOST) else hook
            for hook in edits.get("hooks", ())
        ],
    }
    return {**edits, **{key: value for key, value in changed.items() if key in edits}}


MOUNT = {HOST: "hostPath", CONTAINER: "containerPath"}


def _node(node: dict[str, Any], moved: Callable[[str], str], whose: str) -> dict[str, Any]:
    """A node whose path on the host is its path in the container unless it says otherwise."""
    host, inside = node.get("hostPath") or node["path"], node["path"]
    host, inside = (moved(host), inside) if whose == HOST else (host, moved(inside))
    others = {key: value for key, value in node.items() if key not in ("path", "hostPath")}
    return {"path": inside, **({"hostPath": host} if host != inside else {}), **others}
