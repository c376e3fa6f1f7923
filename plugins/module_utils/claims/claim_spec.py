# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spec of a claim: one CDI device with the granted nodes and the edits of the CDI devices that they are.

A plugin grants device nodes. Where specs of this host define devices with exactly these nodes, the claim has their
edits, too: libraries, variables, hooks. A container gets them as if it had asked for these devices by name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, Optional

from ..records import NODE, CdiError, Node, items
from ..spec.names import AGGREGATES, foreign_claim
from .device_name import KIND, device_name

if TYPE_CHECKING:
    from ..spec.items import Edits
    from ..spec.registry import Registry

# Field of containerEdits -> the key that two equal items share. The later item counts, as when a runtime applies both.
SAME: dict[str, Callable[[Any], Any]] = {
    "env": lambda item: item.partition("=")[0],
    "deviceNodes": lambda item: item["path"],
    "netDevices": lambda item: item["hostInterfaceName"],
    "mounts": lambda item: item["containerPath"],
    "hooks": lambda item: json.dumps(item, sort_keys=True),
    "additionalGids": lambda item: item,
}

# Versions that releases 0.3.0 and 0.4.0 of the library read. They crash, with their runtime, at a name of one letter.
OLDEST = ("0.3.0", "0.4.0")


def granted_names(paths: Collection[str], registry: Registry, own: Collection[str] = ()) -> tuple[str, ...]:
    """Return the qualified names of the devices that have these nodes and no others, each piece of hardware once.

    The order of choice: specs that we wrote (`own`, paths), then the device with the most nodes, as a MIG instance
    before its GPU. A device that adds no node is left out, as a second name of the same one.
    """
    from ..spec.items import items_of  # a host without other specs needs it not

    granted = set(items(paths))
    skipped = {
        file.path for file in registry.specs if file.spec["kind"] == KIND or foreign_claim(file.path, file.spec["kind"])
    }
    found = []
    for name, path in registry.devices.items():
        if path in skipped or name.partition("=")[2] in AGGREGATES:
            continue
        nodes = {item for item in items_of(registry.edits[name]) if item.startswith(NODE)}
        if nodes and nodes <= granted:
            found.append((path not in own, -len(nodes), name, nodes))
    chosen: list[str] = []
    covered: set[str] = set()
    for _foreign, _count, name, nodes in sorted(found, key=lambda one: one[:3]):
        if not nodes <= covered:
            chosen.append(name)
            covered |= nodes
    return tuple(chosen)


def claim_spec(
    id_: str,
    nodes: Sequence[Node],
    names: Sequence[str],
    registry: Optional[Registry],
    hooks: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """Return the spec of a claim: the edits of the devices `names`, and the granted `nodes` that these lack.

    Without `names`, no `registry` is needed. `hooks` of the claim itself run before those of its devices.

    It has the numbers of the granted nodes, so a container gets this hardware or none, though another device takes the
    path meanwhile. Raises CdiError if a name can't be resolved any more, for a claim without any edit, and if
    two devices have one path in a container.
    """
    edits = _merged([{"hooks": [*hooks]}, *_edits_of(names, registry)])
    known = {node.path: node for node in nodes}
    listed = [_numbered(node, known) for node in edits.get("deviceNodes", ())]
    there = {node.get("hostPath") or node["path"] for node in listed}
    listed += [_numbered({"path": node.path}, known) for node in nodes if node.path not in there]
    hosts: dict[str, str] = {}  # path in the container -> path on the host
    for node in listed:
        path, host = node["path"], node.get("hostPath") or node["path"]
        if hosts.setdefault(path, host) != host:
            raise CdiError(
                f"{hosts[path]} and {host} have the same path in a container, {path}, so one would hide the other. "
                "Claim them apart."
            )
    edits = {
        **({"deviceNodes": listed} if listed else {}),
        **{key: edits[key] for key in edits if key != "deviceNodes"},
    }
    spec = {"cdiVersion": "0.3.0", "kind": KIND, "devices": [{"name": device_name(id_), "containerEdits": edits}]}
    return (b"" if names or not nodes else nodes_spec(spec)) or checked_spec(spec)


def nodes_spec(spec: dict[str, Any]) -> bytes:
    """Return the spec of a claim that has granted nodes and hooks of ours alone; b"" for one with rare characters.

    It is what `checked_spec` returns, in a tenth of the time: it has no field of a later version, and all fields are in
    order. A test compares both.
    """
    name = spec["devices"][0]["name"]
    version = "0.5.0" if len(name) == 1 or name[0].isdigit() else "0.3.0"
    text = json.dumps({**spec, "cdiVersion": version}, indent=2, ensure_ascii=False) + "\n"
    return text.encode() if text.isascii() and "\x7f" not in text else b""


def checked_spec(spec: dict[str, Any]) -> bytes:
    """Return the spec of a claim, with the lowest version for its fields. Raises CdiError if it would not be valid."""
    from ..spec.codec import encode, errors_in
    from ..spec.validate import validate
    from ..spec.versions import lowest_version

    version = lowest_version(spec)
    if len(spec["devices"][0]["name"]) == 1 and version in OLDEST:
        version = "0.5.0"
    spec = {**spec, "cdiVersion": version}
    wrong = errors_in(validate(spec))
    if wrong:
        raise CdiError(f"its spec would not be valid: {wrong}")
    return encode(spec)


def _edits_of(names: Sequence[str], registry: Optional[Registry]) -> list[Edits]:
    if registry is None:
        return []
    from ..spec.inject import resolve_edits

    return [one for _path, one in resolve_edits(names, registry)]


def _merged(edits: Sequence[Edits]) -> dict[str, Any]:
    """Return all edits as one."""
    found: dict[str, dict[Any, Any]] = {}
    for one in edits:
        for field, same in SAME.items():
            for item in one.get(field) or ():
                found.setdefault(field, {})[same(item)] = item
    merged: dict[str, Any] = {field: list(values.values()) for field, values in found.items()}
    rdt = [one["intelRdt"] for one in edits if one.get("intelRdt") is not None]
    return {**merged, **({"intelRdt": rdt[-1]} if rdt else {})}


def _numbered(node: Mapping[str, Any], known: Mapping[str, Node]) -> dict[str, Any]:
    """Return the node of a spec with type and numbers if it was granted."""
    granted = known.get(node.get("hostPath") or node["path"])
    if granted is None:
        return dict(node)
    return {**node, "type": granted.type, "major": granted.major, "minor": granted.minor}
