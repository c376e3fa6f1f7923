# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet without an API server, its containerd, static pods, and what they show."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
import uuid
from typing import NamedTuple

import grpc
import images
import kubelets
import versions
from node import Node, remove_cgroups, wait
from versions import PODS

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api
from ansible_collections.fleet.cdi.plugins.module_utils.layout import kubelet_layout

LOOK = "ls -l /dev; env; cat /proc/self/mountinfo; echo END"  # what a container sees of its devices
STUCK = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}  # tried again for ever
TASKS = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"  # a directory for each container
CGROUPS = "k8s.io"  # where those of containers lie, as the kubelet names no parent (cgroupsPerQOS)
# Seconds after which a kubelet before 1.22 has done with a pod that is gone. When it sees the containers of one end, up
# to a second later, it may start them again, with devices that it takes anew, until it tidies up two seconds later.
LATE = 4
PATIENCE = 120  # seconds for whatever a kubelet does; nothing here takes ten


class Pod(NamedTuple):
    """A static pod: what its container asks for, resource -> how many; the same of one that ends before that starts,
    and the seconds that this takes."""

    name: str
    resources: dict[str, int]
    first: dict[str, int] | None = None
    takes: int = 0

    def manifest(self):
        first = container("first", self.first or {}, f"{LOOK}; busybox sleep {self.takes}")
        spec = {
            "hostNetwork": True,  # so that no CNI is needed
            "terminationGracePeriodSeconds": 1,
            "initContainers": [] if self.first is None else [first],
            "containers": [container("main", self.resources, f"{LOOK}; trap exit TERM; busybox sleep 1000000 & wait")],
        }
        # A uid, as pods of an API server have: of a static pod without each kubelet makes another one.
        metadata = {"name": self.name, "namespace": "default", "uid": str(uuid.uuid4())}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def container(name, resources, command):
    """One of a pod's containers."""
    limits = {resource: str(number) for resource, number in resources.items()}
    return {
        "name": name,
        "image": images.TOOL,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", command],
        "resources": {"limits": limits, "requests": limits},
    }


class Cluster:
    """A node with containerd and a kubelet. One kubelet can be put in the place of another."""

    def __init__(self, directory, suite):
        self.node = Node(directory, kubelets.CONTAINERDS / suite)
        self.containerd = self.kubelet = self.version = None
        try:
            self.start_containerd(versions.CONTAINERD[suite])
            self.node.path("/run/tool.tar").write_bytes(images.tool())
            self.node.run("ctr", "--namespace", "k8s.io", "images", "import", "/run/tool.tar")
        except BaseException:
            self.node.close()
            raise

    def start_containerd(self, configuration):
        """Start it with this configuration, instead of the one that runs."""
        if self.containerd:
            self.containerd.stop()
        self.node.path("/etc/containerd").mkdir(exist_ok=True)
        self.node.path("/etc/containerd/config.toml").write_text(configuration)
        self.containerd = self.node.start("containerd", ["containerd", "--config", "/etc/containerd/config.toml"])
        wait("containerd", lambda: self.node.attempt("ctr", "version").returncode == 0, PATIENCE, 0.3)

    # -- the kubelet

    def start_kubelet(self, version=None, **settings):
        """Start it, of the version as before or of another one; `settings` go into its configuration.

        Returns when it answers.
        """
        self.launch_kubelet(version, **settings)
        wait("the kubelet", self._answers, PATIENCE, 0.2)

    def launch_kubelet(self, version=None, **settings):
        """The same, without waiting."""
        self.version = version = version or self.version
        for path in (PODS, "/var/lib/kubelet"):
            self.node.path(path).mkdir(parents=True, exist_ok=True)
        configuration, arguments = versions.settings(version)
        configuration.update(cgroupRoot=f"/{self.node.name}", **settings)
        self.node.path("/etc/kubernetes/kubelet.json").write_text(json.dumps(configuration))
        command = [kubelets.program(version.kubelet), "--config", "/etc/kubernetes/kubelet.json", "--v=4"]
        self.kubelet = self.node.start("kubelet", [*command, "--hostname-override=node", *arguments])

    def _answers(self):
        assert self.kubelet.process.poll() is None, f"the kubelet ended: {self.kubelet.tail()}"
        return self.pods() is not None

    def stop_kubelet(self, number=signal.SIGKILL):
        self.kubelet.stop(number)
        self.kubelet = None

    def restart_kubelet(self, version=None, **settings):
        self.stop_kubelet()
        self.start_kubelet(version, **settings)

    def pods(self):
        """Name -> the pod with its status, as the kubelet answers; None where it doesn't."""
        done = self.node.attempt("busybox", "wget", "-q", "-O-", "http://127.0.0.1:10255/pods")
        if done.returncode != 0:
            return None
        found = json.loads(done.stdout).get("items") or []
        return {pod["metadata"]["name"].removesuffix("-node"): pod for pod in found}

    # -- pods

    def create(self, resources, **settings):
        """Ask for a pod of a new name; returns its name."""
        return self.submit(Pod(f"pod-{uuid.uuid4().hex[:6]}", resources, **settings).manifest())

    def submit(self, manifest):
        """Ask for a static pod; written by a rename, so that the kubelet never reads half of it."""
        name = manifest["metadata"]["name"]
        unfinished = self.node.path("/etc/kubernetes") / f"{name}.json"
        unfinished.write_text(json.dumps(manifest))
        os.rename(unfinished, self.node.path(PODS) / unfinished.name)
        return name

    def delete(self, *names):
        """Take pods away, and wait until the kubelet has let them go."""
        for name in names:
            (self.node.path(PODS) / f"{name}.json").unlink(missing_ok=True)
        wait(f"{names} gone", lambda: (found := self.pods()) is not None and not set(names) & set(found), PATIENCE, 0.2)
        ended, late = time.monotonic(), LATE if names and self.version.minor < 22 else 0

        def let_go():
            nonlocal ended
            if any(self.containers(name, "container", "sandbox") for name in names):
                ended = time.monotonic()
                return False
            return time.monotonic() >= ended + late

        wait(f"containers of {names} gone", let_go, PATIENCE, 0.2)

    def clear(self):
        """Have every pod deleted, and the kubelet run."""
        if self.kubelet is None:
            self.start_kubelet()
        self.delete(*[path.stem for path in self.node.path(PODS).glob("*.json")])

    def containers(self, name, *kinds):
        """The ids of a pod's running containers, or of what `kinds` names, as containerd has them."""
        pod = f'labels."io.kubernetes.pod.name"=={name}-node'
        asked = [f'{pod},labels."io.cri-containerd.kind"=={kind}' for kind in kinds or ("container",)]
        listed = self.node.run("ctr", "--namespace", "k8s.io", "containers", "list", "--quiet", *asked).split()
        tasks = self.node.run("ctr", "--namespace", "k8s.io", "tasks", "list").splitlines()
        running = {line.split()[0] for line in tasks if "RUNNING" in line}
        return [one for one in listed if one in running]

    def settled(self, name):
        """Wait until the pod runs, or can't; returns its status."""

        def outcome():
            status = (self.pods() or {}).get(name, {}).get("status", {})
            states = [one.get("state", {}) for one in status.get("containerStatuses", [])]
            waiting = [state["waiting"].get("reason") for state in states if "waiting" in state]
            if status.get("phase") in ("Failed", "Succeeded"):
                return status
            return status if any("running" in state for state in states) or STUCK & set(waiting) else None

        return wait(f"{name} settled", outcome, PATIENCE, 0.2)

    def output(self, name):
        """What the container of a running pod printed, without the END."""
        status = self.settled(name)
        assert status["phase"] == "Running", status

        def lines():
            logs = sorted(self.node.path("/var/log/pods").glob(f"default_{name}-node_*/main/*.log"))
            text = logs[-1].read_text() if logs else ""
            said = [line.split(" ", 3)[3] for line in text.splitlines() if line.count(" ") >= 3]
            return said if said[-1:] == ["END"] else None

        return "\n".join(wait(f"the output of {name}", lines, PATIENCE)[:-1])

    def kill(self, name):
        """Kill the container of a running pod; returns its id."""
        (found,) = self.containers(name)
        self.node.run("ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", found)
        return found

    def crash(self, name):
        """The same, and wait until the kubelet has started another one."""
        before = self.kill(name)
        wait(f"another container of {name}", lambda: set(self.containers(name)) - {before}, PATIENCE, 0.2)

    @contextlib.contextmanager
    def allocation_asked(self):
        """Wait after the block until the kubelet has asked a plugin for devices, answered or not."""
        before = self.kubelet.log.stat().st_size
        yield

        def said():
            with self.kubelet.log.open("rb") as log:
                log.seek(before)
                return re.search(b"Issuing an? GetPreferredAllocation|Making allocation request", log.read())

        wait("the kubelet's call of the plugin", said, PATIENCE)

    # -- devices, as the kubelet has them

    def _ask(self, method):
        target = self.node.path(kubelet_layout().pod_resources)
        options = [("grpc.max_receive_message_length", -1)]
        with contextlib.closing(grpc.insecure_channel(f"unix:{target}", options)) as channel:
            request = {"List": "ListPodResourcesRequest", "GetAllocatableResources": "AllocatableResourcesRequest"}
            call = getattr(api.stub(channel, "v1.PodResourcesLister"), method)
            return call(getattr(api.podresources, request[method])(), timeout=5)

    def in_use(self):
        """Pod name -> resource -> the device IDs that it holds."""
        found = {}
        for pod in self._ask("List").pod_resources:
            for container in pod.containers:
                for one in container.devices:
                    held = found.setdefault(pod.name.removesuffix("-node"), {})
                    held.setdefault(one.resource_name, set()).update(one.device_ids)
        return found

    def held(self, name, resource):
        """The device IDs that a pod holds; a kubelet lists a pod some moments after it runs."""
        return wait(f"{name} among those that hold {resource}", lambda: self.in_use().get(name, {}).get(resource))

    def allocatable(self, resource, since=0.0):
        """The IDs of a resource that the kubelet would allocate.

        A kubelet before 1.21 doesn't say. It writes them down whenever a plugin tells it something, but not when one
        goes: what it wrote before `since` (seconds, as time.time) is no answer, and None.
        """
        try:
            if self.version.minor >= 21:
                devices = self._ask("GetAllocatableResources").devices
                return {ident for one in devices if one.resource_name == resource for ident in one.device_ids}
            checkpoint = self.node.path(kubelet_layout().plugin_dir) / "kubelet_internal_checkpoint"
            written = checkpoint.stat().st_mtime
            found = json.loads(checkpoint.read_text())["Data"]["RegisteredDevices"]
            return set((found or {}).get(resource) or ()) if written >= since else None
        except (grpc.RpcError, OSError, ValueError):
            return None

    def now(self):
        """A moment for `since`; the clock of files is a tick behind."""
        return time.time() - 0.02

    def await_allocatable(self, resource, wanted, since=0.0, needs=None):
        """Wait until these are the allocatable IDs, while the program `needs` runs; returns time.time() of then."""
        what = f"{resource}: {sorted(wanted)} allocatable"

        def look():
            assert needs is None or needs.process.poll() is None, f"{what}: its program ended"
            return self.allocatable(resource, since) == wanted

        try:
            wait(what, look, PATIENCE / 2, 0.02)
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {self.allocatable(resource)}") from None
        return time.time()

    def socket_age(self):
        """When the kubelet that runs made its socket, as time.time."""
        return (self.node.path(kubelet_layout().plugin_dir) / api.KUBELET_SOCKET).stat().st_ctime

    def close(self):
        """End everything; containers that end with the node leave cgroups, which runc can no longer remove."""
        left = [path.name for path in self.node.path(TASKS).glob("*")]
        self.node.close()
        for ident in left:
            remove_cgroups(f"{CGROUPS}/{ident}")
