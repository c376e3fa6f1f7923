# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an ADD asks for, and near which NUMA nodes. Private API of fleet.cdi.

CDI proposal 2017, "ADD" and "Common ABNF rules"; what it leaves open is decided in docs/executables.md.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from ...protocol import errors, grammar
from ...protocol.errors import ProtocolError
from ...protocol.messages import shown

LARGEST = (1 << 63) - 1  # of an amount: what the store and most readers of JSON can hold
MIB = 1 << 20

# The suffixes of the proposal's own examples (2048Mi, 8Gi), and those of Kubernetes' quantities beside them.
FACTORS = {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}
FACTORS.update({unit: 1000**power for power, unit in enumerate("kMGTPE", 1)})

LONGEST = 20  # digits of a number that is looked at: LARGEST has 19


class DeviceRequest(NamedTuple):
    """One request. Sub-resources count per device; of those that are memory the unit is MiB."""

    devices: int  # how many to have alone; 0: a share of one device, of the size that `needs` says
    needs: tuple[tuple[str, int], ...]  # (sub-resource, amount), by name: ("memory", 4096)
    amounts: tuple[tuple[str, int], ...]  # (resource-spec, amount) as asked for, by name: what makes a request the same


def parse(text: str, resource_type: str) -> DeviceRequest:
    """The request in `text` for devices of `resource_type`.

    Raises ProtocolError 4 for another type, an amount that is none, one resource twice.
    """
    amounts: dict[str, int] = {}
    for item in text.split(","):
        spec, colon, amount = item.partition(":")
        if not colon or not grammar.is_resource_spec(spec):
            raise _refused(f"CDI_REQUEST has {shown(item)}; expected <resource-spec>:<amount>,...")
        type_, _hyphen, subtype = spec.partition("-")
        if type_ != resource_type:
            raise _refused(f"Unsupported resource-spec: {spec}")
        if spec in amounts:
            raise _refused(f"CDI_REQUEST names {spec} twice; expected each resource-spec once")
        amounts[spec] = _amount(spec, amount, is_memory(subtype))
    needs = tuple(sorted((spec.partition("-")[2], amount) for spec, amount in amounts.items() if "-" in spec))
    return DeviceRequest(amounts.get(resource_type, 0), needs, tuple(sorted(amounts.items())))


def check(asked: DeviceRequest, resource_type: str, offered: Container[str], shared: bool) -> None:
    """Raise ProtocolError 4 for a sub-resource that is not `offered`, and for a share where none are given."""
    for name, _amount in asked.needs:
        if name not in offered:
            raise _refused(f"Unsupported resource-spec: {resource_type}-{name}")
    if not asked.devices and not shared:
        spec = asked.amounts[0][0]
        raise _refused(
            f"Unsupported resource-spec: {spec} without {resource_type} is a share of a device, and this configuration "
            "gives whole devices (args.shared)"
        )


def is_memory(subtype: str) -> bool:
    """Whether amounts of a sub-resource are memory, in MiB: `gpu-memory` of the proposal, and what is named alike."""
    return subtype.endswith("memory")


def numa_nodes(text: str) -> tuple[int, ...]:
    """The preferred NUMA nodes in `CDI_REQUEST_NUMA_LOCALITY`, ascending. Raises ProtocolError 107 for a bad list."""
    found = [_digits(item) for item in text.split(",")] if text else []
    if not all(found):
        raise ProtocolError(
            errors.CONTENT, f"CDI_REQUEST_NUMA_LOCALITY is {shown(text)}; expected a comma separated list of integers"
        )
    return tuple(sorted(set(map(int, found))))


def _amount(spec: str, text: str, memory: bool) -> int:
    """The amount in `text`: of memory in MiB, rounded up, since it is what the container needs at least."""
    suffix = text.lstrip("0123456789")
    digits = _digits(text[: len(text) - len(suffix)])
    if not digits or (suffix and not (memory and suffix in FACTORS)):
        expected = "an integer of MiB, or one with a suffix (Ki, Mi, Gi, k, M, G)" if memory else "an integer"
        raise _refused(f"the amount of {spec} is {shown(text)}; expected {expected}")
    amount = int(digits)
    if suffix:
        amount = -(-amount * FACTORS[suffix] // MIB)
    if not 1 <= amount <= LARGEST:
        raise _refused(f"the amount of {spec} is {shown(text)}; expected 1 to {LARGEST}")
    return amount


def _digits(text: str) -> str:
    """`text` without zeros in front if it is a plain integer of bounded length: no sign, point or exponent; else ""."""
    digits = text.lstrip("0") or text[-1:]
    return digits if len(digits) <= LONGEST and digits.isascii() and digits.isdecimal() else ""


def _refused(details: str) -> ProtocolError:
    return ProtocolError(errors.RESOURCE_SPEC, details)
