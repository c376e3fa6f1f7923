# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The newest kubelet's device manager and topology manager on a node, without a kubelet around them.

tests/conformance/kubelet/driver is the program; its requests and answers are described there.
"""

from __future__ import annotations

import json
import subprocess

import kubelets
from node import wait


class Manager:
    """The managers, with NUMA nodes as asked for. Its devices are those of whichever plugins register."""

    def __init__(self, node):
        node.path("/var/lib/kubelet/plugins_registry").mkdir(parents=True, exist_ok=True)
        self.log = node.directory / "manager.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*node.enter, kubelets.BUILT / kubelets.DRIVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ask(self, do, **request):
        """The answer; an error of the request is one of the test."""
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def start(self, policy="none", scope="container", nodes=2):
        self.ask("start", policy=policy, scope=scope, nodes=nodes)

    def admit(self, pod, **resources):
        """A pod with one container, by the names of `resources`."""
        return self.ask("admit", pod=pod, containers={"main": resources})

    def await_allocatable(self, resource, wanted):
        """Wait until so many devices of it are allocatable; returns their IDs."""

        def look():
            found = self.ask("state").get("allocatable", {}).get(resource, [])
            return found if len(found) == wanted else None

        return wait(f"{wanted} devices of {resource}", look) if wanted else []

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
