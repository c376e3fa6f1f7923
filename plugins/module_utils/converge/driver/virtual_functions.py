# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make virtual functions of PCI devices that have SR-IOV.

Documentation/ABI/testing/sysfs-bus-pci, "sriov_numvfs". The kernel changes a number only through 0, which takes away
every function that a process or guest uses. So functions are made only on a device that has none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from ...records import CdiError


class WantedFunctions(NamedTuple):
    """The number of virtual functions that a device is to have."""

    device: str  # PCI address, or the name of its network interface
    number: int


def parse(text: str) -> WantedFunctions:
    """Parse "0000:3b:00.0=8" or "ens1f0=8". Raises CdiError."""
    device, equals, count = text.rpartition("=")
    if not equals or not device or "/" in device or device.startswith(".") or not count.isdecimal() or len(count) > 5:
        raise CdiError(f"virtual function: found {text!r}; expected DEVICE=COUNT, as in 0000:3b:00.0=8 or ens1f0=8")
    return WantedFunctions(device, int(count))


def check_devices(every: Iterable[WantedFunctions], root: str = "/") -> None:
    """Raise CdiError for a device that is not there, and for one that two names give different numbers."""
    found: dict[str, WantedFunctions] = {}
    for one in every:
        directory = os.path.realpath(_directory(one.device, root.rstrip("/")))
        first = found.setdefault(directory, one)
        if first.number != one.number:
            raise CdiError(
                f"virtual functions: found {first.number} of {first.device} and {one.number} of {one.device}, which is "
                "the same device; expected one number of each: leave out one of the two names"
            )


def make_functions(wanted: WantedFunctions, check: bool, root: str = "/") -> bool:
    """Make the virtual functions; return True if that was, or with `check` would be, a change. Raises CdiError."""
    directory = _directory(wanted.device, root.rstrip("/"))
    total, now = _number(directory, "sriov_totalvfs"), _number(directory, "sriov_numvfs")
    if now == wanted.number:
        return False
    if wanted.number > total:
        raise CdiError(f"{directory}: has at most {total} virtual functions; {wanted.number} are wanted")
    if now:
        raise CdiError(
            f"{directory}: has {now} virtual functions and {wanted.number} are wanted. To change the number would take "
            f"all of them away from their users. When none of them is in use, write 0 to {directory}/sriov_numvfs"
        )
    if not check:
        try:
            with open(f"{directory}/sriov_numvfs", "w", encoding="ascii") as file:
                file.write(str(wanted.number))
        except OSError as error:
            why = "SR-IOV may be off in the firmware."
            if not os.path.lexists(f"{directory}/driver"):
                why = "no driver is bound to the device, and only a driver makes virtual functions."
            raise CdiError(
                f"{directory}/sriov_numvfs: can't write {wanted.number}: {error.strerror}. The kernel's log says more; "
                f"{why}"
            ) from None
    return True


def _directory(device: str, base: str) -> str:
    """Return the directory of a PCI function in sysfs. Raises CdiError."""
    for path in (f"{base}/sys/bus/pci/devices/{device}", f"{base}/sys/class/net/{device}/device"):
        if os.path.isdir(path):
            return path
    raise CdiError(f"virtual functions of {device!r}: there is no such PCI function and no such network interface")


def _number(directory: str, name: str) -> int:
    try:
        with open(f"{directory}/{name}", encoding="ascii") as file:
            return int(file.read(16))
    except FileNotFoundError:
        raise CdiError(f"{directory}: has no {name}: neither the device nor its driver has SR-IOV") from None
    except (OSError, ValueError) as error:
        raise CdiError(f"{directory}/{name}: can't be read ({error})") from None
