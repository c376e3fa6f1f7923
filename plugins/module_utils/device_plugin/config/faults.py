# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a unit can't be had: a reason is "class: text", and of each class it is known what may be done about it.

Private API of fleet.cdi.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from ...spec.stale import MISSING

# Faults of the device or of what a container needs with it. An operator may have a class of them ignored, and a unit
# stays Unhealthy for a while after one.
FAULTS = frozenset(
    {
        *MISSING,  # what a container would not start without
        "node-type",
        "node-number",
        "device",  # what discovery says of the hardware
        "setup",  # a command of the operator's failed
        "teardown",
    }
)
# A device whose command failed is withheld by the ledger, whatever the configuration ignores.
IGNORABLE = FAULTS - {"setup", "teardown"}

# What is no fault of the device: as soon as it is over, so is the unit's trouble.
OTHERS = frozenset(
    {
        "reserved",  # the host uses it, or an operator took it out of service
        "taken",  # somebody else holds it
        "occupied",  # nobody holds it, and a process has it open
        "unresolved",  # no spec that can be read gives its name
        "gone",
    }
)
CLASSES = FAULTS | OTHERS

NAMED = 3  # of many devices in one message

# What is so because a container has it: an interface moves into its network namespace, its processes open the device.
MOVED = frozenset({"interface-missing", "occupied"})


def reason(class_: str, text: str) -> str:
    """A reason in one line."""
    return f"{class_}: {' '.join(text.split())}"


def some(texts: Sequence[str], between: str = ", ", most: int = NAMED) -> str:
    """The first of these texts, and how many there are beside them: a request may name tens of thousands of devices."""
    rest = len(texts) - most
    return between.join(texts[:most]) + (f"{between.strip(', ')} and {rest} more" if rest > 0 else "")


def class_of(why: str) -> str:
    """The class of a reason, "" for a text that has none."""
    found = why.partition(": ")[0]
    return found if found in CLASSES else ""


def is_fault(why: str) -> bool:
    """Whether the unit has to prove itself after this trouble. What nobody knows counts as a fault."""
    return class_of(why) not in OTHERS


def is_ignored(why: str, ignore: Iterable[str]) -> bool:
    """Whether the configuration says that this is no reason."""
    return class_of(why) in IGNORABLE and any(
        fnmatchcase(why, item if ": " in item else f"{item}: *") for item in ignore
    )


def may_be_ignored(item: str) -> bool:
    """Whether an item of `ignore`, a pattern of classes or "class: pattern of the text", is about any class at all."""
    pattern = item.partition(": ")[0]
    return any(fnmatchcase(name, pattern) for name in IGNORABLE)
