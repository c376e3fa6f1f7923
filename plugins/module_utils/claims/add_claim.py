# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a claim: ask the plugins of all its resource-types, all or nothing, and write its spec.

The record is on disk before the first plugin is asked, so a claim that is killed on the way is found, and undone by
the next `claim add` of the same id or by `claim gc`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

from .. import files
from ..allocation.ledger.lock_file import has_traces
from ..layout import Layout, ledger_path
from ..manifest import read_manifest
from ..protocol.configurations import Configuration, directories, find
from ..protocol.errors import ProtocolError
from ..records import CdiError, Node, items
from ..spec.names import list_specs, transient_id
from ..system import device_nodes
from . import calls
from .calls import AddReply, Caller
from .delete_claim import spec_path, undo_claim
from .device_name import KIND, request_id
from .ended import has_ended
from .lifetime.users import make_users, start_hooks
from .record import ASKED, GRANTED, ClaimPart, ClaimRecord, WantedClaim
from .store import alone, read_claim, read_claims, write_claim

if TYPE_CHECKING:
    from ..spec.registry import Registry


class AddedClaim(NamedTuple):
    """The claim, and whether this call made it."""

    claim: ClaimRecord
    changed: bool


def add_claim(
    places: Layout,
    caller: Caller,
    boot_id: str,
    wanted: WantedClaim,
    reuse: bool = False,
    note: Callable[[ClaimRecord], None] = lambda _claim: None,
    of_pods: bool = False,
) -> AddedClaim:
    """Make the claim, or return the present one for the same request. `reuse`: also take an id that ended in this boot.

    `note` notes a user of the new claim, before it counts as granted. `of_pods`: the record of a pod has it.

    Raises CdiError; then this call leaves nothing behind, or a claim that is `asked`, with the reason.
    """
    with alone(places.state_dir, wanted.id, caller) as caller:
        claim = read_claim(places.state_dir, wanted.id)
        if claim and claim.state != ASKED and not claim.ended_by_reboot(boot_id):
            return AddedClaim(same_claim(claim, wanted, boot_id), False)
        if claim:
            undo_claim(places, caller, claim)
        configurations = check_wanted(places, boot_id, wanted, reuse)
        token = os.urandom(8).hex()
        asked = ClaimRecord(
            wanted,
            ASKED,
            tuple(ClaimPart(one.path) for one in configurations),
            boot_id=boot_id,
            token=token,
            uid=_user_id(wanted),
            spec=spec_path(places, wanted.id),
            of_pods=of_pods,
        )
        write_claim(places.state_dir, asked)
        try:
            claim = _granted(places, caller, asked, configurations)
            seen = read_specs(places)
            claim = claim._replace(state=GRANTED, names=names_of(places, claim, seen))
            if claim.uid:
                from .lifetime import user_access  # other claims need not pay for it

                claim = user_access.plan_access(places, claim)
                if claim.access:
                    asked = asked._replace(access=claim.access)
                    write_claim(places.state_dir, asked)
                user_access.give_access(places, claim)
            write_spec(places, claim, seen)
            if claim.uid:
                user_access.check_access(places, claim, spec_path(places, claim.id))
            note(claim)
            write_claim(places.state_dir, claim)
        except CdiError as error:
            try:
                undo_claim(places, caller, asked)
            except CdiError as second:
                raise CdiError(f"claim {wanted.id}: {error}; then {second}") from None
            raise CdiError(f"claim {wanted.id}: {error}") from None
        return AddedClaim(claim, True)


def check_wanted(places: Layout, boot_id: str, wanted: WantedClaim, reuse: bool) -> tuple[Configuration, ...]:
    """Return the configurations that may grant the claim, in the order of use. Changes nothing.

    Raises CdiError for a resource-type that no configuration has, for an id that ended, for a user who can't have a
    claim, and for two ends of one claim.
    """
    if wanted.keep and wanted.release_on_stop:
        raise CdiError(
            f"claim {wanted.id}: found release_on_stop and keep; expected one of them: the claim ends when its "
            "container stops, or when it is given back"
        )
    if _user_id(wanted) and wanted.release_on_stop:
        raise CdiError(
            f"claim {wanted.id}: found --release-on-stop with --for {wanted.for_user}; expected one of them: a claim "
            f"for an ordinary user ends with `fleet-cdi claim del {wanted.id}`, because no hook of root sees that "
            "container"
        )
    if not reuse and has_ended(places.ended_claims, boot_id, wanted.id):
        raise CdiError(
            f"claim {wanted.id}: ended in this boot, and a container may still ask for it by this name. Choose another "
            "id, or say that this one is meant again (--reuse)."
        )
    found: list[Configuration] = []
    config_dirs = directories(read_manifest(places.state_dir).files, places.config_dir)
    for type_ in wanted.types:
        looks = [find(config_dir, type_) for config_dir in config_dirs]
        these = [one for look in looks for one in look.configurations]
        if not these:
            why = "; ".join(f"{path}: {error}" for look in looks for path, error in look.errors.items())
            raise CdiError(
                f"claim {wanted.id}: {type_}.d in {' or '.join(config_dirs)} has no configuration"
                + (f" that can be used: {why}" if why else ". Module cdi_plugin writes one.")
            )
        found += these
    if not has_traces(ledger_path(places.state_dir)):
        _refuse_without_ledger(places, boot_id, wanted)
    return tuple(found)


def refuse_excess(caller: Caller, configurations: Sequence[Configuration], wanted: WantedClaim) -> None:
    """Raise CdiError for an amount that no configuration has, free or not: for check mode, in which nothing is granted.

    An executable that does not tell its amounts may have any.
    """
    for type_, amounts in wanted.types.items():
        told = [_amounts(caller, one) for one in configurations if one.config.type == type_]
        for spec, amount in amounts.items():
            most = max(one.get(spec, amount) for one in told)
            if most < amount:
                raise CdiError(
                    f"claim {wanted.id}: {spec}: found {amount}; expected {most} at most, because no configuration of "
                    f"{type_} has more: ask for less, or see `fleet-cdi doctor` for devices that can't be granted"
                )


def _amounts(caller: Caller, one: Configuration) -> dict[str, int]:
    """Return what the executable of a configuration has; {} if it does not tell, or is not installed yet."""
    with suppress(ProtocolError):
        return calls.info(caller, one)
    return {}


def _refuse_without_ledger(places: Layout, boot_id: str, wanted: WantedClaim) -> None:
    """Raise CdiError if other claims have grants of ours, and no file of the ledger is left to tell of them.

    Else our executables would begin a new ledger, and grant their devices once more.
    """
    from .ledger_grants import LedgerGrants  # a host has a ledger from its first claim on

    path = ledger_path(places.state_dir)
    ledger = LedgerGrants(places, boot_id)
    for claim in read_claims(places.state_dir).claims:
        if claim.state != ASKED and not claim.ended_by_reboot(boot_id) and ledger.devices(claim):
            raise CdiError(
                f"claim {wanted.id}: {path} is missing, and claim {claim.id} has devices by it, which this one could "
                "get. Restore it from a backup, or give the claims back (fleet-cdi claim list, fleet-cdi claim del ID)."
            )


def read_specs(places: Layout) -> Optional[Registry]:
    """Return the specs of this host but those of claims: a claim has no edits of others, and there may be many.

    Return None if the host has no others.
    """
    of_claim = partial(transient_id, kind=KIND)
    if all(of_claim(path) for _priority, path in list_specs(places.spec_dirs).paths):
        return None
    from ..spec import registry  # takes a tenth of the time of a claim

    return registry.load(places.spec_dirs, skipped=of_claim)


def write_spec(places: Layout, claim: ClaimRecord, seen: Optional[Registry]) -> None:
    """Write the claim's spec for the nodes and names in its record. Raises CdiError."""
    path = spec_path(places, claim.id)
    if not os.path.isdir(os.path.dirname(path)):
        files.make_directory(os.path.dirname(path))
    content = spec_content(places, claim, seen)
    if claim.uid:
        from .lifetime.user_access import spec_attribute

        files.replace(path, content, 0o600, access_list=spec_attribute(claim))
        return
    make_users(places.state_dir, claim)
    files.replace(path, content)


def spec_content(places: Layout, claim: ClaimRecord, seen: Optional[Registry]) -> bytes:
    """Return the claim's spec for the nodes and names in its record. Raises CdiError if a name is not in `seen`."""
    from .claim_spec import claim_spec  # after the plugins ran: their fork is smaller without it

    return claim_spec(claim.id, claim.nodes, claim.names, seen, start_hooks(places, claim))


def same_claim(claim: ClaimRecord, wanted: WantedClaim, boot_id: str) -> ClaimRecord:
    """Return the present claim if it is for the same request. Raises CdiError."""
    if claim.wanted != wanted:
        raise CdiError(
            f"claim {claim.id}: is there already, for {claim.wanted}; found a request for {wanted}. Give it back first "
            f"(fleet-cdi claim del {claim.id}), or choose another id."
        )
    if claim.boot_id != boot_id:
        raise CdiError(
            f"claim {claim.id}: was granted before the last reboot and has not been restored. Run `fleet-cdi claim "
            f"restore`, or give it back (fleet-cdi claim del {claim.id})."
        )
    return claim


def _user_id(wanted: WantedClaim) -> int:
    """Return the user id of the user of a claim; 0 without one. Raises CdiError for a user who can't have a claim."""
    if not wanted.for_user:
        return 0
    from .lifetime.user_access import user_id

    return user_id(wanted.for_user)


def _granted(
    places: Layout, caller: Caller, claim: ClaimRecord, configurations: tuple[Configuration, ...]
) -> ClaimRecord:
    """Ask the plugins of all resource-types. Raises CdiError if one does not grant its part."""
    parts: list[ClaimPart] = []
    locality: set[int] = set()
    for type_ in claim.wanted.types:
        these = [one for one in configurations if one.config.type == type_]
        reply = ask(caller, these, claim.wanted, type_)
        parts.append(ClaimPart(reply.path, tuple(read_node(places.root, path) for path in reply.devices)))
        locality.update(reply.numa_locality)
    return claim._replace(parts=tuple(parts), numa_locality=tuple(sorted(locality)))


def ask(
    caller: Caller, these: Sequence[Configuration], wanted: WantedClaim, type_: str, again: bool = False
) -> AddReply:
    """Get the part of the claim that is of one resource-type; `again`: it was granted before. Raises ProtocolError."""
    request = {spec: str(amount) for spec, amount in wanted.types[type_].items()}
    return calls.add(caller, these, request, request_id(wanted.id), wanted.near, wanted.only, again)


def names_of(places: Layout, claim: ClaimRecord, seen: Optional[Registry]) -> tuple[str, ...]:
    """Return the CDI devices that the claim has; if several are the same hardware, that of a spec of ours."""
    if seen is None:
        return ()
    from .claim_spec import granted_names

    manifest = read_manifest(places.state_dir)
    own = {file.path for file in seen.specs if manifest.record(file.path)}
    return granted_names([node.path for node in claim.nodes], seen, own)


def with_present_names(places: Layout, claim: ClaimRecord, seen: Optional[Registry]) -> ClaimRecord:
    """Return the claim with the names of now if one in its record is gone, and those of now bring all its nodes.

    Else it is unchanged: a tool may be writing the spec of a device anew. Raises CdiError if the manifest is damaged.
    """
    if seen is None or all(name in seen.devices for name in claim.names):
        return claim
    from ..spec.inject import resolve_edits
    from ..spec.items import items_of

    names = names_of(places, claim, seen)
    there = {item for _path, edits in resolve_edits(names, seen) for item in items_of(edits)}
    return claim._replace(names=names) if there.issuperset(items(node.path for node in claim.nodes)) else claim


def read_node(root: str, path: str) -> Node:
    """Return the device node that a plugin granted. Raises CdiError if the path has no device node."""
    try:
        if not os.path.isabs(path) or os.path.normpath(path) != path:
            raise ValueError("is not an absolute path in its shortest form")
        return Node(path, *device_nodes.read(path, device_nodes.below(root)))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CdiError(f"{path}: was granted, and {why}; expected a device node") from None
