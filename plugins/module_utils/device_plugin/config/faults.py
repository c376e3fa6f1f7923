# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a unit is not available: a reason is "class: text", and its class says what the daemon does about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from ...spec.stale import MISSING

# Faults of the device, or of files that a container needs with it. An operator may ignore a class of them. A unit
# stays Unhealthy for a while after a fault.
FAULTS = frozenset(
    {
        *MISSING,  # what a container would not start without
        "node-type",
        "node-number",
        "device",  # discovery found it in the hardware
        "setup",  # the operator's command failed
        "teardown",
    }
)
# The ledger withholds a device whose command failed, whatever the configuration ignores.
IGNORABLE = FAULTS - {"setup", "teardown"}

# Reasons outside the device. A unit does not stay Unhealthy after such a reason has ended.
OTHERS = frozenset(
    {
        "reserved",  # the host uses it, or an operator took it out of service
        "taken",  # another grant, claim or pod holds it
        "occupied",  # nobody holds it, and a process has it open
        "unresolved",  # no readable spec has its name
        "gone",
    }
)
CLASSES = FAULTS | OTHERS

NAMED = 3  # devices that one message names

# Effects of a container that uses the device: the interface moves into its network namespace, its processes open the
# device.
MOVED = frozenset({"interface-missing", "occupied"})


def reason(class_: str, text: str) -> str:
    """Return a reason in one line."""
    return f"{class_}: {' '.join(text.split())}"


def some(texts: Sequence[str], between: str = ", ", most: int = NAMED) -> str:
    """Join the first texts and the number of the others: a request may name tens of thousands of devices."""
    rest = len(texts) - most
    return between.join(texts[:most]) + (f"{between.strip(', ')} and {rest} more" if rest > 0 else "")


def class_of(why: str) -> str:
    """Return the class of a reason, "" for a text without a known class."""
    found = why.partition(": ")[0]
    return found if found in CLASSES else ""


def is_fault(why: str) -> bool:
    """Tell whether the unit stays Unhealthy for a while after this reason. A reason of unknown class is a fault."""
    return class_of(why) not in OTHERS


def is_ignored(why: str, ignore: Iterable[str]) -> bool:
    """Tell whether the configuration ignores this reason."""
    return class_of(why) in IGNORABLE and any(
        fnmatchcase(why, item if ": " in item else f"{item}: *") for item in ignore
    )


def may_be_ignored(item: str) -> bool:
    """Tell whether an item of `ignore`, a pattern of classes or "class: pattern of the text", matches any class."""
    pattern = item.partition(": ")[0]
    return any(fnmatchcase(name, pattern) for name in IGNORABLE)
