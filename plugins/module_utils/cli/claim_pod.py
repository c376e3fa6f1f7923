# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi claim pod: devices for the containers of a pod manifest, and given back (as module pod_devices)."""

from __future__ import annotations

import json
from typing import Any

from ..claims.calls import Caller
from ..claims.pods.manifest_text import parse_manifest
from ..claims.pods.pod_devices import converge_pods
from ..layout import Layout
from ..records import CdiError
from .operand import called, read
from .terminal import say, say_document

STATES = {"add": "present", "del": "absent"}
TARGETS = ("podman", "device_plugin", "resource_claims")


def run_pod(given: Any, paths: Layout, caller: Caller) -> int:
    """Do `claim pod add FILE` or `claim pod del FILE`. Raises CdiError."""
    if len(given.what) != 2 or given.what[0] not in STATES:
        raise CdiError("claim pod: expected add or del, and a manifest: claim pod add pod.yaml")
    action, path = given.what
    target = given.target or TARGETS[0]
    if target not in TARGETS:
        raise CdiError(f"claim pod: --target: found {target!r}; expected {', '.join(TARGETS)}")
    wanted = {
        "manifest": parse_manifest(read(path), called(path), checked=action == "add"),
        "state": STATES[action],
        "target": target,
        "resources": _pairs(given.resources, "--resources", "nvidia.com/gpu=gpu"),
        "device_classes": _pairs(given.device_classes, "--device-classes", "gpu=gpu.nvidia.com"),
        "force": given.force,
    }
    done = converge_pods(paths, caller, wanted)
    if given.json:
        say_document({name: value for name, value in done.items() if name != "diff"})
    elif action == "add":  # JSON is YAML, so `podman kube play -` and kubectl read it
        for document in done["manifest"]:
            say("---", json.dumps(document))
    else:
        say(*(f"given back: {id_}" for id_ in done["claims"]) if done["claims"] else ("Nothing to give back.",))
    return 0


def _pairs(text: Any, option: str, example: str) -> dict[str, str]:
    """Parse NAME=VALUE with commas between them. Raises CdiError."""
    found: dict[str, str] = {}
    for word in filter(None, (text or "").split(",")):
        name, equals, value = word.partition("=")
        if not (name and equals and value) or name in found:
            raise CdiError(f"claim pod: {option}: found {word!r}; expected each name once, as in {example}")
        found[name] = value
    return found
