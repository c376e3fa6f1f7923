# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the request of an ADD and its list of NUMA nodes.

CDI proposal 2017, "ADD" and "Common ABNF rules"; docs/executables.md decides what they leave open.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from ...protocol import errors, grammar
from ...protocol.errors import ProtocolError
from ...protocol.messages import shown

LARGEST = (1 << 63) - 1  # amount that the store and most JSON parsers can hold
MIB = 1 << 20

# The suffixes of the proposal's examples (2048Mi, 8Gi), and those of Kubernetes' quantities.
FACTORS = {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}
FACTORS.update({unit: 1000**power for power, unit in enumerate("kMGTPE", 1)})

LONGEST = 20  # digits of a number that we parse; LARGEST has 19


class DeviceRequest(NamedTuple):
    """One request. Sub-resources count per device; the unit of memory is MiB."""

    devices: int  # number of whole devices; 0: a share of one device, with the size in `needs`
    needs: tuple[tuple[str, int], ...]  # (sub-resource, amount), by name: ("memory", 4096)
    amounts: tuple[tuple[str, int], ...]  # (resource-spec, amount), by name: equal ones are the same request


def parse(text: str, resource_type: str) -> DeviceRequest:
    """Return the request in `text` for devices of `resource_type`.

    Raises ProtocolError 4 for another type, a bad amount, or a resource that is named twice.
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
    """Raise ProtocolError 4 for a sub-resource that is not `offered`, and for a share if shares are not offered."""
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
    """Return True for a sub-resource in MiB: `gpu-memory` of the proposal, and similar names."""
    return subtype.endswith("memory")


def numa_nodes(text: str) -> tuple[int, ...]:
    """Return the NUMA nodes in `CDI_REQUEST_NUMA_LOCALITY`, ascending. Raises ProtocolError 107 for a bad list."""
    found = [_digits(item) for item in text.split(",")] if text else []
    if not all(found):
        raise ProtocolError(
            errors.CONTENT, f"CDI_REQUEST_NUMA_LOCALITY is {shown(text)}; expected a comma separated list of integers"
        )
    return tuple(sorted(set(map(int, found))))


def _amount(spec: str, text: str, memory: bool) -> int:
    """Return the amount in `text`. Memory is in MiB, rounded up, because the container needs at least that much."""
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
    """Return `text` without leading zeros if it is a plain integer of bounded length, else "".

    A plain integer has no sign, point or exponent.
    """
    digits = text.lstrip("0") or text[-1:]
    return digits if len(digits) <= LONGEST and digits.isascii() and digits.isdecimal() else ""


def _refused(details: str) -> ProtocolError:
    return ProtocolError(errors.RESOURCE_SPEC, details)
