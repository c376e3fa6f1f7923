# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One lazy view of a host's sysfs, the same for a live host, a mounted image and a dump.

Nothing is read before it is asked for, and nothing is read twice. Dumps that other tools made leave out parts (uevent
files, subsystem links); then what a directory's own name says stands in.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from functools import cached_property
from typing import Optional

from ..records import CdiError, Health, Node
from ..safe_text import is_visible
from ..system.device_nodes import fault
from .root import Root, printable

# Domain (more than 4 digits where a bridge brings its own, as VMD does), bus, device, function.
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
# "pci:v00001BCFd0000001Csv00001BCFsd00000000bc0Bsc40i00"
PCI_MODALIAS = re.compile(r"pci:v0000(.{4})d0000(.{4})sv.{8}sd.{8}bc(..)sc(..)i(..)")
# Where physical devices sit. Virtio, auxiliary, HID and the like only carry protocols: their numbers change with the
# order of probing, so a device is known by what they sit on.
PHYSICAL_BUSES = ("pci", "usb", "platform", "pnp", "scsi", "mdev", "vmbus", "ccw", "amba")
NUMBER = re.compile(r"[0-9]{1,9}\Z")
# Bytes of a text attribute: one page (Documentation/filesystems/sysfs.rst), which on some architectures is larger.
LONGEST = 4096


class SysDevice:
    """One device of sysfs. Every property is read once, on demand; a missing or unreadable one is empty."""

    def __init__(self, snapshot: Snapshot, path: str, subsystem: Optional[str] = None) -> None:
        self.snapshot = snapshot
        self.path = path  # as the host sees it: /sys/devices/...
        self.name = os.path.basename(path)
        self.sysname = printable(self.name).replace("!", "/")  # as udev calls it: a directory's name can't have "/"
        self._attributes: dict[str, Optional[str]] = {}
        if subsystem is not None:
            self.subsystem = subsystem

    @cached_property
    def subsystem(self) -> str:
        """Return the class or bus, "" for a directory without a device."""
        return os.path.basename(self.snapshot.root.readlink(f"{self.path}/subsystem")) or (
            "pci" if PCI_ADDRESS.match(self.name) else ""
        )

    @cached_property
    def uevent(self) -> dict[str, str]:
        """The kernel's own properties: MAJOR, MINOR, DEVNAME, MODALIAS ...

        Of a property that comes twice, the first counts. The kernel's core writes its own before those of bus and class
        (drivers/base/core.c, dev_uevent), and these may repeat a text of the firmware. NAME of an input device is the
        product string of USB, which may have a line break (drivers/input/input.c, input_dev_uevent).
        """
        found: dict[str, str] = {}
        for line in (self.attribute("uevent") or "").split("\n"):
            name, _equals, value = line.partition("=")
            found.setdefault(name, value)
        return found

    @cached_property
    def bound(self) -> str:
        """The driver bound to this very device, "" without one."""
        return printable(os.path.basename(self.snapshot.root.readlink(f"{self.path}/driver")))

    @cached_property
    def driver(self) -> str:
        """The driver of this device, or of the nearest ancestor that has one, up to the physical device."""
        for device in self.up_to_physical():
            if device.bound:
                return device.bound
        return ""

    @cached_property
    def physical(self) -> Optional[SysDevice]:
        """The nearest device on one of PHYSICAL_BUSES, this one included; None for a purely virtual one."""
        for device in self.lineage():
            # A USB interface ("1-1:1.0") is a function of its device ("1-1").
            if device.subsystem in PHYSICAL_BUSES and not (device.subsystem == "usb" and ":" in device.name):
                return device
        return None

    @cached_property
    def pci(self) -> Optional[SysDevice]:
        """The nearest PCI function, this one included."""
        for device in self.lineage():
            if PCI_ADDRESS.match(device.name):
                return device
        return None

    @cached_property
    def numa_node(self) -> Optional[int]:
        """The nearest numa_node there is. The kernel's -1 means that the firmware does not say, and stays unknown."""
        for device in self.lineage():
            text = device.attribute("numa_node")
            if text is not None:
                return int(text) if NUMBER.match(text) else None
        return None

    @cached_property
    def pci_ids(self) -> tuple[str, str, str]:
        """Return vendor, device and class of a PCI function, as in "0x1bcf", "0x001c", "0x0b4000"; "" if missing."""
        found = tuple((self.attribute(name) or "").lower() for name in ("vendor", "device", "class"))
        if not all(found):
            alias = PCI_MODALIAS.match(self.attribute("modalias") or self.uevent.get("MODALIAS", ""))
            if alias:
                vendor, device, *class_ = (part.lower() for part in alias.groups())
                found = ("0x" + vendor, "0x" + device, "0x" + "".join(class_))
        return found[0], found[1], found[2]

    @cached_property
    def is_gone(self) -> bool:
        """Whether a PCI function has left the bus: all of its configuration header reads as ones.

        A virtual function has ones for vendor and device id only. Reading would wake a suspended device, so that one is
        taken to be well.
        """
        if self.attribute("power/runtime_status") == "suspended":
            return False
        try:
            header = self.snapshot.root.read(f"{self.path}/config")[:64]
        except OSError:
            return False
        return len(header) == 64 and header == b"\xff" * 64

    def lineage(self) -> Iterator[SysDevice]:
        """Return this device and its ancestors, nearest first, without directories that are not devices."""
        yield self
        path = os.path.dirname(self.path)
        while path.startswith("/sys/devices/"):
            device = self.snapshot.device(path)
            if device.subsystem:
                yield device
            path = os.path.dirname(path)

    def up_to_physical(self) -> Iterator[SysDevice]:
        """The part of the lineage that is this device: to its physical one; only itself for a virtual one."""
        end = self.physical
        for device in self.lineage():
            yield device
            if end is None or device is end:
                return

    def attribute(self, name: str, asked_for: bool = False) -> Optional[str]:
        """Return the text of an attribute without surrounding blanks; None if it is missing or unreadable.

        `name` may lead through links ("device/vendor"). Bytes that are not UTF-8 become U+FFFD. An unreadable
        attribute that the settings `asked_for` is reported.
        """
        if name not in self._attributes:
            try:
                content = self.snapshot.root.read(f"{self.path}/{name}", LONGEST)
            except OSError as error:
                self._attributes[name] = None
                if asked_for and not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                    self.snapshot.report(f"{self.path}/{name}: can't be read ({error.strerror}); taken as absent")
            else:
                self._attributes[name] = content.decode("utf-8", "replace").strip("\0 \t\n")
        return self._attributes[name]

    @cached_property
    def node(self) -> Optional[Node]:
        """The device node that belongs to this device, None if it has none.

        Attribute `dev` says so: no text of the firmware is in it.
        """
        major, _colon, minor = (self.attribute("dev") or "").partition(":")
        if not (NUMBER.match(major) and NUMBER.match(minor)):
            return None
        named = (self.uevent.get("MAJOR"), self.uevent.get("MINOR")) == (major, minor)
        name = (self.uevent.get("DEVNAME", "") if named else "") or self.sysname
        if name.startswith("/dev/"):  # kernels before 2.6.38
            name = name[5:]
        if os.path.normpath("/dev/" + name) != "/dev/" + name or not is_visible(name):
            self.snapshot.report(f"{self.path}: its node is called {name!r}, which is not a path under /dev; left out")
            return None
        return Node("/dev/" + name, "b" if self.subsystem == "block" else "c", int(major), int(minor))


class Snapshot:
    """The sysfs below one root. Made by `take`; used for one run, so that the whole run sees one state of the host."""

    def __init__(self, root: Root, live: bool) -> None:
        self.root = root
        self.live = live  # whether it is this running host's; nodes of any other are not opened
        self.reports: list[str] = []  # oddities of the snapshot, each once
        self._devices: dict[str, SysDevice] = {}
        self._members: dict[str, tuple[SysDevice, ...]] = {}
        places = list(self._find_subsystems())
        self._places = {name: place for place, name in reversed(places)}  # the first of a name wins
        self._has_dev = self._is_device("/dev/null")  # every populated /dev has it; dumps may have other rests of one

    @property
    def subsystems(self) -> tuple[str, ...]:
        """Every class and bus there is."""
        return tuple(sorted(self._places))

    def members(self, subsystem: str) -> tuple[SysDevice, ...]:
        """The devices of one class or bus, by name."""
        if subsystem not in self._members:
            place = self._places.get(subsystem, "")
            found = []
            for name in self.root.names(place) if place else ():
                try:
                    path = self.root.resolve(f"{place}/{name}")
                except OSError as error:
                    self.report(f"{place}/{name}: leads nowhere ({error.strerror}); left out")
                    continue
                if path.startswith("/sys/"):
                    found.append(self.device(path, subsystem))
            self._members[subsystem] = tuple(found)
        return self._members[subsystem]

    def device(self, path: str, subsystem: Optional[str] = None) -> SysDevice:
        """The device whose directory, seen from the host and free of links, is `path`."""
        if path not in self._devices:
            self._devices[path] = SysDevice(self, path, subsystem)
        return self._devices[path]

    def gid(self, node: Node) -> int:
        """The group that one has to be in to use the node; 0 where everybody may, and where nobody can tell."""
        try:
            found = self.root.lstat(node.path)
        except OSError:
            return 0
        return 0 if found.st_mode & 0o006 == 0o006 else found.st_gid

    def health(self, node: Node, opens: bool = False) -> Health:
        """Whether the node is under /dev with the kernel's numbers, and, if it `opens`, answers on this live host.

        Unknown in a dump without /dev.
        """
        if not self._has_dev:
            return Health("unknown")
        rule, why = fault(node, self.root.lstat)
        if rule:
            return Health("unhealthy", why)
        return self._opened(node) if opens and self.live else Health("healthy")

    @staticmethod
    def _opened(node: Node) -> Health:
        """Tell whether an existing node opens. A node that is in use or not permitted counts as healthy."""
        try:
            os.close(os.open(node.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EACCES, errno.EPERM):
                return Health("unhealthy", f"{node.path}: can't be opened ({error.strerror})")
        return Health("healthy")

    def _is_device(self, path: str) -> bool:
        try:
            return stat.S_ISCHR(self.root.lstat(path).st_mode)
        except OSError:
            return False

    def report(self, text: str) -> None:
        """Remember something odd, once."""
        text = printable(text)
        if text not in self.reports:
            self.reports.append(text)

    def _find_subsystems(self) -> Iterator[tuple[str, str]]:
        """(directory of its devices, name) of each class and bus; a class of the same name comes first."""
        for name in self.root.names("/sys/class"):
            yield f"/sys/class/{name}", name
        if self.root.names("/sys/block"):  # for dumps that have no /sys/class; whole disks only
            yield "/sys/block", "block"
        for name in self.root.names("/sys/bus"):
            yield f"/sys/bus/{name}/devices", name


def take(root: str = "/", live: bool = True) -> Snapshot:
    """The view of the host whose root directory is `root`; `live`: one at / is this running host's.

    Raises CdiError if no sysfs is there.
    """
    snapshot = Snapshot(Root(root), live and root == "/")
    if not snapshot.subsystems:
        raise CdiError(
            f"root {root!r}: found no sys/class and no sys/bus below it; expected the root directory of a host, of a "
            "mounted image or of a dump of one"
        )
    return snapshot
