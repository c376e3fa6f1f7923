# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet's device manager for tests, true to two real ones in what a device plugin can see of it.

    kubelet.py --dir DIR [--personality new|old] [--registry-dir DIR] [--pod-resources SOCKET] [--set FIELD=VALUE]...

As a program it takes one JSON object per line ({"do": "admit", "pod": "p", "resources": {"vendor.com/gpu": 2}}) and
answers each with one ({"ok": true, ...}); program.py has the list. What it does and does not do is in the module of
each part: personality (the differences), books, admission, topology, endpoint, watcher.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import threading
import time
from typing import Any, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":  # started by itself: tests have the collection on their path already
    sys.path.append(os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "pythonpath"))

import grpc
import legal
import lister
from admission import Admission, Node, Pod, Rejected
from books import CHECKPOINT, PATIENCE, Books
from endpoint import DIAL, Endpoint
from front import Front
from personality import ACCEPTED, NEW, REFUSED, Personality
from watcher import INFO, LOOP, Watcher

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

GRACE = 300.0  # seconds, endpointStopGracePeriod
DEPRECATION = "DEPRECATION"
PLAIN = Node()


class Kubelet:
    """One node: kubelet processes come and go in it, its containers stay."""

    def __init__(
        self,
        directory: str,
        personality: Personality = NEW,
        *,
        registry_dir: str = "",
        pod_resources: str = "",
        node: Node = PLAIN,
        grace: float = GRACE,
        dial: float = DIAL,
        info: float = INFO,
        loop: float = LOOP,
        seed: int = 0,
    ) -> None:
        self.directory = directory
        self.personality = personality
        self.registry_dir = registry_dir
        self.pod_resources = pod_resources
        self.node = node
        self.grace = grace
        self.dial = dial
        self.info = info
        self.loop = loop
        self.seed = seed
        self.pods: dict[str, Pod] = {}  # that were admitted; their containers run, whatever becomes of the kubelet
        self.versions: tuple[str, ...] = (api.VERSION,)
        self.unavailable = 0  # this many Register calls are answered UNAVAILABLE
        self.silent = 0  # this many are answered with success, and nothing comes of it
        self.slow = 0.0  # seconds that Register takes besides
        self.started = 0.0  # time.monotonic() of the last moment that the registry socket appeared
        self.books = Books(directory, personality, grace)
        self._admission = Admission(self.books, node, seed)
        self._front: Optional[Front] = None
        self._pods_front: Optional[Front] = None
        self._frozen: list[tuple[tuple[Optional[Front], ...], Books]] = []  # former processes that hang
        self._watcher: Optional[Watcher] = None

    # -- life ------------------------------------------------------------------------------------

    def start(self, containers_run: bool = True) -> None:
        """A kubelet process starts. After a reboot (`containers_run` False) every pod is admitted anew."""
        self.books = Books(self.directory, self.personality, self.grace)
        self._admission = Admission(self.books, self.node, self.seed)
        self.books.load()
        with self.books.lock:
            self.books.active = set(self.pods)
        time.sleep(self.personality.wipe_after)
        os.makedirs(self.directory, mode=0o750, exist_ok=True)
        self.wipe()
        if self.personality.marks_deprecated:
            with open(os.path.join(self.directory, DEPRECATION), "w", encoding="utf-8"):
                pass
        self._front = Front(
            os.path.join(self.directory, api.KUBELET_SOCKET),
            [api.handler("v1beta1.Registration", {"Register": self._registered})],
        )
        self.started = time.monotonic()
        if self.pod_resources:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.pod_resources)
            os.makedirs(os.path.dirname(self.pod_resources), exist_ok=True)
            self._pods_front = Front(self.pod_resources, [lister.handler(self.pods, self.books)])
        if self.registry_dir:
            self._watcher = Watcher(self.registry_dir, self.books, self._watched, self.info, self.loop)
        if not containers_run:
            for pod in list(self.pods.values()):
                try:
                    self._admission.admit(pod)
                except Rejected:
                    del self.pods[pod.uid]

    def stop(self, graceful: bool = True) -> None:
        """The process ends: its sockets are cut; a killed one leaves kubelet.sock, and no one unlinks a plugin's."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        for front in (self._front, self._pods_front):
            if front is not None:
                front.close(unlink=graceful)
        self._front = self._pods_front = None
        frozen, self._frozen = self._frozen, []
        for fronts, books in (*frozen, ((), self.books)):
            for front in fronts:
                if front is not None:
                    front.close(unlink=False)
            with books.lock:
                endpoints = [endpoint for alive in books.connected.values() for endpoint in alive]
            for endpoint in endpoints:
                endpoint.close()

    def freeze(self) -> None:
        """The process hangs, until the next `stop`: it accepts calls and answers none, and its streams stay open."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        for front in (self._front, self._pods_front):
            if front is not None:
                front.stalled = True
        self._frozen.append(((self._front, self._pods_front), self.books))

    def kill(self) -> None:
        """SIGKILL."""
        self.stop(graceful=False)

    def restart(self) -> None:
        """Stop and start; the containers run on."""
        self.stop()
        self.start()

    def wipe(self) -> None:
        """What goes from the socket directory at start: never directories, nor the checkpoint."""
        for entry in os.listdir(self.directory):
            path = os.path.join(self.directory, entry)
            with contextlib.suppress(FileNotFoundError):
                mode = os.stat(path).st_mode
                socket = stat.S_ISSOCK(mode)
                taken = {"files": True, "sockets": socket, "nothing": False}[self.personality.wipes]
                if entry != CHECKPOINT and not stat.S_ISDIR(mode) and taken:
                    os.unlink(path)

    def remove_directory(self) -> None:
        """Take the whole directory away, with the checkpoint: a node that is set up anew."""
        while os.path.isdir(self.directory):  # a plugin may make its socket anew meanwhile
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- registration ----------------------------------------------------------------------------

    def _registered(self, request: Any, context: grpc.ServicerContext) -> Any:
        resource = request.resource_name
        self.books.note("Register", resource, request)
        if self.unavailable:
            self.unavailable -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection refused")
        time.sleep(self.slow)
        if self.silent:
            self.silent -= 1
            return api.v1beta1.Empty()
        trouble = ""
        if request.version not in self.versions:
            trouble = (
                f"requested API version {request.version!r} is not supported by kubelet. Supported version is "
                f"{' '.join(self.versions)!r}"
            )
        elif not legal.is_extended(resource):
            trouble = f"the ResourceName {resource!r} is invalid"
        else:
            # Joined, not resolved: an absolute path ends below the directory, where nothing is.
            path = os.path.join(self.directory, request.endpoint.lstrip("/"))
            if not self.personality.dials_in_register:
                threading.Thread(target=self._dial_later, args=(resource, path, request.options), daemon=True).start()
            else:
                try:
                    self._connect(resource, path)
                except (ConnectionError, grpc.RpcError) as error:
                    trouble = error.details() if isinstance(error, grpc.RpcError) else str(error)
        if trouble:
            self.books.note("Register failed", resource, trouble)
            context.abort(grpc.StatusCode.UNKNOWN, trouble)  # what a Go server makes of an error
        self.books.note("Register answered", resource, request.endpoint)
        return api.v1beta1.Empty()

    def _dial_later(self, resource: str, path: str, options: Any) -> None:
        try:
            self._connect(resource, path, options)
        except ConnectionError as error:
            self.books.note("dial failed", resource, str(error))

    def _watched(self, resource: str, path: str) -> Endpoint:
        """A plugin that the watcher found. Every kubelet dials and asks for the options before it says so."""
        return self._connect(resource, path)

    def _connect(self, resource: str, path: str, options: Any = None) -> Endpoint:
        """Dial, ask for the options unless they are given, begin the stream. Raises ConnectionError, grpc.RpcError."""
        books = self.books
        repeated = [
            endpoint
            for endpoint in books.connected.get(resource, [])
            if endpoint.socket == path and endpoint.watching and self.personality.repeats != ACCEPTED
        ]
        if repeated and self.personality.repeats == REFUSED:
            raise ConnectionError(f"device plugin for {resource} is already connected at {path}")
        if repeated:
            return repeated[0]
        endpoint = Endpoint(resource, path, options)
        endpoint.dial(self.dial)
        if options is None:
            try:
                endpoint.ask_options()
            except grpc.RpcError:
                endpoint.close()
                raise
            books.note("GetDevicePluginOptions", resource, endpoint.options)
        books.connect(endpoint)
        endpoint.watch(books.received, books.ended)
        books.note("ListAndWatch", resource, path)
        return endpoint

    def drop(self, resource: str) -> None:
        """Drop the streams of a resource, from this side."""
        with self.books.lock:
            endpoints = list(self.books.connected.get(resource, []))
        for endpoint in endpoints:
            endpoint.drop()

    @property
    def front(self) -> Front:
        """The registry socket of the running process, for faults at its door."""
        if self._front is None:
            raise RuntimeError("the kubelet does not run")
        return self._front

    # -- pods ------------------------------------------------------------------------------------

    def admit(self, pod: Pod) -> dict[str, dict[str, Any]]:
        """Admit a pod and start its containers; what the runtime is told for each. Raises Rejected, grpc.RpcError."""
        self._admission.admit(pod)
        self.pods[pod.uid] = pod
        return {name: self._admission.start(pod, name) for name, _wanted in pod.all()}

    def run(self, uid: str, **resources: int) -> dict[str, Any]:
        """Admit a pod of one container; resources by name (`**{"vendor.com/gpu": 2}`)."""
        return self.admit(Pod(uid, {"main": resources}))["main"]

    def restart_container(self, uid: str, container: str = "main") -> dict[str, Any]:
        """A container of a pod dies and is started again: no Allocate, the same answer."""
        return self._admission.start(self.pods[uid], container)

    def delete(self, uid: str) -> None:
        """The pod ends. Its devices are free when the kubelet next looks."""
        del self.pods[uid]
        with self.books.lock:
            self.books.active.discard(uid)

    def holds(self, uid: str) -> dict[str, set[str]]:
        """Resource -> devices of a pod."""
        with self.books.lock:
            found: dict[str, set[str]] = {}
            for resources in self.books.held.get(uid, {}).values():
                for resource, held in resources.items():
                    found.setdefault(resource, set()).update(held.ids)
            return found

    def counts(self, resource: str) -> tuple[int, int]:
        """Capacity and allocatable of a resource."""
        capacity, allocatable = self.books.capacity()
        return capacity.get(resource, 0), allocatable.get(resource, 0)

    def wait_for(self, resource: str, allocatable: int, seconds: float = PATIENCE) -> bool:
        """Wait until so many are allocatable; whether they were in time."""
        return self.books.wait(lambda: self.counts(resource)[1] == allocatable, seconds)


if __name__ == "__main__":
    from program import main

    sys.exit(main(sys.argv[1:]))
