# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command in a container as a kubelet does, by containerd's CRI, and print what it prints.

    cri.py IMAGE COMMAND [DEVICE]   DEVICE is a qualified name; exit status 1 and the reason if the runtime refuses

The environment variable CGROUP_PARENT names a slice of systemd, for a runtime with systemd cgroups.

Debian packages no crictl; python3-grpcio it does. Messages are written by hand: the numbers are those of
k8s.io/cri-api, pkg/apis/runtime/v1/api.proto. Runs inside a container host of test_runtimes.py.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from typing import Union

import grpc

LOGS = "/var/log/cri"
NODE = 2  # NamespaceMode: the host's own network, so that no CNI is needed


def varint(number: int) -> bytes:
    """A number as protobuf has it."""
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: Union[int, str, bytes]) -> bytes:
    """One field: a number, a text, or a message that is already bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def main(image: str, command: str, device: str = "") -> str:
    """Sandbox, container, its log; the container host is thrown away, so nothing is removed. Returns what is wrong."""
    channel = grpc.insecure_channel("unix:///run/containerd/containerd.sock")

    def call(method: str, *fields: bytes) -> str:
        """The first field of the reply, which is the id for all that are asked here."""
        reply = channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(b"".join(fields), timeout=60)
        return bytes(reply[2:]).decode()

    name = uuid.uuid4().hex
    os.makedirs(LOGS, exist_ok=True)
    network = field(2, field(1, field(1, NODE)))  # linux.security_context.namespace_options.network
    parent = field(1, os.environ["CGROUP_PARENT"]) if os.environ.get("CGROUP_PARENT") else b""
    pod = field(1, field(1, name) + field(2, name) + field(3, "test")) + field(3, LOGS) + field(8, parent + network)
    words = b"".join(field(3, word) for word in ("/bin/sh", "-c", f"{command}; echo END"))
    devices = field(17, field(1, device)) if device else b""
    config = field(1, field(1, name)) + field(2, field(1, image)) + words + field(11, name) + devices
    try:
        sandbox = call("RunPodSandbox", field(1, pod))
        container = call("CreateContainer", field(1, sandbox), field(2, config), field(3, pod))
        call("StartContainer", field(1, container))
    except grpc.RpcError as error:
        return str(error.details())
    for _try in range(300):
        with open(f"{LOGS}/{name}", encoding="utf-8") as log:
            whole = [line[:-1] for line in log if line.endswith("\n")]
        lines = [line.split(" ", 3)[3] for line in whole]  # "<time> stdout F <line>"
        if lines[-1:] == ["END"]:
            sys.stdout.write("\n".join(lines[:-1]))
            return ""
        time.sleep(0.1)
    return f"{command} did not end"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
