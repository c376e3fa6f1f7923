# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find who holds devices: requests in the ledger, and containers of podman and docker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ... import files
from ...allocation.ledger.lock_file import has_traces
from ...discovery import inventory
from ...layout import ledger_path
from ...manifest import Manifest
from ...records import CdiError, Device
from ...runtimes import containers
from ...spec import codec
from ...spec.items import items_of
from ...spec.registry import Registry, all_edits
from ...spec.same_nodes import StrangeNodes
from ...system.device_nodes import numbers_at

if TYPE_CHECKING:
    from ...allocation.ledger.grant import Grant

SOME = 8  # names of each sort in a message

Find = Callable[[Mapping[str, Collection[str]]], containers.RunningContainers]


class NamedDevices(NamedTuple):
    """What a qualified name brings."""

    nodes: frozenset[str]  # paths on the host
    ids: frozenset[str]  # of the devices of the host that are among it


def grants(state_dir: str) -> list[Grant]:
    """Return all grants of the host; none if it never granted anything.

    Raises CdiError if the store can't be read, or if a damage may have lost grants.
    """
    if not has_traces(ledger_path(state_dir)):  # a question would create it
        return []
    # Imported here, because few hosts have a store, and the import of SQLite takes long.
    from ...allocation.ledger.ledger import Ledger

    return Ledger(state_dir, inventory.boot_id()).known_grants()


def named_holders(grant: Grant) -> str:
    """Return a grant for people: the request, its configuration, and its devices."""
    key = grant.key
    return (
        f"request {key.request_id} ({key.resource_type}/{key.plugin}) has {some(hold.device for hold in grant.holds)}"
    )


def some(words: Iterable[str]) -> str:
    """Return the first few of `words`, and how many more there are."""
    every = list(words)
    more = len(every) - SOME
    return ", ".join(every[:SOME]) + (f" and {more} more" if more > 0 else "")


def held_by(held: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return for people which devices are held by whom (pairs); those of the same holders come together."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, by in held:
        names.setdefault(tuple(by), []).append(name)
    groups = [*names.items()]
    shown = [f"{some(group)} {'are' if group[1:] else 'is'} held by {some(by)}" for by, group in groups[:SOME]]
    more = sum(len(group) for _by, group in groups[SOME:])
    return "; ".join(shown) + (f"; and {more} more devices" if more else "")


def every(kind: str) -> str:
    """Return the name of all devices of a kind together."""
    return f"{kind}=all"


def offered(spec: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return qualified name -> paths of its nodes on the host, for all devices in `spec`."""
    return {
        f"{spec['kind']}={device['name']}": _paths(device.get("containerEdits") or {}) for device in spec["devices"]
    }


def _paths(edits: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(node.get("hostPath") or node["path"] for node in edits.get("deviceNodes") or ())


def names_of_devices(devices: Sequence[Device], registry: Registry) -> dict[str, NamedDevices]:
    """Return all names by which a container can have any of `devices`.

    They are the names of any spec that bring a device node or network interface of them: a spec of another tool has
    names of its own, and an aggregate brings several devices. A device that is out of service is in no spec of ours any
    more, but its containers still run. So its own names, and `all` of its kind, are among them in any case.
    """
    same = StrangeNodes(all_edits(registry), [node for one in devices for node in one.nodes]).look(numbers_at)
    of_item: dict[str, set[str]] = {}
    found: dict[str, NamedDevices] = {}

    def add(name: str, nodes: Iterable[str], ids: Iterable[str]) -> None:
        before = found.get(name, NamedDevices(frozenset(), frozenset()))
        found[name] = NamedDevices(before.nodes.union(nodes), before.ids.union(ids))

    for one in devices:
        for item in same.closed(one.items):
            of_item.setdefault(item, set()).add(one.id)
        for name in (*one.qualified_names, every(one.kind)):
            add(name, [node.path for node in one.nodes], [one.id])
    for file in registry.specs:
        for spec in (file.spec, *(one.spec for one in file.taken)):
            shared = spec.get("containerEdits") or {}
            for device in spec["devices"]:
                edits = (shared, device.get("containerEdits") or {})
                ids = {id_ for one in edits for item in items_of(one, same) for id_ in of_item.get(item, ())}
                if ids:
                    add(f"{spec['kind']}={device['name']}", [path for one in edits for path in _paths(one)], ids)
    return found


def containers_with(
    devices: Sequence[Device], registry: Registry, find: Find
) -> tuple[dict[str, list[containers.Container]], containers.RunningContainers]:
    """Return (id of each of `devices` -> the containers that were made with it, the answers of the engines).

    `registry` has names by which containers were made, besides those of the devices (names_of_devices).
    """
    named = names_of_devices(devices, registry)
    asked = find({name: one.nodes for name, one in named.items()})
    found: dict[str, list[containers.Container]] = {}
    for one in asked.containers:
        for id_ in dict.fromkeys(id_ for name in one.devices for id_ in named[name].ids):
            found.setdefault(id_, []).append(one)
    return found, asked


def written(manifest: Manifest) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return path -> devices, as `offered` returns them, of every spec that we wrote, changed since or not.

    Specs that can't be read are left out.
    """
    found = {}
    for path, record in manifest.files.items():
        if not record["kind"]:
            continue
        try:
            live = files.read(path)
            if live is not None:
                found[path] = offered(codec.decode(live.content, path))
        except CdiError:
            continue
    return found
