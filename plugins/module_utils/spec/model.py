# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every field of a CDI spec, 0.3.0 to 1.1.0, as data (SPEC.md, "CDI JSON Specification").

A spec is kept as the plain JSON document that it is. These tables say what may stand in it, in which order it is
written, which version a field needs and which rules its value obeys; `validate`, `versions` and `codec` only apply
them.
"""

from __future__ import annotations

from typing import NamedTuple, Union

# The versions there are, oldest first. The reference library refuses everything else, 1.0.1 too.
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")

# The libraries that read versions below 1.0.0 refuse fields that came after this one, even null and empty ones.
LAST_OF_OLD_LIBRARIES = "0.8.0"


class Field(NamedTuple):
    """One field: its JSON type, or the table of the objects in it, and what holds for it."""

    # "string", "boolean", "int64", "uint32", "strings", "uint32s", "annotations"; or a table
    type: Union[str, FieldTable]
    many: bool = False  # a list of such objects
    required: bool = False
    since: str = "0.3.0"
    until: str = ""  # the first version in which no library knows it
    even_empty: bool = False  # it needs `since` even when it is empty
    rules: tuple[str, ...] = ()  # the ids of its rules in `validate`, in the order in which they are tried


class FieldTable(NamedTuple):
    """The fields of one object, in the order in which they are written."""

    name: str
    fields: dict[str, Field]


PATH = ("not-empty", "absolute-path")
ENVIRONMENT = ("environment", "unique-environment")

DEVICE_NODE = FieldTable(
    "deviceNode",
    {
        "path": Field("string", required=True, rules=PATH),
        "hostPath": Field("string", since="0.5.0", rules=("absolute-path",)),
        "type": Field("string", rules=("node-type",)),
        "major": Field("int64"),
        "minor": Field("int64"),
        "fileMode": Field("uint32"),
        "permissions": Field("string", rules=("permissions",)),
        "uid": Field("uint32"),
        "gid": Field("uint32"),
    },
)

NET_DEVICE = FieldTable(
    "netDevice",
    {
        "hostInterfaceName": Field("string", required=True, rules=("not-empty",)),
        "name": Field("string", required=True, rules=("not-empty",)),
    },
)

MOUNT = FieldTable(
    "mount",
    {
        "hostPath": Field("string", required=True, rules=("not-empty",)),
        "containerPath": Field("string", required=True, rules=PATH),
        "options": Field("strings"),
        "type": Field("string", since="0.4.0"),
    },
)

HOOK = FieldTable(
    "hook",
    {
        "hookName": Field("string", required=True, rules=("hook-name",)),
        "path": Field("string", required=True, rules=PATH),
        "args": Field("strings"),
        "env": Field("strings", rules=ENVIRONMENT),
        "timeout": Field("int64", rules=("not-negative", "positive")),
    },
)

# enableCMT and enableMBM: the libraries of 0.7.0 to 1.0.0 know them, that of 1.1.0 refuses them whatever is declared. A
# spec that declares 1.0.0 has nothing from it, and loses both the older runtimes and the newest.
INTEL_RDT = FieldTable(
    "intelRdt",
    {
        "closID": Field("string", rules=("clos-id",)),
        "l3CacheSchema": Field("string"),
        "memBwSchema": Field("string"),
        "schemata": Field("strings", since="1.1.0", even_empty=True),
        "enableMonitoring": Field("boolean", since="1.1.0"),
        "enableCMT": Field("boolean", since="0.7.0", until="1.0.0"),
        "enableMBM": Field("boolean", since="0.7.0", until="1.0.0"),
    },
)

CONTAINER_EDITS = FieldTable(
    "containerEdits",
    {
        "env": Field("strings", rules=ENVIRONMENT),
        "deviceNodes": Field(DEVICE_NODE, many=True, rules=("unbuffered-major",)),
        "netDevices": Field(NET_DEVICE, many=True, since="1.1.0", rules=("unique-interfaces",)),
        "hooks": Field(HOOK, many=True),
        "mounts": Field(MOUNT, many=True, rules=("absolute-source",)),
        "intelRdt": Field(INTEL_RDT, since="0.7.0", even_empty=True),
        "additionalGids": Field("uint32s", since="0.7.0", rules=("gid-zero",)),
    },
)

DEVICE = FieldTable(
    "device",
    {
        "name": Field("string", required=True, rules=("device-name",)),
        "annotations": Field("annotations", since="0.6.0", rules=("annotation-keys", "annotation-size")),
        "containerEdits": Field(CONTAINER_EDITS, required=True, rules=("some-edit",)),
    },
)

SPEC = FieldTable(
    "spec",
    {
        "cdiVersion": Field("string", required=True, rules=("version", "semantic-version")),
        "kind": Field("string", required=True, rules=("kind", "one-letter", "vendor-dns", "class-length")),
        "annotations": Field("annotations", since="0.6.0", rules=("annotation-keys", "annotation-size")),
        "devices": Field(DEVICE, many=True, required=True, rules=("no-devices", "unique-names")),
        "containerEdits": Field(CONTAINER_EDITS),
    },
)

TABLES = (SPEC, DEVICE, CONTAINER_EDITS, DEVICE_NODE, NET_DEVICE, MOUNT, HOOK, INTEL_RDT)
