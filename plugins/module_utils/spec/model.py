# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every field of a CDI spec, 0.3.0 to 1.1.0, as data (SPEC.md, "CDI JSON Specification"). Private API of fleet.cdi.

A spec is kept as the plain JSON document that it is. These tables say what may stand in it, in which order it is
written, which
version a field needs and which rule its value obeys; `validate`, `versions` and `codec` only apply them.
"""

from __future__ import annotations

from typing import NamedTuple, Union

# The versions there are, oldest first. The reference library refuses everything else, 1.0.1 too.
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")


class Field(NamedTuple):
    """One field: its JSON type, or the table of the objects in it, and what holds for it."""

    type: Union[
        str, Table
    ]  # "string", "boolean", "int64", "uint32", "integer", "strings", "uint32s", "annotations"; a table
    many: bool = False  # a list of such objects
    required: bool = False
    since: str = "0.3.0"
    until: str = ""  # the first version without it
    even_empty: bool = False  # it needs `since` even when it is empty
    rule: str = ""  # the name of its rule in `validate`


class Table(NamedTuple):
    """The fields of one object, in the order in which they are written."""

    name: str
    fields: dict[str, Field]


DEVICE_NODE = Table(
    "deviceNode",
    {
        "path": Field("string", required=True, rule="absolute-path"),
        "hostPath": Field("string", since="0.5.0", rule="absolute-path"),
        "type": Field("string", rule="node-type"),
        "major": Field("int64"),
        "minor": Field("int64"),
        "fileMode": Field("uint32"),
        "permissions": Field("string", rule="permissions"),
        "uid": Field("uint32"),
        "gid": Field("uint32"),
    },
)

NET_DEVICE = Table(
    "netDevice",
    {
        "hostInterfaceName": Field("string", required=True, rule="not-empty"),
        "name": Field("string", required=True, rule="not-empty"),
    },
)

MOUNT = Table(
    "mount",
    {
        "hostPath": Field("string", required=True, rule="absolute-path"),
        "containerPath": Field("string", required=True, rule="absolute-path"),
        "options": Field("strings"),
        "type": Field("string", since="0.4.0"),
    },
)

HOOK = Table(
    "hook",
    {
        "hookName": Field("string", required=True, rule="hook-name"),
        "path": Field("string", required=True, rule="absolute-path"),
        "args": Field("strings"),
        "env": Field("strings", rule="environment"),
        "timeout": Field("int64", rule="positive"),
    },
)

INTEL_RDT = Table(
    "intelRdt",
    {
        "closID": Field("string", rule="clos-id"),
        "l3CacheSchema": Field("string"),
        "memBwSchema": Field("string"),
        "schemata": Field("strings", since="1.1.0", even_empty=True),
        "enableMonitoring": Field("boolean", since="1.1.0"),
        "enableCMT": Field("boolean", since="0.7.0", until="1.1.0"),
        "enableMBM": Field("boolean", since="0.7.0", until="1.1.0"),
    },
)

CONTAINER_EDITS = Table(
    "containerEdits",
    {
        "env": Field("strings", rule="environment"),
        "deviceNodes": Field(DEVICE_NODE, many=True),
        "netDevices": Field(NET_DEVICE, many=True, since="1.1.0"),
        "hooks": Field(HOOK, many=True),
        "mounts": Field(MOUNT, many=True),
        "intelRdt": Field(INTEL_RDT, since="0.7.0", even_empty=True),
        "additionalGids": Field("uint32s", since="0.7.0"),
    },
)

DEVICE = Table(
    "device",
    {
        "name": Field("string", required=True, rule="device-name"),
        "annotations": Field("annotations", since="0.6.0"),
        "containerEdits": Field(CONTAINER_EDITS, required=True, rule="some-edit"),
    },
)

SPEC = Table(
    "spec",
    {
        "cdiVersion": Field("string", required=True, rule="version"),
        "kind": Field("string", required=True, rule="kind"),
        "annotations": Field("annotations", since="0.6.0"),
        "devices": Field(DEVICE, many=True, required=True, rule="unique-names"),
        "containerEdits": Field(CONTAINER_EDITS),
    },
)
