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
        if spec.partition("-")[0] != resource_type:
            raise _refused(f"Unsupported resource-spec: {spec}")
        if spec in amounts:
            raise _refused(f"CDI_REQUEST names {spec} twice; expected each resource-spec once")
        amounts[spec] = _amount(spec, amount)
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


def numa_nodes(text: str) -> tuple[int, ...]:
    """Return the NUMA nodes in `CDI_REQUEST_NUMA_LOCALITY`, ascending. Raises ProtocolError 107 for a bad list."""
    found = [grammar.digits(item) for item in text.split(",")] if text else []
    if not all(found):
        raise ProtocolError(
            errors.CONTENT, f"CDI_REQUEST_NUMA_LOCALITY is {shown(text)}; expected a comma separated list of integers"
        )
    return tuple(sorted(set(map(int, found))))


def _amount(spec: str, text: str) -> int:
    amount = grammar.amount(spec, text)
    if amount is None:
        memory = grammar.is_memory(spec)
        expected = "an integer of MiB, or one with a suffix (Ki, Mi, Gi, k, M, G)" if memory else "an integer"
        raise _refused(f"the amount of {spec} is {shown(text)}; expected {expected}")
    if not 1 <= amount <= grammar.LARGEST:
        raise _refused(f"the amount of {spec} is {shown(text)}; expected 1 to {grammar.LARGEST}")
    return amount


def _refused(details: str) -> ProtocolError:
    return ProtocolError(errors.RESOURCE_SPEC, details)
