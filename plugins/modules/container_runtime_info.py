#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.container_runtime_info: show the container runtimes of a host and their CDI settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime_info
short_description: Show the container runtimes of a host and what they do with CDI
version_added: 0.1.0
description:
  - Finds docker, podman, containerd and CRI-O, those of snaps and of Kubernetes distributions too, and tells their
    release, the CDI version that they read, what their configuration says of CDI, and what their daemons run with.
  - Nothing is started and nothing written.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.info_module
  - fleet.cdi.on_host
options:
  name:
    description:
      - Only this runtime. All by default.
    type: str
    choices: [docker, podman, containerd, cri-o]
  state_dir:
    description:
      - The directory of the manifest, which says what this collection set.
    type: path
    default: /var/lib/cdi
seealso:
  - module: fleet.cdi.container_runtime
"""

EXAMPLES = r"""
- name: Look at all runtimes
  fleet.cdi.container_runtime_info:
  register: found

- name: Fail where one waits for its restart
  ansible.builtin.assert:
    that: found.runtimes | selectattr('pending_restart') | length == 0
"""

RETURN = r"""
runtimes:
  description: The runtimes, one for each program that is installed.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Which runtime it is.
      type: str
      sample: containerd
    installation:
      description: Who brought it, as O(fleet.cdi.container_runtime#module:installation) takes it.
      type: str
      sample: system
    version:
      description: Its release.
      type: str
      sample: 1.7.24~ds1
    path:
      description: Its program.
      type: str
      sample: /usr/bin/containerd
    reads:
      description: The newest CDI version that it reads; empty for a release from before CDI.
      type: str
      sample: 0.7.0
    config:
      description: Its main configuration file, there or not.
      type: str
      sample: /etc/containerd/config.toml
    files:
      description: The configuration files that it reads, in the order in which later ones overrule.
      type: list
      elements: str
      sample: [/etc/containerd/config.toml]
    enabled:
      description: Whether it reads CDI by its configuration.
      type: bool
      sample: true
    enabled_by:
      description: >-
        What says so. A file, C(command line), C(default), C(always) where there is no switch, C(none) where there is no
        CDI.
      type: str
      sample: /etc/containerd/config.toml
    spec_dirs:
      description: The directories that it reads by its configuration, lowest priority first.
      type: list
      elements: str
      sample: [/etc/cdi, /var/run/cdi]
    spec_dirs_by:
      description: What says so, as in C(enabled_by).
      type: str
      sample: default
    running:
      description: >-
        The settings that its daemon runs with, C(enabled) and C(spec_dirs); null where the daemon does not run or does
        not answer, and for a runtime without a daemon.
      type: dict
      sample: {"enabled": true, "spec_dirs": ["/etc/cdi", "/var/run/cdi"]}
    pending_restart:
      description: Whether its daemon runs with other settings than its files have, or can't be asked.
      type: bool
      sample: false
    managed:
      description: The keys that M(fleet.cdi.container_runtime) set, dotted, by file.
      type: dict
      sample: {"/etc/containerd/config.toml": ["plugins.io.containerd.grpc.v1.cri.enable_cdi"]}
    managed_by:
      description: Who asked for them; null without such keys.
      type: str
      sample: cdi_host
    error:
      description: Why its configuration can't be read; empty where it can.
      type: str
      sample: ""
    warnings:
      description: Further warnings.
      type: list
      elements: str
      sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "name": {"type": "str", "choices": ["docker", "podman", "containerd", "cri-o"]},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "container_runtime_info")


if __name__ == "__main__":
    main()
