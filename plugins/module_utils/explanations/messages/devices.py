# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about devices of a host, and how they are found."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1201",
        title="No device was found",
        messages=(
            "found no device, but has required: true",
            "found no device that has a name, but has required: true",
            "found no device: *",
            "no device of class misc has the node /dev/*",
            "option 'devices': *: this host has no such GPU",
            "devices entry *: *, but has required: true",
            "*. Nothing was changed. Repair the driver.",
        ),
        means=(
            "An entry of `cdi_host_devices` matches nothing on this host, or names a device that this host lacks. The "
            "text behind it says which step found nothing, or which device is missing."
        ),
        why="With `required: true` a host without its device is a fault and not an empty list.",
        do=(
            "Check that the driver is loaded and the device is there (`lspci -k`). If the host has no such device "
            "on purpose, remove the entry from its group, or set `required: false`. For a slow driver raise "
            "cdi_host_driver_timeout."
        ),
        more="fleet-cdi devices --scan",
    ),
    Explanation(
        id="FC1202",
        title="Two devices want the same name",
        messages=(
            "both claim the name *; give one of them another 'kind' or 'name_by'",
            "GPUs have the unique id *; none is called so",
        ),
        means="A name of CDI means one device, and two devices would get this one.",
        why="A container that asks for the name would get one of them by chance.",
        do="Give one entry another `kind` or `name_by`, or let only one entry choose the device.",
        more="fleet-cdi devices --scan",
    ),
    Explanation(
        id="FC1203",
        title="Two nodes of a device want the same place in the container",
        messages=(
            "option 'container_path': * of * would come to *, which is *",
            "device 'all' would have several nodes at",
            "already the place of *",
        ),
        means="`container_path` is the same for several device nodes.",
        why="One node would hide the other in the container.",
        do="Use `{sysname}`, `{index}` or `{path}` in container_path, or set `all: false`.",
        more="ansible-doc -t module fleet.cdi.device_info",
    ),
    Explanation(
        id="FC1204",
        title="The inventory is missing, damaged or of another boot",
        messages=(
            "run the discovery again (fleet-cdi refresh, or the provision playbook)",
            "inventory *: does not exist",
            "inventory *: was written in boot *, but this is boot",
            "nobody can tell which devices to take out of service",
        ),
        means="Executables read the devices of this boot from the inventory. It is not usable.",
        why=(
            "After a reboot, device numbers and names may be others. A grant from an old inventory could give the "
            "wrong card."
        ),
        do="Run `fleet-cdi refresh`. If it is missing after each boot, check the unit `fleet-cdi-refresh.service`.",
        more="systemctl status fleet-cdi-refresh.service",
    ),
    Explanation(
        id="FC1205",
        title="The root directory is not that of a host",
        messages=("found no sys/class and no sys/bus below it", "can't be entered (*); run as root (become: true)"),
        means="`root` has to name the root directory of a host, of a mounted image or of a dump.",
        why="Without sysfs nothing tells which devices there are.",
        do="Check the path. For an image, mount it first, and run as root.",
        more="ls ROOT/sys",
    ),
    Explanation(
        id="FC1206",
        title="NVIDIA: the driver and its libraries do not agree",
        messages=(
            "the kernel has driver *, but the libraries below * are of",
            "no library of driver * is below *, so containers get device nodes only",
            "the driver does not know it: there is no readable",
        ),
        means="The version of the kernel module is not that of the libraries, or one of the two is missing.",
        why="A program in a container fails with `Driver/library version mismatch` if both differ.",
        do=(
            "After an upgrade reload the driver, or reboot. Install the user part of the driver, or set "
            "`driver_root` if it is in another place."
        ),
        more="cat /proc/driver/nvidia/version",
    ),
    Explanation(
        id="FC1207",
        title="NVIDIA: a card gives nothing to offer",
        messages=(
            "its MIG mode is on, but no instance is created; nothing is offered",
            "the driver was told to leave it alone (its module option NVreg_ExcludedGpus)",
            "the inventory says no partition profile of its * devices",
        ),
        means="MIG mode is on without an instance, or the driver was told to leave the card alone.",
        why="In MIG mode only instances can run programs.",
        do=(
            "Create instances (`nvidia-smi mig -cgi ...`), or turn the mode off (`nvidia-smi -mig 0`). Remove the "
            "card from NVreg_ExcludedGpus if it may be used."
        ),
        more="nvidia-smi -L",
    ),
    Explanation(
        id="FC1208",
        title="NVML does not answer",
        messages=("NVML does not answer",),
        means="A warning. Devices were found without NVML, and facts that only NVML knows are missing.",
        why="fleet.cdi does not need NVML. Profiles of MIG instances and a few other facts come from it alone.",
        do="Install python3-pynvml if you need these facts. If it is there, `nvidia-smi` says why NVML fails.",
        more="nvidia-smi",
    ),
    Explanation(
        id="FC1209",
        title="A part of a device is left out",
        messages=(
            "; it is left out",
            "; containers go without it",
            "names no AMD GPU on the PCI bus (domain, location_id)",
            "the driver says Device Minor * of it and of another GPU",
            "if it is a GPU's, it is left out",
        ),
        means="A warning. The kernel shows a device or a part of it that lacks what a container needs.",
        why="A device that can't work is not offered.",
        do="Check the driver of the device (`dmesg`). If the device is not for containers, exclude it in the entry.",
        more="fleet-cdi devices --scan",
    ),
    Explanation(
        id="FC1210",
        title="The topology file is not used",
        messages=(
            "the topology file describes none of the devices found",
            "topology file *: can't be read",
            "write the file again with the tool that made it",
            ": there twice; the first holds",
        ),
        means=(
            "The file that describes how devices are wired can't be read, is of another host, or breaks the format "
            "of its tool."
        ),
        why="Wrong links would make fleet.cdi choose devices that are far apart.",
        do="Make the file again on this host (`lstopo --of xml FILE`, or NCCL_TOPO_DUMP_FILE), or remove the setting.",
        more="fleet-cdi devices --json",
    ),
    Explanation(
        id="FC1211",
        title="Links between devices do not agree",
        messages=("links name devices that are not there", "the ends of links differ in how many there are"),
        means="A warning. The two ends of NVLink or xGMI say different things, or one end is not on this host.",
        why="The links are used to choose devices that are close. A doubtful link counts less.",
        do=(
            "Look at the hardware: a bridge may be loose, or a card may be lost. `nvidia-smi nvlink -s` shows the "
            "links."
        ),
        more="fleet-cdi devices --json",
    ),
    Explanation(
        id="FC1212",
        title="Virtual functions can't be made",
        messages=(
            "there is no such PCI function and no such network interface",
            "virtual function: found *; expected DEVICE=COUNT",
            "virtual functions: found *, which is the same device",
            "has at most * virtual functions",
            "has * virtual functions and * are wanted",
            "neither the device nor its driver has SR-IOV",
            "/sriov_numvfs: can't write",
        ),
        means="The device does not support so many virtual functions, has another number already, or has no SR-IOV.",
        why="To change the number, the kernel removes all virtual functions, also those in use.",
        do=(
            "Correct the number in the settings. To change an existing one, end its users, write 0 to sriov_numvfs "
            "and run again. Check that SR-IOV is on in the firmware."
        ),
        more="lspci -vs ADDRESS",
    ),
    Explanation(
        id="FC1213",
        title="A device node or a link of it can't be made",
        messages=("can't make this device node: *. Run as root.", "can't change this link: *. Run as root."),
        means="The control nodes of a driver, or the links in /dev/char, have to be made by root.",
        why="Without the links, systemd takes devices away from containers at its next reload.",
        do="Run as root. In a container, run on the host instead.",
        more="ls -l /dev/char",
    ),
    Explanation(
        id="FC1214",
        title="The names of a lost device wait",
        messages=(
            "is gone, and * is now *: its names leave the spec until it is back",
            "is not offered yet: its name * is that of",
            "until then nothing that is gone is dropped",
            "gone since *: it is kept in its spec and marked stale",
            "is gone and not offered any more",
        ),
        means="A warning. A device is gone, and fleet.cdi keeps its name for a time, so that no other device gets it.",
        why="If the next card took the name, a container would start with another card than before.",
        do="Bring the device back. If it is gone for good, run `fleet-cdi refresh --drop`.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1215",
        title="A module of the kernel can't be loaded",
        messages=("load_modules: *",),
        means="The settings name a kernel module, and modprobe failed.",
        why="Without the module there is no device.",
        do="Read the text of modprobe. Install the package of the driver for the running kernel, or correct the name.",
        more="dmesg",
    ),
    Explanation(
        id="FC1216",
        title="An unhealthy device stays out of service",
        messages=("Not put back into service, because it is unhealthy",),
        means="The drain would end, and a device has a fault.",
        why="A job that gets the device would fail.",
        do="Repair the device, or put the healthy ones back and leave this one disabled.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1217",
        title="A device is left out of the spec",
        messages=(
            "is left out of the spec: *",
            "No spec of ours leaves it out: *",
            "out of service since *",
        ),
        means=(
            "A warning. The device is on this host, and can not be used now. The end of the message says why: no "
            "driver, a missing node, or out of service. Where another tool serves the kind (`on_foreign_kind: use`), "
            "its spec leaves nothing out for us, and the message names that spec."
        ),
        why="A container with such a device would fail when it starts, or a moment later.",
        do=(
            "Repair what the message says, then run `fleet-cdi refresh`. If an operator took the device out of "
            "service, `fleet-cdi device enable NAME` puts it back. If it is not for containers, exclude it. To have it "
            "left out where another tool serves the kind, let that tool do it, or choose `on_foreign_kind: replace`."
        ),
        more="fleet-cdi devices",
    ),
    Explanation(
        id="FC1218",
        title="A device does not get a name that it should have",
        messages=(
            "the name * is ambiguous: * claim it",
            "the name * stands for no device of its own: * can't have it",
            "add 'index' to name_by, or exclude the device",
            "; it is offered without such a name",
        ),
        means=(
            "A warning. Two devices would have the same name, or the device lacks the property from which its name is "
            "made, for example a serial number."
        ),
        why="A name means one device. If two devices had it, a container would get one of them by chance.",
        do=(
            "Let `name_by` of the entry have a kind of name that differs, such as `index` or `pci`. Look at the names "
            "with `fleet-cdi devices --scan`."
        ),
        more="fleet-cdi devices --scan",
    ),
    Explanation(
        id="FC1219",
        title="A device node is missing, or is another one",
        messages=(
            "is not a device node (*)",
            ": has * *, expected *",
        ),
        means="At the path of a device node there is another file, or a node with another type or number.",
        why=(
            "The numbers of a node say which hardware it opens. With other numbers a container would get another "
            "device."
        ),
        do=(
            "Run `fleet-cdi refresh`: after a reboot or a change of drivers the numbers may be others. If a file lies "
            "in the way, remove it and let udev make the node again."
        ),
        more="ls -l PATH",
    ),
    Explanation(
        id="FC1220",
        title="udev can't be asked",
        messages=("symlinks, udev properties and serial numbers that only udev knows are left out",),
        means=(
            "A warning. Discovery works without udev. Names by links such as /dev/disk/by-id, and serial numbers that "
            "only udev knows, are missing."
        ),
        why="In a container or in an image no udev runs. On a host the package python3-pyudev may be missing.",
        do=(
            "On a host, install python3-pyudev: the role does it if `cdi_host_install_packages` is true. In a "
            "container, nothing is to be done."
        ),
        more='python3 -c "import pyudev"',
    ),
    Explanation(
        id="FC1221",
        title="A device is missing after the work on a host",
        messages=("Not put back into service, because the host does not have these devices any more*",),
        means="A drain took the device out of service. Now the host does not have it, or its settings leave it out.",
        why="The work lost the device, perhaps: a new driver that does not know a card. The host would have one less.",
        do=(
            "Look for the device: `fleet-cdi devices --scan`, the log of the kernel. If it is meant to be gone, set "
            "`allow_missing`, for playbook fleet.cdi.upgrade `-e fleet_cdi_upgrade_allow_missing=true`."
        ),
        more="fleet-cdi doctor",
    ),
)
