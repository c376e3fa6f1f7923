# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bytes of messages, as the kubelet's api.proto numbers their fields: both ends of the other tests are ours."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

CASES = [
    # message, its fields, the fields on the wire: (number, content)
    (
        "RegisterRequest",
        {"version": "v1beta1", "endpoint": "e", "resource_name": "a/b"},
        [(1, "v1beta1"), (2, "e"), (3, "a/b")],
    ),
    ("DevicePluginOptions", {"pre_start_required": True, "get_preferred_allocation_available": True}, [(1, 1), (2, 1)]),
    ("Device", {"ID": "d0", "health": "Healthy"}, [(1, "d0"), (2, "Healthy")]),
    (
        "ContainerPreferredAllocationRequest",
        {"available_deviceIDs": ["a", "b"], "must_include_deviceIDs": ["c"], "allocation_size": 2},
        [(1, "a"), (1, "b"), (2, "c"), (3, 2)],
    ),
    ("ContainerPreferredAllocationResponse", {"deviceIDs": ["a", "b"]}, [(1, "a"), (1, "b")]),
    ("ContainerAllocateRequest", {"devices_ids": ["a"]}, [(1, "a")]),
    ("Mount", {"container_path": "/c", "host_path": "/h", "read_only": True}, [(1, "/c"), (2, "/h"), (3, 1)]),
    ("DeviceSpec", {"container_path": "/c", "host_path": "/h", "permissions": "rw"}, [(1, "/c"), (2, "/h"), (3, "rw")]),
    ("CDIDevice", {"name": "a/b=c"}, [(1, "a/b=c")]),
]


def wire(fields: list[tuple[int, Any]]) -> bytes:
    """Short fields as protobuf writes them."""
    found = b""
    for number, content in fields:
        text = content.encode() if isinstance(content, str) else b""
        found += bytes([number << 3 | 2, len(text)]) + text if text else bytes([number << 3, content])
    return found


@pytest.mark.parametrize(("message", "fields", "numbers"), CASES, ids=[case[0] for case in CASES])
def test_on_the_wire(message: str, fields: dict[str, Any], numbers: list[tuple[int, Any]]) -> None:
    assert getattr(api.v1beta1, message)(**fields).SerializeToString(deterministic=True) == wire(numbers)
