#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.device_info: find the devices of a host."""

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
      - C(profile), required in each entry, is the family of the devices. The other options of an entry depend on it.
      - C(container_path) and C(env) may hold C({index}), C({name}), C({sysname}), C({pci_address}) and C({path}).
      # Made by docs/generate.py from here ...
      - >-
        Options of every profile. C(kind) (vendor/class, each of two characters or more, as in fleet.cdi/gpu) - the kind
        of the devices. C(name_by) (a list of V(index), V(pci), V(serial), V(uuid), V(sysname), V(type-index)) - how the
        devices are named. A device gets a name of each sort that it has. C(index) counts in the order of PCI addresses,
        C(sysname) is the name in C(/sys), C(type-index) a name with the type of the device. C(container_path) (an
        absolute path, text with no fields but {index}, {name}, {sysname}, {pci_address}, {path}) - the path of a node
        in the container; by default the path on the host. C(env) (a mapping) - variables for the container. C(required)
        (true or false) - V(true) makes it an error to find nothing, or to lack a device that the entry names, V(false)
        accepts it; by default there is a warning. C(all) (true or false) - offer the name C(all), which gives every
        device of the kind. C(none) (true or false) - offer the name C(none), which gives no device. C(symlinks) (true
        or false) - a container sees a node also under the symlinks of udev, as in C(/dev/dri/by-path).
        C(additional_gids) (true or false) - the process of a container joins the groups that may use the nodes. Needs
        CDI 0.7.0. C(device_numbers) (true or false) - specs contain major and minor numbers. By default a runtime reads
        them when a container starts. C(topology_file) (an absolute path on the host, as in /etc/fleet-cdi/topology.xml)
        - a file on the host that says how the devices are wired, where the host does not show it, as in most virtual
        machines. It is a topology file of NCCL or RCCL, or the XML of hwloc.
      - >-
        Profile V(amd) - AMD GPUs that ROCm can use, whole or partitioned, with C(/dev/kfd) for all. By default C(kind)
        is V(amd.com/gpu), C(name_by) is [V(index), V(uuid)], C(all) is V(true).
      - >-
        Profile V(block) - whole disks, C(/dev/sd*), C(vd*), C(mmcblk*) and others. By default C(kind) is
        V(fleet.cdi/block), C(name_by) is [V(sysname)]. C(disks) (shell patterns of names below /dev, as in nvme1n*) -
        only these disks. Without it, a disk that is mounted, swapped to or held by another device is reserved and never
        handed out.
      - >-
        Profile V(drm) - GPUs of any vendor, C(/dev/dri/*). By default C(kind) is V(fleet.cdi/gpu), C(name_by) is
        [V(index)]. C(want_device_nodes) (a list of V(primary), V(render), V(control)) - the nodes to hand out, all by
        default. C(vendorid_whitelist) (a PCI id in quotes, as in "0x10de", or a list of them) - only GPUs of these
        vendors.
      - >-
        Profile V(dsa) - work queues of Intel's DSA with type C(user), C(/dev/dsa/wq*). By default C(kind) is
        V(intel.com/dsa), C(name_by) is [V(sysname)]. C(mode) (V(dedicated) or V(shared)) - only work queues of this
        mode.
      - >-
        Profile V(fpga) - FPGA cards, C(/dev/dfl-port.*), C(intel-fpga-port.*) and render nodes of C(xocl). By default
        C(kind) is V(fleet.cdi/fpga), C(name_by) is [V(index)]. C(want_device_nodes) (a list of V(port), V(render),
        V(management)) - the nodes to hand out, C(port) and C(render) by default. A container with C(management) can
        program the whole card.
      - >-
        Profile V(gaudi) - Intel's Gaudi with its control node and RDMA ports, C(/dev/accel/accel*). By default C(kind)
        is V(intel.com/gaudi), C(name_by) is [V(index), V(uuid)], C(all) is V(true).
      - >-
        Profile V(iaa) - work queues of Intel's IAA with type C(user), C(/dev/iax/wq*). By default C(kind) is
        V(intel.com/iaa), C(name_by) is [V(sysname)]. C(mode) (V(dedicated) or V(shared)) - only work queues of this
        mode.
      - >-
        Profile V(infiniband) - RDMA devices (InfiniBand, RoCE, iWARP), C(/dev/infiniband/*), with C(rdma_cm) for all.
        By default C(kind) is V(fleet.cdi/rdma), C(name_by) is [V(index), V(sysname)]. C(want_device_nodes) (a list of
        V(uverbs), V(umad), V(issm)) - the nodes to hand out, C(uverbs) and C(umad) by default. A container with C(issm)
        can be the subnet manager of the fabric. C(port_state) (V(active) or V(any)) - whether a device needs an active
        port to be offered, C(active) by default. C(net_devices) (true or false) - the network interfaces of a card move
        into the container with it. Needs CDI 1.1.0.
      - >-
        Profile V(intel) - Intel GPUs under i915 and xe, virtual functions included, with their links by path. By
        default C(kind) is V(intel.com/gpu), C(name_by) is [V(index), V(uuid)], C(all) is V(true), C(symlinks) is
        V(true).
      - >-
        Profile V(intel_mei) - the management engine interfaces of Intel's GPUs, C(/dev/mei*), by which programs update
        the firmware of a card. By default C(kind) is V(intel.com/gpu-mei), C(name_by) is [V(sysname)].
      - >-
        Profile V(misc) - C(/dev/fuse), C(/dev/kvm), C(/dev/net/tun) and others of the class. By default C(kind) is
        V(fleet.cdi/misc), C(name_by) is [V(sysname)]. C(nodes) (names below /dev, as in net/tun) - only these nodes.
      - >-
        Profile V(net) - network interfaces on hardware, without virtual functions. They move into the container. Needs
        CDI 1.1.0. By default C(kind) is V(fleet.cdi/net), C(name_by) is [V(sysname)]. C(interfaces) (shell patterns of
        interface names, as in ens*) - only these interfaces. Without it, an interface with a route or in a bond or
        bridge is reserved and never handed out.
      - >-
        Profile V(npu) - Intel's NPU, C(/dev/accel/accel*). By default C(kind) is V(intel.com/npu), C(name_by) is
        [V(index), V(uuid)], C(all) is V(true).
      - >-
        Profile V(nvidia) - NVIDIA GPUs, or their MIG devices, with the files of the driver. By default C(kind) is
        V(nvidia.com/gpu), C(name_by) is [V(index), V(uuid)], C(all) is V(true), C(additional_gids) is V(true).
        C(driver_root) (the directory that the driver is installed below, as in /run/nvidia/driver) - by default C(/).
        Containers see the files of the driver without this directory. C(dev_root) (the directory that has the /dev with
        the driver's nodes, as in /run/nvidia/driver) - by default C(/). Containers see the nodes in C(/dev).
        C(hook_path) (an absolute path, as in /usr/local/nvidia/toolkit/nvidia-cdi-hook) - the program of the vendor for
        hooks, C(nvidia-cdi-hook) or C(nvidia-ctk), if no usual directory has it. C(library_paths) (a list, each item an
        absolute path) - the directories of the libraries of the driver, instead of the usual ones. C(hooks) (a list of
        V(create-symlinks), V(enable-cuda-compat), V(update-ldcache), V(disable-device-node-modification),
        V(update-application-profile), V(apply-cuda-memory-limits)) - only these hooks of the vendor. An empty list
        stands for no hook. C(devices) (a list, each item an index, a UUID or a PCI address, in quotes: "0", "0:1",
        "GPU-...", "MIG-...", "0000:07:00.0") - only these GPUs and MIG devices, each by its index, its UUID or its PCI
        address.
      - >-
        Profile V(nvidia_gdrcopy) - the nodes of NVIDIA's GDRCopy. By default C(kind) is V(nvidia.com/gdrcopy),
        C(name_by) is [V(index)], C(additional_gids) is V(true). C(dev_root) (the directory that has the /dev with the
        driver's nodes, as in /run/nvidia/driver) - by default C(/). Containers see the nodes in C(/dev).
      - >-
        Profile V(nvidia_gds) - the nodes and files of NVIDIA's GPUDirect Storage. By default C(kind) is
        V(nvidia.com/gds), C(name_by) is [V(index)], C(additional_gids) is V(true). C(dev_root) (the directory that has
        the /dev with the driver's nodes, as in /run/nvidia/driver) - by default C(/). Containers see the nodes in
        C(/dev). C(driver_root) (the directory that the driver is installed below, as in /run/nvidia/driver) - by
        default C(/). Containers see the files of the driver without this directory.
      - >-
        Profile V(nvidia_imex) - NVIDIA's IMEX channels. By default C(kind) is V(nvidia.com/imex-channel), C(name_by) is
        [V(index)], C(all) is V(true), C(additional_gids) is V(true). C(dev_root) (the directory that has the /dev with
        the driver's nodes, as in /run/nvidia/driver) - by default C(/). Containers see the nodes in C(/dev).
      - >-
        Profile V(nvidia_management) - all nodes of the GPUs with the files of the driver, for programs that manage the
        GPUs of a host. By default C(kind) is V(management.nvidia.com/gpu), C(name_by) is [V(index)], C(additional_gids)
        is V(true). C(driver_root) (the directory that the driver is installed below, as in /run/nvidia/driver) - by
        default C(/). Containers see the files of the driver without this directory. C(dev_root) (the directory that has
        the /dev with the driver's nodes, as in /run/nvidia/driver) - by default C(/). Containers see the nodes in
        C(/dev). C(hook_path) (an absolute path, as in /usr/local/nvidia/toolkit/nvidia-cdi-hook) - the program of the
        vendor for hooks, C(nvidia-cdi-hook) or C(nvidia-ctk), if no usual directory has it. C(library_paths) (a list,
        each item an absolute path) - the directories of the libraries of the driver, instead of the usual ones.
        C(hooks) (a list of V(create-symlinks), V(enable-cuda-compat), V(update-ldcache),
        V(disable-device-node-modification), V(update-application-profile), V(apply-cuda-memory-limits)) - only these
        hooks of the vendor. An empty list stands for no hook.
      - >-
        Profile V(nvidia_mig_caps) - the capabilities of NVIDIA's MIG. By default C(kind) is V(nvidia.com/mig-caps),
        C(name_by) is [V(index)], C(all) is V(true), C(additional_gids) is V(true). C(dev_root) (the directory that has
        the /dev with the driver's nodes, as in /run/nvidia/driver) - by default C(/). Containers see the nodes in
        C(/dev).
      - >-
        Profile V(nvidia_nvswitch) - NVIDIA's NVSwitches. By default C(kind) is V(nvidia.com/nvswitch), C(name_by) is
        [V(index), V(pci)], C(all) is V(true), C(additional_gids) is V(true). C(dev_root) (the directory that has the
        /dev with the driver's nodes, as in /run/nvidia/driver) - by default C(/). Containers see the nodes in C(/dev).
      - >-
        Profile V(nvme) - NVMe namespaces, C(/dev/nvme*n*) with C(/dev/ng*n*). By default C(kind) is V(fleet.cdi/nvme),
        C(name_by) is [V(sysname)]. C(disks) (shell patterns of names below /dev, as in nvme1n*) - only these disks.
        Without it, a disk that is mounted, swapped to or held by another device is reserved and never handed out.
      - >-
        Profile V(qat) - virtual functions of Intel's QAT that are bound to VFIO. By default C(kind) is
        V(intel.com/qat), C(name_by) is [V(index), V(uuid)]. C(services) (a list of V(sym), V(asym), V(dc), V(dcc),
        V(decomp)) - only functions whose QAT is configured for all of these.
      - >-
        Profile V(rule) - any devices with a device node, chosen by C(match). By default C(kind) is V(fleet.cdi/<name of
        the entry>), C(name_by) is [V(index)]. C(match) (a mapping with 1 or more entries) - conditions, which all have
        to hold. C(subsystem), C(driver) and C(node) take shell patterns, C(pci_vendor), C(pci_device) and C(pci_class)
        (its start is enough) take hexadecimal digits in quotes. C(attributes) takes a mapping of names to shell
        patterns, for attributes of the device and of the devices above it. A condition may be a list, of which one has
        to match. C(group_by) (V(parent) or V(none)) - V(parent), the default, makes one device of all nodes on the same
        hardware, V(none) makes one of each node.
      - >-
        Profile V(sriov) - PCI virtual functions, with their interface, their nodes or their VFIO group. By default
        C(kind) is V(fleet.cdi/vf), C(name_by) is [V(index)]. C(physical_functions) (shell patterns of PCI addresses or
        interface names, as in ens1f*) - only virtual functions of these. C(driver) (a text, or a list of them) - only
        functions with this driver. C(pci_vendor) (a PCI id in quotes, as in "0x10de", or a list of them) - only
        functions of this vendor. C(pci_device) (a PCI id in quotes, as in "0x10de", or a list of them) - only functions
        with this device id. C(pci_class) (the start of a PCI class in quotes, as in "0x03", or a list of them) - only
        functions of this class.
      - >-
        Profile V(tty) - virtual consoles, C(/dev/tty13) to C(/dev/tty63). By default C(kind) is V(fleet.cdi/tty),
        C(name_by) is [V(sysname)]. C(num_system_reserved) (a whole number from 0 to 62) - the number of the last
        console that is left to the system, V(12) by default.
      - >-
        Profile V(usb) - USB devices, C(/dev/bus/usb/*), without hubs. By default C(kind) is V(fleet.cdi/usb),
        C(name_by) is [V(index)]. C(ids) (vendor and product in quotes, as lsusb shows them: "0403:6001", or a list of
        them) - only devices with these ids.
      - >-
        Profile V(vfio) - IOMMU groups with a function that is bound to a VFIO driver, C(/dev/vfio/*). By default
        C(kind) is V(fleet.cdi/vfio), C(name_by) is [V(index)]. C(pci_vendor) (a PCI id in quotes, as in "0x10de", or a
        list of them) - only functions of this vendor. C(pci_device) (a PCI id in quotes, as in "0x10de", or a list of
        them) - only functions with this device id. C(pci_class) (the start of a PCI class in quotes, as in "0x03", or a
        list of them) - only functions of this class.
      - >-
        Profile V(video) - cameras and codecs, C(/dev/video*), C(media*) and C(v4l-subdev*). By default C(kind) is
        V(fleet.cdi/video), C(name_by) is [V(index)].
      # ... to here.
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
      description: The profile of a partition, as its vendor calls it; empty without a partition or a name.
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
unready:
  description: A text for each entry with C(required=true) of whose kind no device is usable.
  returned: success
  type: list
  elements: str
  sample:
    - "devices entry 'gpus': has required: true, but no device of fleet.cdi/gpu is usable: /dev/dri/card0: is missing"
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
      description: Connections other than PCIe.
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

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "devices": {"type": "dict"},
        "root": {"type": "path", "default": "/"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "gather": {"type": "list", "elements": "str", "choices": ["links", "properties"], "default": []},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "device_info")


if __name__ == "__main__":
    main()
