#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.spec: write the CDI specs of kinds, or remove that of one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: spec
short_description: Manage the CDI specs of kinds on a host
version_added: 0.1.0
description:
  - Makes the Container Device Interface (CDI) spec of one kind present, from the devices of the host or from explicit
    content, or absent.
  - Without O(kind) it makes the spec of each kind of O(devices) present, and looks at the host once for all of them.
  - The file is C(<vendor>-<class>.json) in O(spec_dir), mode C(0644), replaced atomically and durably, and only when
    it differs.
  - It has the lowest CDI version that its content fits. Device numbers are left out, so that runtimes read them at
    each container start.
  - What the container runtimes of the host can't read is not written, because a runtime refuses a whole file for one
    field or version that it doesn't know; see O(on_unsupported).
  - The file C(<state_dir>/manifest.json) records what was written and what was there before; C(fleet-cdi undo) takes
    exactly that back. A file without a record is foreign and stays unchanged unless O(force=true); for one of the same
    kind O(on_foreign_kind) decides. A spec in O(spec_dir) that has the name and the layout of those that this module
    writes is taken over with a warning, because its manifest was lost.
  - Fails, with nothing written, if the spec would define a name that another file in the same directory also defines,
    or one that a directory of higher priority overrules, or if a runtime of the host reads nothing in O(spec_dir).
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  kind:
    description:
      - The kind, C(vendor/class), of which this is the spec.
      - Without it O(devices) may have entries of any kinds, and each kind gets a spec. A kind that can't be converged
        keeps its spec and does not stop the others; the task then fails with a message for each such kind. If the
        devices of a kind can't be discovered, nothing is changed.
    type: str
  state:
    description:
      - V(present) writes the file from O(devices) or O(content). Without a device there is no file.
      - V(absent) removes the file of O(kind) that this collection wrote; O(on_held) decides about devices
        that are held.
    type: str
    choices: [present, absent]
    default: present
  devices:
    description:
      - Entries that select devices of the host, by name, as in M(fleet.cdi.device_info). With O(kind) all have to yield
        that kind.
      - If an entry has C(required=true) and no device of its kind is usable, or one that the entry names is missing,
        the task fails and changes nothing.
    type: dict
  content:
    description:
      - The spec of O(kind) itself, with C(devices) and optionally C(containerEdits), C(annotations) and
        C(cdiVersion), as in the CDI specification.
      - A hook without C(env) that runs outside of the container is written unchanged, with a warning. Some runtimes
        give it the environment of the image, so that C(LD_PRELOAD) there runs code of the image on the host.
    type: dict
  managed_by:
    description:
      - Who asks for this spec, in a word that RV(fleet.cdi.spec_info#module:specs[].managed_by) returns. Role
        P(fleet.cdi.cdi_host#role) tells by it which specs are its own to take back.
    type: str
    default: ""
  on_unsupported:
    description:
      - What to do with a field that the version of some runtime in RV(runtimes) is too old, or too new, for.
      - V(drop) leaves it out, with a warning that names field and runtime, where the container still gets the device
        without it - C(annotations), C(additionalGids), C(intelRdt), C(netDevices), the C(type) of a bind mount, and a
        C(cdiVersion) higher than needed.
      - V(fail) refuses instead.
      - Both refuse where nothing may be left out - C(hostPath) of a device node, a device name that starts with a
        digit, a class with a dot, the C(type) of any other mount, and the only edit of a device.
    type: str
    choices: [drop, fail]
    default: drop
  on_foreign_kind:
    description:
      - What to do where another tool already provides O(kind), that is, where a spec of that kind lies in a spec
        directory that this collection did not write. It counts for O(devices); O(content) may add names to a kind.
      - V(use) writes no spec and serves the other one; the devices are in O(device_list) all the same. A spec that this
        collection wrote earlier makes room. If no runtime of the host resolves a name of the kind in the other spec,
        that is an error.
      - V(fail) refuses.
      - V(replace) removes the other spec and writes this one. The other spec is kept in the manifest. It comes back
        when the kind is removed, with V(use), and by undo. A warning says what to disable, so that the other tool
        doesn't write it again.
    type: str
    choices: [use, fail, replace]
    default: use
  on_held:
    description:
      - What to do with a device that is no longer asked for while it is held. That is, while a request was
        granted it, or a container of C(podman) or C(docker), running or stopped, was made with it. An engine resolves
        the name again at every start, so that without the spec such a container can't be restarted.
      - The same counts for a name that containers of these engines were made with, if O(devices) changed and would give
        it to another device or to none. Under V(keep) its device keeps it, besides its new names.
      - V(keep) leaves it in the spec until it is free, with a warning that names who holds it. What requests hold goes
        with the next refresh after they gave it back, what containers have with the next run of this module after they
        were removed.
      - The containers of a C(docker) that has stopped are read from its files. If an engine does not answer, or if a
        container of a stopped C(docker) runs on and these files do not name it, nobody can tell what its containers
        have. Then each device that would go counts as held, and the warning or the error names the engine.
      - V(fail) refuses, with nothing changed.
      - V(drop) removes it anyway.
      - Where our spec makes room for one of another tool (O(on_foreign_kind)), no held device can stay in it. Under
        V(keep) a warning then names who holds one by a name that the other spec does not offer.
      - Containers of containerd and CRI-O are not asked. What pods got from the device plugin of this collection is
        granted; of pods with another plugin and of C(nerdctl) nothing is known. Nor are containers of an ordinary
        user's podman seen.
    type: str
    choices: [keep, fail, drop]
    default: keep
  runtime_versions:
    description:
      - The runtimes that are to read the spec, by name (V(docker), V(podman), V(containerd), V(cri-o)), with their
        versions. Name them for an image in which they are not installed yet, or where one of those installed is not
        to count.
      - Empty means those that are installed. Each is asked by C(--version) of its own program (C(dockerd), not the
        client C(docker)); none is started.
    type: dict
    default: {}
  spec_dir:
    description:
      - The spec directory. It is made if it is missing.
      - A directory other than C(/etc/cdi) and C(/var/run/cdi) counts alone. Then files in these two are neither a
        conflict nor a provider of the kind, also if a runtime reads them too.
    type: path
    default: /etc/cdi
  root:
    description:
      - Work on the image that is mounted there instead of on the host. Every other path is inside the image, and no
        link leads out of it. O(devices) are found in the C(/sys) that the image holds, as that of a dump. Without
        O(runtime_versions) the runtimes inside are asked. O(device_list) is not written, because an image has not
        booted. Needs root.
    type: path
    default: /
  device_list:
    description:
      - The file that lists the devices behind the specs for this boot. O(devices) are listed in it; an empty string
        writes none.
    type: str
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory of the manifest.
    type: path
    default: /var/lib/cdi
  force:
    description:
      - Replace or remove a foreign file. Its content is kept in the manifest, and undo puts it back.
    type: bool
    default: false
notes:
  - Discovery reads sysfs; where the Python binding C(pyudev) is at hand, udev's properties and links are used too.
seealso:
  - module: fleet.cdi.spec_info
  - module: fleet.cdi.device_info
  - name: CDI specification
    description: Container Device Interface specification.
    link: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

EXAMPLES = r"""
- name: Offer the virtual consoles from tty13 on
  fleet.cdi.spec:
    kind: fleet.cdi/tty
    devices:
      consoles:
        profile: tty
        num_system_reserved: 12

- name: Offer the virtual consoles and /dev/fuse, each kind in a spec of its own
  fleet.cdi.spec:
    devices:
      consoles:
        profile: tty
      fuse:
        profile: misc
        nodes: [fuse]

- name: Offer one node under another path
  fleet.cdi.spec:
    kind: example.com/scanner
    content:
      devices:
        - name: front-desk
          containerEdits:
            deviceNodes:
              - path: /dev/scanner
                hostPath: /dev/ttyS0

- name: Write a spec into an image that will have docker 26.1, and nothing that it could not read
  fleet.cdi.spec:
    kind: example.com/scanner
    content: "{{ scanner }}"
    runtime_versions:
      docker: 26.1.5
    on_unsupported: fail

- name: Offer a device in an image that is mounted
  fleet.cdi.spec:
    root: /mnt/image
    kind: example.com/scanner
    content: "{{ scanner }}"
    runtime_versions:
      podman: 4.9.3

- name: Take a spec back
  fleet.cdi.spec:
    kind: example.com/scanner
    state: absent
"""

RETURN = r"""
path:
  description: The file of this kind.
  returned: with O(kind)
  type: str
  sample: /etc/cdi/fleet.cdi-tty.json
kind:
  description: The kind.
  returned: with O(kind)
  type: str
  sample: fleet.cdi/tty
cdi_version:
  description: The CDI version of the spec; empty where there is to be no file.
  returned: with O(kind)
  type: str
  sample: 0.3.0
names:
  description: The qualified names that the spec defines.
  returned: with O(kind)
  type: list
  elements: str
  sample:
    - fleet.cdi/tty=tty13
    - fleet.cdi/tty=tty14
foreign:
  description: Specs of other tools that provide O(kind), or did before this one replaced them.
  returned: with O(kind)
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      type: str
      sample: /var/run/cdi/nvidia.yaml
    tool:
      description: The tool that is known to write such a file, as far as its name says.
      type: str
      sample: NVIDIA Container Toolkit
    disable:
      description: How to keep that tool from writing it again.
      type: str
      sample: no `amd-ctk cdi generate` in boot scripts
    names:
      description: The qualified names that it offers.
      type: list
      elements: str
      sample: ["nvidia.com/gpu=0"]
    seen_by:
      description:
        - The releases of the CDI library that read it. Each stands for all up to the next, V(newer) for those that are
          not yet known.
      type: list
      elements: str
      sample: ["1.1.0", "1.1.1"]
held:
  description: Devices that stay in the spec though nothing asks for them any more, because they are held.
  returned: with O(kind)
  type: list
  elements: dict
  contains:
    names:
      description: The qualified names of the device.
      type: list
      elements: str
      sample: ["fleet.cdi/tty=tty13"]
    by:
      description:
        - Requests, with the configuration that granted the device, and containers. For each engine that could not be
          asked C(a container, maybe), with the reason.
      type: list
      elements: str
      sample: ["request job-42 (tty/generic-tty)", "container web (podman, running)"]
runtimes:
  description:
    - The container runtimes that the spec was fitted to, those of O(runtime_versions) or those found. Empty without a
      spec.
  returned: with O(kind)
  type: list
  elements: dict
  contains:
    name:
      description: C(docker), C(podman), C(containerd) or C(cri-o).
      type: str
      sample: podman
    version:
      description: Its version.
      type: str
      sample: 4.3.1
    path:
      description: Its program; empty for one of O(runtime_versions).
      type: str
      sample: /usr/bin/podman
    reads:
      description: The newest CDI version that it reads; empty for a release from before CDI, which limits nothing.
      type: str
      sample: 0.5.0
kinds:
  description: What was done for each kind, by name; without the kinds that could not be converged.
  returned: without O(kind)
  type: list
  elements: dict
  contains:
    changed:
      description: Whether the spec of the kind, its settings in the manifest or its devices in O(device_list) changed.
      type: bool
      sample: true
    path:
      description: The file of this kind.
      type: str
      sample: /etc/cdi/fleet.cdi-tty.json
    kind:
      description: The kind.
      type: str
      sample: fleet.cdi/tty
    cdi_version:
      description: The CDI version of the spec; empty where there is to be no file.
      type: str
      sample: 0.3.0
    names:
      description: The qualified names that the spec defines.
      type: list
      elements: str
      sample:
        - fleet.cdi/tty=tty13
        - fleet.cdi/tty=tty14
    foreign:
      description: Specs of other tools that provide O(kind), or did before this one replaced them.
      type: list
      elements: dict
      contains:
        path:
          description: The file.
          type: str
          sample: /var/run/cdi/nvidia.yaml
        tool:
          description: The tool that is known to write such a file, as far as its name says.
          type: str
          sample: NVIDIA Container Toolkit
        disable:
          description: How to keep that tool from writing it again.
          type: str
          sample: no `amd-ctk cdi generate` in boot scripts
        names:
          description: The qualified names that it offers.
          type: list
          elements: str
          sample: ["nvidia.com/gpu=0"]
        seen_by:
          description:
            - The releases of the CDI library that read it. Each stands for all up to the next, V(newer) for those that
              are not yet known.
          type: list
          elements: str
          sample: ["1.1.0", "1.1.1"]
    held:
      description: Devices that stay in the spec though nothing asks for them any more, because they are held.
      type: list
      elements: dict
      contains:
        names:
          description: The qualified names of the device.
          type: list
          elements: str
          sample: ["fleet.cdi/tty=tty13"]
        by:
          description:
            - Requests, with the configuration that granted the device, and containers. For each engine that could not
              be asked C(a container, maybe), with the reason.
          type: list
          elements: str
          sample: ["request job-42 (tty/generic-tty)", "container web (podman, running)"]
    runtimes:
      description:
        - The container runtimes that the spec was fitted to, those of O(runtime_versions) or those found. Empty
          without a spec.
      type: list
      elements: dict
      contains:
        name:
          description: C(docker), C(podman), C(containerd) or C(cri-o).
          type: str
          sample: podman
        version:
          description: Its version.
          type: str
          sample: 4.3.1
        path:
          description: Its program; empty for one of O(runtime_versions).
          type: str
          sample: /usr/bin/podman
        reads:
          description: The newest CDI version that it reads; empty for a release from before CDI, which limits nothing.
          type: str
          sample: 0.5.0
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "kind": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "devices": {"type": "dict"},
        "content": {"type": "dict"},
        "on_unsupported": {"type": "str", "choices": ["drop", "fail"], "default": "drop"},
        "on_foreign_kind": {"type": "str", "choices": ["use", "fail", "replace"], "default": "use"},
        "on_held": {"type": "str", "choices": ["keep", "fail", "drop"], "default": "keep"},
        "runtime_versions": {"type": "dict", "default": {}},
        "spec_dir": {"type": "path", "default": "/etc/cdi"},
        "root": {"type": "path", "default": "/"},
        "device_list": {"type": "str", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "force": {"type": "bool", "default": False},
        "managed_by": {"type": "str", "default": ""},
        **on_host.ARGUMENTS,
    },
    "mutually_exclusive": [("devices", "content")],
    "required_if": [("state", "present", ("devices", "content"), True), ("state", "absent", ("kind",))],
    "required_by": {"content": ("kind",)},
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "spec")


if __name__ == "__main__":
    main()
