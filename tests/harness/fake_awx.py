# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for AWX's API, version 2: it keeps objects and their associations, as the modules of awx.awx ask.

AWX itself needs a Kubernetes cluster. This knows no rules of AWX but one: an object that is named must exist.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TYPES = {
    "execution_environments": "execution_environment",
    "inventories": "inventory",
    "job_templates": "job_template",
    "projects": "project",
    "workflow_job_template_nodes": "workflow_job_template_node",
    "workflow_job_templates": "workflow_job_template",
}
UNIFIED = ("job_templates", "workflow_job_templates", "projects")
# Field of an object -> the objects that it names by their id.
NAMES = {
    "organization": ("organizations",),
    "inventory": ("inventories",),
    "project": ("projects",),
    "execution_environment": ("execution_environments",),
    "unified_job_template": UNIFIED,
    "workflow_job_template": ("workflow_job_templates",),
}
# What AWX itself puts into a new object.
MADE = {"projects": {"scm_revision": "", "summary_fields": {}}}


class Store:
    """The objects: endpoint -> id -> object; an association is a list of ids, or a document."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[int, dict[str, Any]]] = {}
        self.related: dict[tuple[str, int, str], Any] = {}
        self.last = 0

    def add(self, endpoint: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Store a new object. Raises ValueError if it names an object that does not exist."""
        for field, places in NAMES.items():
            if field in fields and not any(fields[field] in self.objects.get(place, {}) for place in places):
                raise ValueError(f"{field}: found {fields[field]!r}; expected the id of an object")
        self.last += 1
        url = f"/api/v2/{endpoint}/{self.last}/"
        subs = ("credentials", "survey_spec", "always_nodes", "success_nodes", "failure_nodes", "workflow_nodes")
        document = {
            "id": self.last,
            "type": TYPES.get(endpoint, endpoint.rstrip("s")),
            "url": url,
            **MADE.get(endpoint, {}),
            **fields,
        }
        document["related"] = {sub: f"{url}{sub}/" for sub in subs}
        self.objects.setdefault(endpoint, {})[self.last] = document
        return document

    def find(self, endpoint: str, wanted: dict[str, str]) -> list[dict[str, Any]]:
        """Return the objects with these fields; or__ fields are alternatives."""
        places = UNIFIED if endpoint == "unified_job_templates" else (endpoint,)
        found = [one for place in places for one in self.objects.get(place, {}).values()]
        every = {name: value for name, value in wanted.items() if not name.startswith("or__")}
        some = {name[4:]: value for name, value in wanted.items() if name.startswith("or__")}
        return [
            one
            for one in found
            if all(str(one.get(name)) == value for name, value in every.items())
            and (not some or any(str(one.get(name)) == value for name, value in some.items()))
        ]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    store: Store

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def do_PATCH(self) -> None:
        self._handle("PATCH")

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def _handle(self, method: str) -> None:
        url = urlsplit(self.path)
        endpoint, *rest = url.path.strip("/").split("/")[2:]
        size = int(self.headers.get("Content-Length") or 0)
        fields = json.loads(self.rfile.read(size)) if size else {}
        try:
            status, document = self._answer(method, endpoint, rest, dict(parse_qsl(url.query)), fields)
        except ValueError as error:
            status, document = 400, {"detail": str(error)}
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-API-Product-Name", "AWX")
        self.send_header("X-API-Product-Version", "24.6.1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _answer(
        self, method: str, endpoint: str, rest: list[str], query: dict[str, str], fields: dict[str, Any]
    ) -> tuple[int, Any]:
        store = self.store
        if not rest:
            return (201, store.add(endpoint, fields)) if method == "POST" else (200, _page(store.find(endpoint, query)))
        one = store.objects.get(endpoint, {}).get(int(rest[0]))
        if one is None:
            return 404, {"detail": "Not found."}
        if len(rest) == 1:
            if method == "PATCH":
                one.update(fields)
            return 200, one
        key = (endpoint, one["id"], rest[1])
        if rest[1] == "survey_spec":
            if method == "POST":
                store.related[key] = fields
            return 200, store.related.get(key, {})
        ids = store.related.setdefault(key, [])
        if method == "POST":
            if fields.get("disassociate"):
                ids.remove(fields["id"])
            else:
                ids.append(fields["id"])
            return 204, {}
        return 200, _page([{"id": number} for number in ids])


def _page(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {"count": len(results), "next": None, "previous": None, "results": results}


@contextmanager
def serve(store: Store) -> Iterator[str]:
    """Serve the objects of `store`; the address of the API."""
    handler = type("StoreHandler", (Handler,), {"store": store})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
