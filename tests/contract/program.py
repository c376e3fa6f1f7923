# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet as a program: one JSON object per line on stdin, one per line answered on stdout.

    {"do": "start"}  {"do": "stop"}  {"do": "kill"}  {"do": "restart"}  {"do": "wipe"}  {"do": "remove_directory"}
    {"do": "admit", "pod": P, "resources": {R: N}}   or "containers": {NAME: {R: N}}, "init": {...}
    {"do": "restart_container", "pod": P, "container": C}   {"do": "delete", "pod": P}
    {"do": "capacity"}   {"do": "holds", "pod": P}   {"do": "status", "pod": P}
    {"do": "wait", "resource": R, "allocatable": N, "seconds": S}   answers "after": seconds since kubelet.sock appeared
    {"do": "drop", "resource": R}   drops the streams   {"do": "unavailable", "times": N}   refuses that many Registers
    {"do": "events", "what": W, "since": TIME}   [time (CLOCK_MONOTONIC), what, resource, detail as text]

It starts running ("started" is the first line) and ends with its stdin. Answers: {"ok": true, ...}, or {"ok": false,
"reason": ..., "message": ...} with the kubelet's reason where a pod is rejected.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import grpc
from admission import Node, Pod, Rejected
from books import PATIENCE
from kubelet import GRACE, Kubelet
from personality import BY_NAME, Personality

from ansible_collections.fleet.cdi.plugins.module_utils.layout import kubelet_layout

LIFE = ("start", "stop", "kill", "restart", "wipe", "remove_directory")


def main(argv: Sequence[str]) -> int:
    """Run until stdin ends."""
    given = _parser().parse_args(argv)
    kubelet = Kubelet(
        given.dir,
        _personality(given.personality, given.set),
        registry_dir=given.registry_dir,
        pod_resources=given.pod_resources,
        node=Node(given.policy, tuple(range(given.numa_nodes))),
        grace=given.grace,
    )
    kubelet.start()
    _say({"started": kubelet.started})
    for line in sys.stdin:
        try:
            _say({"ok": True, **answer(kubelet, json.loads(line))})
        except Rejected as rejected:
            _say({"ok": False, "reason": rejected.reason, "message": str(rejected)})
        except grpc.RpcError as error:
            _say({"ok": False, "reason": error.code().name, "message": error.details()})
        except (ValueError, KeyError, RuntimeError, OSError) as error:
            _say({"ok": False, "reason": type(error).__name__, "message": str(error)})
    kubelet.stop()
    return 0


def answer(kubelet: Kubelet, request: dict[str, Any]) -> dict[str, Any]:
    """Do one request. Raises what the kubelet raises, ValueError for what is not known here."""
    do, pod = request["do"], request.get("pod", "")
    if do in LIFE:
        getattr(kubelet, do)()
        return {"started": kubelet.started}
    if do == "admit":
        containers = request.get("containers") or {"main": request["resources"]}
        return {"containers": kubelet.admit(Pod(pod, containers, request.get("init", {})))}
    if do == "restart_container":
        return {"container": kubelet.restart_container(pod, request.get("container", "main"))}
    if do == "delete":
        kubelet.delete(pod)
        return {}
    if do == "capacity":
        capacity, allocatable = kubelet.books.capacity()
        return {"capacity": capacity, "allocatable": allocatable}
    if do == "holds":
        return {"holds": {resource: sorted(ids) for resource, ids in kubelet.holds(pod).items()}}
    if do == "status":
        return {"status": kubelet.books.status(pod)}
    if do == "wait":
        there = kubelet.wait_for(request["resource"], request["allocatable"], request.get("seconds", PATIENCE))
        return {"ok": there, "after": time.monotonic() - kubelet.started}
    return _fault(kubelet, do, request)


def _fault(kubelet: Kubelet, do: str, request: dict[str, Any]) -> dict[str, Any]:
    if do == "drop":
        kubelet.drop(request["resource"])
        return {}
    if do == "unavailable":
        kubelet.unavailable = request["times"]
        return {}
    if do == "events":
        with kubelet.books.lock:
            events = [event for event in kubelet.books.events if event.time > request.get("since", 0.0)]
        what = request.get("what")
        return {"events": [[*event[:3], str(event.detail)] for event in events if what in (None, event.what)]}
    raise ValueError(f"do: found {do!r}; see the list in program.py")


def _personality(name: str, changes: Sequence[str]) -> Personality:
    personality = BY_NAME[name]
    for change in changes:
        field, _equals, text = change.partition("=")
        kind = type(getattr(personality, field))
        value: Any = text == "true" if kind is bool else kind(text)
        personality = personality._replace(**{field: value})
    return personality


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubelet.py", description="A kubelet's device manager for tests.")
    parser.add_argument("--dir", default=kubelet_layout().plugin_dir, help="the socket directory (%(default)s)")
    parser.add_argument("--personality", choices=sorted(BY_NAME), default="new")
    parser.add_argument("--registry-dir", default="", help="watch it for plugins (not watched)")
    parser.add_argument("--pod-resources", default="", help="socket to serve podresources at (not served)")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="of the personality")
    parser.add_argument("--policy", default="none", help="of the topology manager (%(default)s)")
    parser.add_argument("--numa-nodes", type=int, default=1, help="that the host has (%(default)s)")
    parser.add_argument("--grace", type=float, default=GRACE, help="seconds of capacity without a plugin (%(default)s)")
    return parser


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
