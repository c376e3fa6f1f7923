# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the API server of Kubernetes: nodes and pods, merge patches and evictions, as kubernetes.core asks.

It knows two rules of the real one: an eviction that a disruption budget forbids is refused with 429, and a pod that was
evicted is gone at the next look.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

VERBS = ["create", "delete", "get", "list", "patch", "update"]
RESOURCES = [
    {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": VERBS},
    {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": VERBS},
    {"name": "pods/eviction", "singularName": "", "namespaced": True, "kind": "Eviction", "verbs": ["create"]},
]
DISCOVERY = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": RESOURCES},
}


class Cluster:
    """The objects: nodes by name, pods by (namespace, name), and the requests that changed something."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.protected: set[str] = set()  # pods that a disruption budget protects
        self.changes: list[str] = []

    def add_node(self, name: str, unschedulable: bool = False) -> None:
        """Add a node."""
        spec = {"unschedulable": True} if unschedulable else {}
        self.nodes[name] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {}}

    def add_pod(self, name: str, node: str, owner: str = "ReplicaSet") -> None:
        """Add a running pod."""
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": name, "uid": name, "controller": True}
        metadata = {"name": name, "namespace": "default", "ownerReferences": [reference]}
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "main"}]}
        status = {"phase": "Running"}
        self.pods["default", name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """Return (status, document) for a request."""
        if path in DISCOVERY:
            return 200, DISCOVERY[path]
        words = path.strip("/").split("/")[2:]
        if words[0] == "namespaces":
            return self._pod(method, (words[1], words[3]), words[4:])
        if words == ["pods"]:
            node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
            items = [one for one in self.pods.values() if one["spec"]["nodeName"] == node]
            return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}
        if words[0] != "nodes" or words[1] not in self.nodes:
            return _failure(404, "NotFound", f"{path} not found")
        node_object = self.nodes[words[1]]
        if method == "PATCH":
            self.changes.append(f"{words[1]} {json.dumps(body['spec'])}")
            merge(node_object, body)
        return 200, node_object

    def _pod(self, method: str, key: tuple[str, str], rest: list[str]) -> tuple[int, Any]:
        if key not in self.pods:
            return _failure(404, "NotFound", f'pods "{key[1]}" not found')
        if method == "POST" and rest == ["eviction"]:
            if key[1] in self.protected:
                why = "Cannot evict pod as it would violate the pod's disruption budget."
                return _failure(429, "TooManyRequests", why)
            self.changes.append(f"evicted {key[1]}")
            del self.pods[key]
            return 201, {"apiVersion": "v1", "kind": "Status", "status": "Success"}
        return 200, self.pods[key]


def merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a merge patch (RFC 7396)."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            merge(target.setdefault(name, {}), value)
        else:
            target[name] = value


def _failure(code: int, reason: str, message: str) -> tuple[int, Any]:
    return code, {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


class Handler(BaseHTTPRequestHandler):
    """One request."""

    cluster: Cluster

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_PATCH(self) -> None:
        self._handle()

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def _handle(self) -> None:
        url = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        status, document = self.cluster.answer(self.command, url.path.rstrip("/"), dict(parse_qsl(url.query)), body)
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serve(cluster: Cluster) -> Iterator[str]:
    """Serve the objects of `cluster`; the address of the API."""
    handler = type("ClusterHandler", (Handler,), {"cluster": cluster})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
