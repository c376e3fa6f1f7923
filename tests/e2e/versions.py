# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelets and containerds that tests run with, and how each is configured."""

from __future__ import annotations

from typing import NamedTuple

import images

PODS = "/etc/kubernetes/pods"  # static ones
LABEL = "fleet.cdi/device-plugin=true"  # of the nodes that examples/kubernetes is for
CONTAINERD_SOCKET = "unix:///run/containerd/containerd.sock"


class Version(NamedTuple):
    """A kubelet and the containerd that goes with it."""

    kubelet: str
    suite: str  # of Debian, whose containerd
    gates: dict[str, bool]

    @property
    def minor(self):
        return int(self.kubelet.split(".")[1])


# containerd 2 no longer speaks the CRI of kubelets before 1.23.
VERSIONS = {
    "1.36": Version("1.36.3", "sid", {"ResourceHealthStatus": True}),
    "1.30-without-cdi": Version("1.30.14", "trixie", {"DevicePluginCDIDevices": False}),
    "1.20": Version("1.20.2", "trixie", {}),
}

# Without the right to raise limits a sandbox can't be protected from the OOM killer. In 1.7 CDI is off by default.
CONTAINERD = {
    "trixie": f"""
version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/run/cdi"]
restrict_oom_score_adj = true
disable_apparmor = true
sandbox_image = "{images.TOOL}"
""",
    "sid": f"""
version = 3
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{images.TOOL}"
""",
}


def settings(version):
    """A KubeletConfiguration for a node without an API server, and the arguments for what is not in it yet."""
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": PODS,
        "address": "127.0.0.1",
        "readOnlyPort": 10255,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "fileCheckFrequency": "1s",
        "syncFrequency": "5s",
        "evictionHard": {"nodefs.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "featureGates": version.gates,
    }
    arguments = [f"--node-labels={LABEL}"]
    if version.minor >= 27:
        document["containerRuntimeEndpoint"] = CONTAINERD_SOCKET
    else:
        arguments += ["--container-runtime=remote", f"--container-runtime-endpoint={CONTAINERD_SOCKET}"]
    if version.minor >= 35:
        document["failCgroupV1"] = False  # where the machine's are v1
    return document, arguments
