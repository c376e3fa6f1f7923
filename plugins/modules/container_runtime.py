#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.container_runtime: turn CDI in one container runtime on or off."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime
short_description: Have a container runtime read CDI specs
version_added: 0.1.0
description:
  - Turns the Container Device Interface on or off in docker, containerd, CRI-O or podman, and sets the directories that
    it reads specs from.
  - Makes the smallest edit. It edits nothing where the runtime already has the wanted setting. It writes a file of its
    own where the runtime merges such files. Otherwise it sets one key, and keeps every comment, other key and byte.
  - The manifest lists what was set, key by key. O(state=absent) and C(fleet-cdi undo) remove exactly that. Other
    changes since stay; without other changes the files have the same bytes as before.
  - A file that is not valid JSON or TOML, or that has a key twice, is never written. Neither is a symlink, because its
    target may belong to another tool. Name the target by O(config_file) if the module may edit it.
  - After a change the module asks the program of the runtime (C(dockerd --validate), C(containerd config dump),
    C(crio config), C(podman info)). If that does not agree, or the daemon does not start again, the module restores
    the files.
  - RV(pending_restart) says whether the daemon runs with other settings than its files have. The daemon itself is
    asked, so that a later run still knows after a play that failed half-way. A daemon that can't be asked counts as
    pending, and is not restarted.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  name:
    description:
      - The runtime.
    type: str
    required: true
    choices: [docker, podman, containerd, cri-o]
  state:
    description:
      - V(enabled) turns CDI on. V(disabled) turns CDI off, also where another tool turned it on. Podman and CRI-O have
        no switch and refuse V(disabled).
      - V(absent) removes everything that this module set, also for a runtime that is not installed any more. CDI that
        was on before stays on.
    type: str
    choices: [enabled, disabled, absent]
    default: enabled
  spec_dirs:
    description:
      - The spec directories that the runtime reads, lowest priority first. By default the module does not change them.
      - Podman before 5.5 has no such setting.
    type: list
    elements: path
  installation:
    description:
      - The installation, where a host has several. V(system) is the package of the distribution or the vendor, V(snap)
        the snap of docker. V(k3s), V(rke2) and V(microk8s) are the containerd that these install.
    type: str
    choices: [system, snap, k3s, rke2, microk8s]
    default: system
  config_file:
    description:
      - The main configuration file of the runtime. Needed where it is not the usual one and the command line of the
        daemon does not name it.
    type: path
  restart:
    description:
      - Whether the module may restart the daemon. It does so only if the daemon runs with other settings than its files
        have.
      - V(when_idle) restarts only if no container ends. Docker needs C(live-restore), or no running container.
        Containers of containerd survive where its unit says C(KillMode=process), as packages have it. CRI-O only needs
        a reload.
      - The module starts no daemon that does not run.
    type: str
    choices: [never, when_idle, always]
    default: never
  on_held:
    description:
      - What to do where V(absent) or V(disabled) would turn CDI off in docker while it has containers, running or
        stopped, that were made with a CDI device. They could not be started again. The containers of a docker that
        has stopped are read from its files. A docker that does not answer, or that has stopped while a container runs
        on that these files do not name, counts as having such containers.
      - V(keep) leaves it on, with a warning that names the containers, for a later run to take; V(fail) refuses;
        V(drop) turns it off all the same.
    type: str
    choices: [keep, fail, drop]
    default: keep
  on_unsupported:
    description:
      - What to do with a release from before CDI (docker before 25.0, podman before 4.1, containerd before 1.7, CRI-O
        before 1.24). V(fail), or V(warn) and leave it alone.
    type: str
    choices: [fail, warn]
    default: fail
  state_dir:
    description:
      - The directory of the manifest.
    type: path
    default: /var/lib/cdi
  managed_by:
    description:
      - A word for who asks for this, which M(fleet.cdi.container_runtime_info) returns.
    type: str
    default: ""
seealso:
  - module: fleet.cdi.container_runtime_info
  - module: fleet.cdi.spec
"""

EXAMPLES = r"""
- name: Have docker read CDI, and restart it if no container would end
  fleet.cdi.container_runtime:
    name: docker
    restart: when_idle

- name: Have containerd read specs from one directory more
  fleet.cdi.container_runtime:
    name: containerd
    spec_dirs: [/etc/cdi, /var/run/cdi, /opt/site/cdi]

- name: Turn CDI off in the containerd of k3s
  fleet.cdi.container_runtime:
    name: containerd
    installation: k3s
    state: disabled

- name: Remove what was set in docker
  fleet.cdi.container_runtime:
    name: docker
    state: absent
"""

RETURN = r"""
name:
  description: The runtime.
  returned: success
  type: str
  sample: docker
installation:
  description: The installation of the runtime.
  returned: when the runtime is installed and not left alone
  type: str
  sample: system
version:
  description: Its release.
  returned: when the runtime is installed and not left alone
  type: str
  sample: 26.1.5+dfsg1
reads:
  description: The newest CDI version that it reads; empty for a release from before CDI.
  returned: when the runtime is installed and not left alone
  type: str
  sample: 0.7.0
enabled:
  description: Whether it reads CDI by its configuration, afterwards.
  returned: when the runtime is installed and not left alone
  type: bool
  sample: true
enabled_by:
  description: >-
    What says so. A file, C(command line), C(default), C(always) where there is no switch, C(none) where there is no
    CDI.
  returned: when the runtime is installed and not left alone
  type: str
  sample: /etc/docker/daemon.json
spec_dirs:
  description: The directories that it reads, lowest priority first.
  returned: when the runtime is installed and not left alone
  type: list
  elements: str
  sample: [/etc/cdi, /var/run/cdi]
paths:
  description: The files that were changed.
  returned: when the runtime is installed and not left alone
  type: list
  elements: str
  sample: [/etc/docker/daemon.json]
pending_restart:
  description: Whether its daemon still runs with other settings than its files have, or can't be asked.
  returned: success
  type: bool
  sample: false
restarted:
  description: Whether the daemon was restarted, or in check mode would be.
  returned: when the runtime is installed and not left alone
  type: bool
  sample: true
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "name": {"type": "str", "required": True, "choices": ["docker", "podman", "containerd", "cri-o"]},
        "state": {"type": "str", "choices": ["enabled", "disabled", "absent"], "default": "enabled"},
        "spec_dirs": {"type": "list", "elements": "path"},
        "installation": {
            "type": "str",
            "choices": ["system", "snap", "k3s", "rke2", "microk8s"],
            "default": "system",
        },
        "config_file": {"type": "path"},
        "restart": {"type": "str", "choices": ["never", "when_idle", "always"], "default": "never"},
        "on_held": {"type": "str", "choices": ["keep", "fail", "drop"], "default": "keep"},
        "on_unsupported": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "managed_by": {"type": "str", "default": ""},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "container_runtime")


if __name__ == "__main__":
    main()
