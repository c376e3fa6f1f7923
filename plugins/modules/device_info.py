#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.device_info: the devices of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: device_info
short_description: Find the devices of a host that containers can use
version_added: 0.1.0
description:
  - Finds GPUs, consoles and whatever else has a device node, and tells their names in the Container Device
    Interface (CDI), device nodes, PCI address, NUMA node, driver, identity and health. It reads C(/sys), and asks
    udev for what its rules add.
  - The same runs on a mounted image or on a dump of another host, see O(root).
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.info_module
  - fleet.cdi.on_host
requirements:
  - >-
    Optional: pyudev, packaged as C(python3-pyudev). Where the Python in use lacks it and the system's has it, the
    module runs under the system's. Without it there is a warning, and what only udev knows is left out.
options:
  devices:
    description:
      - What to look for, as a dictionary of entries. The name of an entry is free.
      - Without this option every profile but V(rule) is used with its defaults.
      - "C(profile), required in each entry, is the family: V(drm) (GPUs, C(/dev/dri/*)), V(tty) (virtual consoles),
        V(misc) (C(/dev/fuse), C(/dev/kvm), C(/dev/net/tun) and others of the class) or V(rule) (anything, by
        C(match))."
      - C(kind) is the kind of the devices. By default C(fleet.cdi/gpu) for V(drm), C(fleet.cdi/tty),
        C(fleet.cdi/misc), and C(fleet.cdi/) with the name of the entry for V(rule).
      - "C(name_by) lists how devices are named: V(index) (counted in the order of PCI addresses), V(pci),
        V(serial), V(uuid), V(sysname) (as in C(/sys)). A device gets a name of each sort that it has. The default
        is V([index]) for V(drm) and V(rule), V([sysname]) for V(tty) and V(misc)."
      - C(required) set to V(true) makes it an error if nothing is found, V(false) keeps silent; by default there is
        a warning.
      - C(container_path) is the path of a node in the container, C(env) a dictionary of variables for it. Both may
        hold C({index}), C({name}), C({sysname}), C({pci_address}) and C({path}).
      - C(want_device_nodes) lists the nodes of V(drm), of V(primary), V(render), V(control); C(vendorid_whitelist)
        the PCI vendors, as V("0x10de").
      - C(topology_file) is the absolute path of a file on the host that says how the devices are wired, where the host
        does not show it, as in most virtual machines. It is a topology file of NCCL or RCCL, or the XML of hwloc.
      - C(num_system_reserved) is the number of the last console that V(tty) leaves to the system, V(12) by default.
      - C(nodes) lists the nodes that V(misc) takes, as V(net/tun).
      - "C(match) of V(rule) holds conditions, which all have to hold: C(subsystem), C(driver) and C(node) with
        shell patterns, C(pci_vendor), C(pci_device), C(pci_class) (its start will do) in hexadecimal, and
        C(attributes), a dictionary of shell patterns for attributes of the device or of what it sits on. Each may
        be a list, of which one has to match."
      - C(group_by) of V(rule) is V(parent), which makes one device of all nodes on the same hardware, or V(none).
    type: dict
  root:
    description:
      - The root directory of the host to look at. Another one than V(/) is a mounted image or a dump; udev is not
        asked then.
    type: path
    default: /
  state_dir:
    description:
      - Where M(fleet.cdi.device_state) keeps which devices of this host are out of service.
    type: path
    default: /var/lib/cdi
  gather:
    description:
      - What to return beyond the ordinary. V(properties) are all of udev's for the first node of each device.
        V(links) adds RV(topology), how the devices are wired.
    type: list
    elements: str
    choices: [links, properties]
    default: []
seealso:
  - module: fleet.cdi.spec
"""

EXAMPLES = r"""
- name: Find everything that the profiles know
  fleet.cdi.device_info:
  register: found

- name: Find the eight vector engines of this server, named by index and serial number
  fleet.cdi.device_info:
    devices:
      ve:
        profile: rule
        match:
          driver: ve_drv
        name_by: [index, serial]
        required: true
  register: engines

- name: Show which device sits where
  ansible.builtin.debug:
    msg: "{{ item.qualified_names[0] }} is {{ item.nodes[0].path }} on NUMA node {{ item.numa_node }}"
  loop: "{{ engines.devices }}"
  loop_control:
    label: "{{ item.id }}"
"""

RETURN = r"""
devices:
  description: The devices, by entry and within an entry in the order of V(index).
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: What the device is known by, also after a reboot.
      type: str
      sample: pci:0000:1b:00.0
    profile:
      description: The profile that found it.
      type: str
      sample: rule
    kind:
      description: Its kind.
      type: str
      sample: fleet.cdi/ve
    names:
      description: Its names within the kind.
      type: list
      elements: str
      sample: ["0", "32424a32333030343900000000000000"]
    qualified_names:
      description: Its names as a container runtime takes them.
      type: list
      elements: str
      sample: ["fleet.cdi/ve=0", "fleet.cdi/ve=32424a32333030343900000000000000"]
    nodes:
      description: Its device nodes. C(container_path) is empty where it is C(path), C(role) where all are of one sort.
      type: list
      elements: dict
      sample: [{"path": "/dev/ve0", "type": "c", "major": 238, "minor": 0, "role": "", "container_path": ""}]
    subsystem:
      description: The class of its first node.
      type: str
      sample: ve
    driver:
      description: The driver of the hardware, empty without one.
      type: str
      sample: ve_drv
    pci_address:
      description: The PCI function that it is or sits on.
      type: str
      sample: "0000:1b:00.0"
    vendor_id:
      description: The vendor, of PCI or USB.
      type: str
      sample: "0x1bcf"
    device_id:
      description: The model, of PCI or USB.
      type: str
      sample: "0x001c"
    pci_class:
      description: The PCI class.
      type: str
      sample: "0x0b4000"
    serial:
      description: The serial number, empty without one.
      type: str
      sample: "32424a32333030343900000000000000"
    uuid:
      description: The universally unique id, empty without one.
      type: str
      sample: ""
    numa_node:
      description: The NUMA node next to it; null where the host does not say.
      type: int
      sample: 0
    pcie_path:
      description: Where it sits in the PCIe tree, from the host bridge down, without itself; empty if not known.
      type: list
      elements: str
      sample: ["pci0000:17", "0000:17:00.0", "0000:18:00.0", "0000:19:08.0"]
    nic_relation:
      description: How near the nearest network card is to an accelerator, in the words of RV(topology.relations); empty
        where that is not known, and for other devices.
      type: str
      sample: PIX
    partition:
      description: The profile of a partition, as its vendor calls it; empty for what is none, or does not say.
      type: str
      sample: 1g.5gb
    env:
      description: Variables for the container.
      type: list
      elements: str
      sample: []
    health:
      description: Whether it can be used. C(state) is V(healthy), V(unknown), V(unhealthy), or V(reserved) for
        one that is well but in use by the host itself or out of service (M(fleet.cdi.device_state)); C(reason)
        says why.
      type: dict
      sample: {"state": "unhealthy", "reason": "/dev/net/tun: No such file or directory"}
    symlinks:
      description: The symlinks that udev made to its nodes.
      type: list
      elements: str
      sample: []
    properties:
      description: What udev knows of its first node.
      returned: O(gather) has V(properties)
      type: dict
      sample: {"DEVNAME": "/dev/fuse", "MAJOR": "10", "MINOR": "229", "SUBSYSTEM": "misc"}
topology:
  description: How the devices are wired. Devices that are on no PCI function are left out.
  returned: O(gather) has V(links)
  type: dict
  contains:
    places:
      description: The places that devices are in. Devices in one place are equally near to everything else.
      type: list
      elements: dict
      contains:
        devices:
          description: What the devices are known by.
          type: list
          elements: str
          sample: ["pci:0000:1b:00.0"]
        pcie_path:
          description: The way to the place from the host bridge down.
          type: list
          elements: str
          sample: ["pci0000:17", "0000:17:00.0", "0000:18:00.0", "0000:19:08.0"]
        numa_node:
          description: The NUMA node next to it; null where the host does not say.
          type: int
          sample: 0
        nics:
          description: The nearest network functions with the names of their interfaces.
          type: list
          elements: dict
          sample: [{"id": "pci:0000:1a:00.0", "names": ["mlx5_0", "ib0"]}]
        nics_relation:
          description: How near they are, in the words of RV(topology.relations).
          type: str
          sample: PIX
    relations:
      description:
        - How near each place is to each, a list for every place in the order of RV(topology.places).
        - V(PIX) is through at most one PCIe switch, V(PXB) through several, V(PHB) through a host bridge, V(NODE)
          through several of them in a NUMA node, V(SYS) between NUMA nodes; empty where the host does not say.
      type: list
      elements: list
      sample: [["PIX", "SYS"], ["SYS", "PIX"]]
    links:
      description: Connections that are no PCIe.
      type: list
      elements: dict
      contains:
        a:
          description: What one of the devices is known by.
          type: str
          sample: pci:0000:03:00.0
        b:
          description: What the other is known by.
          type: str
          sample: pci:0000:26:00.0
        type:
          description: V(NVL) is NVLink, V(XGMI) AMD's Infinity Fabric.
          type: str
          sample: XGMI
        parallel:
          description: How many connect the two.
          type: int
          sample: 1
        bandwidth:
          description: What they carry together, in GB/s in one direction; 0 where it is not known.
          type: float
          sample: 50.0
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "devices": {"type": "dict"},
            "root": {"type": "path", "default": "/"},
            "state_dir": {"type": "path", "default": "/var/lib/cdi"},
            "gather": {"type": "list", "elements": "str", "choices": ["links", "properties"], "default": []},
            **on_host.ARGUMENTS,
        },
        supports_check_mode=True,
    )
    on_host.run(module, "device_info")


if __name__ == "__main__":
    main()
