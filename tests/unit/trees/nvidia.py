# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines with NVIDIA GPUs, as input for trees/render.py: rendered, never real.

What is in which file follows the driver's sources (open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c, nv-caps.c)
and the lists of its packages in Debian and Ubuntu; every file is empty or small.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.fleet.cdi.tests.unit.trees.render import render

VERSION = "550.54.15"
RELEASE = "6.8.0-45-generic"
MAJORS = {"nvidia": 195, "nvidia-modeset": 195, "nvidiactl": 195, "nvidia-uvm": 508, "nvidia-nvswitch": 236}
MAJORS.update({"nvidia-caps": 237, "nvidia-nvlink": 238, "nvidia-caps-imex-channels": 235, "nvidia-fs": 234})
MAJORS.update({"gdrdrv": 233})
LIB = "/usr/lib/x86_64-linux-gnu"
HOOK = "/usr/bin/nvidia-cdi-hook"
LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin") or ""
HOOKS = (
    *("create-symlinks", "enable-cuda-compat", "update-ldcache", "disable-device-node-modification"),
    *("update-application-profile", "apply-cuda-memory-limits", "chmod"),
)
# Library -> its DT_SONAME ("" for none, None for no ELF file), and the links to it that packages have.
LIBRARIES: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "libcuda.so.{}": ("libcuda.so.1", ("libcuda.so.1", "libcuda.so")),
    "libcudadebugger.so.{}": ("libcudadebugger.so.1", ("libcudadebugger.so.1",)),
    "libnvcuvid.so.{}": ("libnvcuvid.so.1", ("libnvcuvid.so.1", "libnvcuvid.so")),
    "libnvidia-ml.so.{}": ("libnvidia-ml.so.1", ("libnvidia-ml.so.1", "libnvidia-ml.so")),
    "libnvidia-cfg.so.{}": ("libnvidia-cfg.so.1", ("libnvidia-cfg.so.1",)),
    "libnvidia-encode.so.{}": ("libnvidia-encode.so.1", ("libnvidia-encode.so.1",)),
    "libnvidia-nvvm.so.{}": ("libnvidia-nvvm.so.4", ("libnvidia-nvvm.so.4",)),
    "libnvidia-opencl.so.{}": ("libnvidia-opencl.so.1", ("libnvidia-opencl.so.1",)),
    "libnvidia-opticalflow.so.{}": ("libnvidia-opticalflow.so.1", ("libnvidia-opticalflow.so.1",)),
    "libnvidia-ptxjitcompiler.so.{}": ("libnvidia-ptxjitcompiler.so.1", ("libnvidia-ptxjitcompiler.so.1",)),
    "libnvidia-allocator.so.{}": ("libnvidia-allocator.so.1", ("libnvidia-allocator.so.1",)),
    "libnvidia-glcore.so.{}": ("libnvidia-glcore.so.{}", ()),
    "libnvidia-gpucomp.so.{}": ("", ()),
    "libnvidia-rtcore.so.{}": (None, ()),
    "libnvidia-vulkan-producer.so.{}": ("libnvidia-vulkan-producer.so", ("libnvidia-vulkan-producer.so",)),
    "libGLX_nvidia.so.{}": ("libGLX_nvidia.so.0", ("libGLX_nvidia.so.0",)),
    "libEGL_nvidia.so.{}": ("libEGL_nvidia.so.0", ("libEGL_nvidia.so.0",)),
    "vdpau/libvdpau_nvidia.so.{}": ("libvdpau_nvidia.so.1", ("libvdpau_nvidia.so.1",)),
    "libnvidia-nvvm70.so.4": ("libnvidia-nvvm70.so.4", ()),
    "libnvidia-egl-gbm.so.1.1.1": ("libnvidia-egl-gbm.so.1", ("libnvidia-egl-gbm.so.1",)),
    "libnvidia-egl-wayland.so.1.1.13": ("libnvidia-egl-wayland.so.1", ("libnvidia-egl-wayland.so.1",)),
    "nvidia/xorg/libglxserver_nvidia.so.{}": ("libglxserver_nvidia.so", ("libglxserver_nvidia.so",)),
    "nvidia/xorg/nvidia_drv.so": ("", ()),
    # What an older driver left, and libraries that are not the driver's.
    "libnvidia-fbc.so.535.161.07": ("libnvidia-fbc.so.1", ()),
    "libc.so.6": ("libc.so.6", ()),
}
PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-xconfig")
FILES = (
    "/usr/lib/firmware/nvidia/{}/gsp_ga10x.bin",
    "/usr/lib/firmware/nvidia/{}/gsp_tu10x.bin",
    "/usr/lib/firmware/nvidia/535.161.07/gsp_tu10x.bin",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/glvnd/egl_vendor.d/50_mesa.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    "/etc/OpenCL/vendors/nvidia.icd",
    "/etc/cufile.json",
    "/run/nvidia-persistenced/socket",
    "/run/nvidia-fabricmanager/socket",
    "/run/udev/control",
    "/tmp/nvidia-mps/control",
)


class Gpu(NamedTuple):
    """One GPU to render."""

    address: str
    minor: int
    model: str = "NVIDIA A100-SXM4-40GB"
    device: str = "0x20b0"
    mig: tuple[tuple[int, int], ...] = ()  # GPU instance, compute instance
    drm: int = 0  # the number of its card; its render node is 128 more

    @property
    def uuid(self) -> str:
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, self.address)}"

    def mig_uuid(self, gi: int, ci: int) -> str:
        return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{self.address}/{gi}/{ci}')}"


A100 = tuple(
    Gpu(f"0000:{bus}:00.0", minor, drm=minor + 1)
    for bus, minor in zip(("07", "0f", "47", "4e", "87", "90", "b7", "bd"), (2, 3, 0, 1, 6, 7, 4, 5))
)
H100 = tuple(
    Gpu(f"0000:{bus}:00.0", minor, "NVIDIA H100 80GB HBM3", "0x2330", drm=minor + 1)
    for minor, bus in enumerate(("19", "3b", "4c", "5d", "9b", "bb", "cb", "db"))
)
P100 = (Gpu("0000:06:00.0", 0, "Tesla P100-PCIE-16GB", "0x15f8"),)
# As seen on a virtual machine with a driver of release 580: `make gpu`, 2026-11.
VM = (Gpu("0000:00:06.0", 0, "NVIDIA H100 80GB HBM3", "0x2330"),)
GPUS = {"A100": A100, "H100": H100, "P100": P100, "VM": VM}
SWITCHES = ("0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0")  # of an HGX H100


def machine(gpus: tuple[Gpu, ...], switches: tuple[str, ...] = (), channels: tuple[int, ...] = ()) -> dict[str, Any]:
    """The tree of a machine with these GPUs and the driver installed."""
    devices, files = _pci(gpus, switches), _proc(gpus)
    for path in FILES:
        files[path.format(VERSION)] = "rendered\n"
    for name in PROGRAMS:
        files[f"/usr/bin/{name}"] = "#!/bin/sh\n"
    files["/usr/sbin/nvidia-imex"] = "#!/bin/sh\n"
    files["/usr/bin/nvidia-imex-ctl"] = "not executable\n"
    files[HOOK] = "\0".join(HOOKS)
    links = {"/lib": "usr/lib", "/var/run": "/run", "/lib64": "usr/lib64"}
    for pattern, (soname, names) in LIBRARIES.items():
        name = pattern.format(VERSION)
        files[f"{LIB}/{name}"] = b"GROUP ( AS_NEEDED )\n" if soname is None else elf(soname.format(VERSION))
        for link in names:
            links[os.path.join(LIB, os.path.dirname(name), link)] = os.path.basename(name)
    files[f"/usr/lib/i386-linux-gnu/libcuda.so.{VERSION}"] = elf("libcuda.so.1")  # for programs of 32 bits
    for gpu in gpus:
        if gpu.drm:
            links[f"/dev/dri/by-path/pci-{gpu.address}-card"] = f"../card{gpu.drm}"
            links[f"/dev/dri/by-path/pci-{gpu.address}-render"] = f"../renderD{128 + gpu.drm}"
    nodes = _nodes(gpus, switches, channels) if os.geteuid() == 0 else {}
    return {"devices": devices, "files": files, "links": links, "nodes": nodes}


def build(tree: dict[str, Any], base: Path) -> str:
    """Render the tree; programs get their mode, DRM nodes the mode and groups that udev gives them."""
    root = render(tree, base)
    for directory in ("usr/bin", "usr/sbin"):
        for program in (base / directory).glob("nvidia*") if (base / directory).is_dir() else ():
            program.chmod(0o644 if program.name == "nvidia-imex-ctl" else 0o755)
    for node in (base / "dev").glob("**/*") if tree.get("nodes") else ():
        if node.is_char_device() and not node.is_symlink():
            node.chmod(0o660 if node.parent.name == "dri" else 0o444 if node.parent.name == "nvidia-caps" else 0o666)
            os.chown(node, 0, {"card": 44, "rend": 105}.get(node.name[:4], 0) if node.parent.name == "dri" else 0)
    return root


def of_case(case: dict[str, Any], base: Path) -> tuple[str, tuple[Gpu, ...]]:
    """The root directory of the machine that a case describes, and its GPUs.

    `gpus` (A100, H100 or P100), `mig` (PCI address -> lists that begin with GPU and compute instance), `switches`,
    `channels`; then changes in this order: `remove` (patterns of paths), `move` (path -> path), `files` and `programs`
    (path -> content), `links` (path -> target), `nodes` (path -> "c 195:0"), `group` (of every /dev/nvidia*, which
    others may then not use), `library_folders` (which the real ldconfig puts into the cache of the linker, below the
    directory `driver_root`).
    """
    mig = {address: tuple((part[0], part[1]) for part in parts) for address, parts in case.get("mig", {}).items()}
    gpus = tuple(gpu._replace(mig=mig.get(gpu.address, ())) for gpu in GPUS[case["gpus"]])
    switches = SWITCHES if case.get("switches") else ()
    root = build(machine(gpus, switches, tuple(case.get("channels", ()))), base)
    for pattern in case.get("remove", ()):
        found = list(base.glob(pattern.lstrip("/")))
        assert found, f"{pattern} is not there to be removed"
        for path in found:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for source, target in case.get("move", {}).items():
        (base / target[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(base / source[1:], base / target[1:])
    render({key: case.get(key, {}) for key in ("links", "nodes")}, base)
    for path, content in {**case.get("files", {}), **case.get("programs", {})}.items():
        (base / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (base / path[1:]).write_bytes(content if isinstance(content, bytes) else content.encode())
        (base / path[1:]).chmod(0o755 if path in case.get("programs", {}) else 0o644)
    for node in (base / "dev").glob("nvidia*") if "group" in case else ():
        if node.is_char_device():
            node.chmod(0o660)
            os.chown(node, 0, case["group"])
    if "library_folders" in case:
        below = base / case.get("driver_root", "/")[1:]
        (below / "etc/ld.so.conf").write_text("".join(f"{folder}\n" for folder in case["library_folders"]))
        subprocess.run([LDCONFIG, "-r", below], check=True)
    return root, gpus


def caps(gpus: tuple[Gpu, ...]) -> dict[str, int]:
    """Capability, as in /proc/driver/nvidia-caps/mig-minors -> minor. The driver has one for each that there may be."""
    found = {"config": 1, "monitor": 2}
    for gpu in sorted(gpus, key=lambda gpu: gpu.minor):
        for gi in range(15):
            found[f"gpu{gpu.minor}/gi{gi}/access"] = len(found) + 1
            for ci in range(8):
                found[f"gpu{gpu.minor}/gi{gi}/ci{ci}/access"] = len(found) + 1
    return found


def elf(soname: str) -> bytes:
    """A shared library for x86-64 that says nothing but its DT_SONAME, for those who read segments or sections."""
    strings = b"\0" + soname.encode() + b"\0"
    dynamic = b"".join(
        struct.pack("<qQ", tag, value)
        for tag, value in (((14, 1),) if soname else ()) + ((5, 0x200), (10, len(strings)), (0, 0))
    )
    names = b"\0.dynamic\0.dynstr\0.shstrtab\0"
    sections = [(0,) * 10]
    sections.append((1, 6, 3, 0x100, 0x100, len(dynamic), 2, 0, 8, 16))
    sections.append((10, 3, 2, 0x200, 0x200, len(strings), 0, 0, 1, 0))
    sections.append((18, 3, 0, 0, 0x300, len(names), 0, 0, 1, 0))
    size = 0x400 + 64 * len(sections)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0x400, 0, 64, 56, 2, 64, len(sections), 3)
    header += struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 0x1000)
    header += struct.pack("<IIQQQQQQ", 2, 6, 0x100, 0x100, 0x100, len(dynamic), len(dynamic), 8)
    parts = {0: header, 0x100: dynamic, 0x200: strings, 0x300: names}
    parts[0x400] = b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections)
    content = bytearray(size)
    for offset, part in parts.items():
        content[offset : offset + len(part)] = part
    return bytes(content)


def _pci(gpus: tuple[Gpu, ...], switches: tuple[str, ...]) -> dict[str, Any]:
    devices: dict[str, Any] = {}
    for gpu in gpus:
        place = f"/sys/devices/pci{gpu.address[:7]}/{gpu.address}"
        attributes = {"vendor": "0x10de", "device": gpu.device, "class": "0x030200", "numa_node": gpu.minor // 4}
        devices[place] = {"subsystem": "bus/pci", "driver": "nvidia", "attributes": attributes}
        for name in (f"card{gpu.drm}", f"renderD{128 + gpu.drm}") if gpu.drm else ():
            minor = gpu.drm + 128 * name.startswith("render")
            uevent = {"MAJOR": 226, "MINOR": minor, "DEVNAME": f"dri/{name}"}
            devices[f"{place}/drm/{name}"] = {"subsystem": "class/drm", "uevent": uevent}
    for address in switches:
        attributes = {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000", "numa_node": 0}
        place = f"/sys/devices/pci{address[:7]}/{address}"
        devices[place] = {"subsystem": "bus/pci", "driver": "nvidia-nvswitch", "attributes": attributes}
    return devices


def _proc(gpus: tuple[Gpu, ...]) -> dict[str, Any]:
    listed = "".join(f"{number:3d} {name}\n" for name, number in sorted(MAJORS.items(), key=lambda item: item[1]))
    files: dict[str, Any] = {
        "/proc/devices": f"Character devices:\n  1 mem\n{listed}226 drm\n\nBlock devices:\n195 nvidia-uvm\n",
        "/proc/sys/kernel/osrelease": f"{RELEASE}\n",
        "/sys/module/nvidia/version": f"{VERSION}\n",
        "/proc/driver/nvidia/version": (
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Tue Mar  5 22:23:56 UTC 2024\n"
        ),
    }
    minors = caps(gpus)
    files["/proc/driver/nvidia-caps/mig-minors"] = "".join(f"{cap} {minor}\n" for cap, minor in minors.items())
    for gpu in gpus:
        files[f"/proc/driver/nvidia/gpus/{gpu.address}/information"] = (
            f"Model: \t\t {gpu.model}\nIRQ:   \t\t 321\nGPU UUID: \t {gpu.uuid}\nVideo BIOS: \t 92.00.45.00.03\n"
            f"Bus Type: \t PCIe\nDMA Size: \t 47 bits\nBus Location: \t {gpu.address}\nDevice Minor: \t {gpu.minor}\n"
            "GPU Firmware: \t N/A\nGPU Excluded:\t No\n"
        )
        wanted = [part for gi, ci in gpu.mig for part in (f"gi{gi}", f"gi{gi}/ci{ci}")]
        for part in wanted:
            files[f"/proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig/{part}/access"] = _cap(
                minors[f"gpu{gpu.minor}/{part}/access"]
            )
    for name in ("config", "monitor"):
        files[f"/proc/driver/nvidia/capabilities/mig/{name}"] = _cap(minors[name])
    return files


def _cap(minor: int) -> str:
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"


def _nodes(gpus: tuple[Gpu, ...], switches: tuple[str, ...], channels: tuple[int, ...]) -> dict[str, str]:
    nodes = {
        "/dev/null": "c 1:3",
        "/dev/nvidiactl": "c 195:255",
        "/dev/nvidia-modeset": "c 195:254",
        "/dev/nvidia-uvm": "c 508:0",
        "/dev/nvidia-uvm-tools": "c 508:1",
        "/dev/nvidia-fs0": "c 234:0",
        "/dev/nvidia-fs1": "c 234:1",
        "/dev/gdrdrv": "c 233:0",
        "/dev/nvidia-caps/nvidia-cap1": "c 237:1",
        "/dev/nvidia-caps/nvidia-cap2": "c 237:2",
    }
    for gpu in gpus:
        nodes[f"/dev/nvidia{gpu.minor}"] = f"c 195:{gpu.minor}"
        if gpu.drm:
            nodes[f"/dev/dri/card{gpu.drm}"] = f"c 226:{gpu.drm}"
            nodes[f"/dev/dri/renderD{128 + gpu.drm}"] = f"c 226:{128 + gpu.drm}"
        for gi, ci in gpu.mig:
            for part in (f"gi{gi}", f"gi{gi}/ci{ci}"):
                minor = caps(gpus)[f"gpu{gpu.minor}/{part}/access"]
                nodes[f"/dev/nvidia-caps/nvidia-cap{minor}"] = f"c 237:{minor}"
    if switches:
        nodes["/dev/nvidia-nvswitchctl"] = "c 236:255"
    for index, _address in enumerate(switches):
        nodes[f"/dev/nvidia-nvswitch{index}"] = f"c 236:{index}"
    for channel in channels:
        nodes[f"/dev/nvidia-caps-imex-channels/channel{channel}"] = f"c 235:{channel}"
    return nodes
