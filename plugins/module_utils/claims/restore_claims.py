# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After a reboot, give claims their specs again, with the device nodes read anew.

A claim gets the hardware that it had, or none: a device that is gone is reported, its claim has no spec, and the next
restore tries again. The same holds in one boot, once another device has the node of one that is gone. Runs at the end
of each refresh, so before the container engines (docs/refresh.md). Claims that do not survive a reboot get no spec, and
collect_claims.py frees them: a refresh calls no executables of third parties.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, Optional

from .. import documents, files
from ..discovery import inventory
from ..layout import Layout
from ..protocol.configurations import read
from ..protocol.pools import PROFILES, pool_path
from ..records import CdiError
from .add_claim import ask, names_of, read_node, read_specs, spec_content, with_present_names, write_spec
from .calls import Caller
from .delete_claim import remove_specs, spec_path
from .ledger_grants import LedgerGrants
from .lifetime.user_access import access_faults, give_access, has_spec_access, plan_access, take_back
from .lifetime.users import has_users
from .record import ASKED, ClaimPart, ClaimRecord
from .store import alone, read_claim, read_claims, write_claim

if TYPE_CHECKING:
    from ..spec.registry import Registry

    Specs = Callable[[], Optional[Registry]]  # read at the first call


class RestoredClaims(NamedTuple):
    """What a restore did."""

    restored: tuple[str, ...] = ()  # ids
    failed: tuple[str, ...] = ()


def restore_claims(places: Layout, caller: Caller, boot_id: str) -> RestoredClaims:
    """Restore all claims of earlier boots, and specs that are missing, changed or elsewhere.

    Raises CdiError if the claims can't be listed.
    """
    stored = read_claims(places.state_dir)
    restored, failed = [], list(stored.errors.values())
    ledger = LedgerGrants(places, boot_id)
    specs = lru_cache(None)(partial(read_specs, places))
    failed += _withdraw(places, caller, boot_id, stored.claims, ledger)
    for found in stored.claims:
        if not _is_lost(places, found, boot_id, ledger, specs):
            continue
        try:
            with alone(places.state_dir, found.id, caller) as holding:
                claim = read_claim(places.state_dir, found.id)
                if claim is not None and _is_lost(places, claim, boot_id, ledger, specs):
                    _restore(places, holding, boot_id, claim, ledger)
                    restored.append(claim.id)
        except CdiError as error:
            failed.append(str(error))
    return RestoredClaims(tuple(restored), tuple(failed))


def find_lost_claims(places: Layout, boot_id: str) -> tuple[str, ...]:
    """Return the ids of the claims that `restore_claims` would find to be restored. Changes nothing.

    Raises CdiError if the claims can't be listed.
    """
    from ..allocation.ledger.examine import examine

    ledger = LedgerGrants(places, boot_id, examine(places.state_dir, boot_id).grants or ())
    specs = lru_cache(None)(partial(read_specs, places))
    claims = read_claims(places.state_dir).claims
    return tuple(claim.id for claim in claims if _is_lost(places, claim, boot_id, ledger, specs))


def _withdraw(
    places: Layout, caller: Caller, boot_id: str, claims: tuple[ClaimRecord, ...], ledger: LedgerGrants
) -> list[str]:
    """Remove the specs of this boot's claims that lead to another device; return why specs could not be removed.

    The kernel gives the node of a device that is gone to the next one.
    """
    failed = []
    for claim in claims:
        if claim.boot_id != boot_id or claim.state == ASKED:
            continue
        try:
            if _is_replaced(places, claim, ledger):
                with alone(places.state_dir, claim.id, caller):
                    remove_specs(places, claim)
        except CdiError as error:
            failed.append(str(error))
    return failed


def _is_replaced(places: Layout, claim: ClaimRecord, ledger: LedgerGrants) -> bool:
    """Tell if a device of the claim is not usable while another device of its pool has a node of the claim.

    Raises CdiError if that can't be read now.
    """
    paths = {node.path for node in claim.nodes}
    for config, own in ledger.devices(claim):
        try:
            pool = inventory.read(pool_path(places.inventory, config.type, config.plugin, config.args), claim.boot_id)
        except documents.CallFailed:
            raise
        except CdiError:  # missing, damaged or of another boot
            continue
        usable = {device.id: {node.path for node in device.nodes} for device in pool.devices if device.health.is_usable}
        if not own <= usable.keys() and any(usable[id_] & paths for id_ in usable.keys() - own):
            return True
    return False


def _is_lost(places: Layout, claim: ClaimRecord, boot_id: str, ledger: LedgerGrants, specs: Specs) -> bool:
    """Tell if the claim is to be restored.

    It survives a reboot and is of an earlier boot, its spec is missing, changed or in the directory that the host had
    before, its user has lost the access to its nodes, or the directory is missing in which its containers are noted.
    """
    if claim.state == ASKED or claim.ended_by_reboot(boot_id):
        return False
    path = spec_path(places, claim.id)
    if claim.boot_id != boot_id or claim.spec not in ("", path) or not os.path.lexists(path):
        return True
    if claim.uid and (access_faults(places, claim) or not has_spec_access(claim, path)):
        return True
    changed = not has_users(places.state_dir, claim) or _is_changed(places, claim, path, specs)
    return changed and not ledger.lost(claim)


def _is_changed(places: Layout, claim: ClaimRecord, path: str, specs: Specs) -> bool:
    """Tell if the claim's spec or names are not what they should be now.

    False while the spec of one of its devices is missing.
    """
    seen = specs() if claim.names else None
    if claim.names and seen is None:
        return False
    try:
        present = with_present_names(places, claim, seen)
        wanted = spec_content(places, present, seen)
    except CdiError:
        return False  # a tool may be writing that spec anew, and the claim would lose what the device needs
    try:
        live = files.read(path)
    except CdiError:
        return True
    return live is None or live.content != wanted or present.names != claim.names


def _restore(places: Layout, caller: Caller, boot_id: str, claim: ClaimRecord, ledger: LedgerGrants) -> None:
    """Write the claim's spec again; the caller holds the claim. Raises CdiError, with the reason in its record."""
    before = claim
    try:
        if claim.boot_id != boot_id or not os.path.lexists(spec_path(places, claim.id)):
            claim = before = take_back(places, claim)  # of nodes that outlive a boot
            claim = claim._replace(parts=_parts(places, caller, claim, ledger), access=())
        seen = read_specs(places)
        claim = claim._replace(names=names_of(places, claim, seen))
        claim = plan_access(places, claim)
        if claim.access != before.access:
            before = before._replace(access=claim.access)
            write_claim(places.state_dir, before)
        give_access(places, claim)
        write_spec(places, claim, seen)
        if claim.spec not in ("", spec_path(places, claim.id)):
            files.remove(claim.spec)
    except CdiError as error:
        write_claim(places.state_dir, before._replace(reason=str(error)))
        raise CdiError(
            f"claim {claim.id}: can't be restored: {error}. Containers that ask for {claim.device} do not start. "
            f"Bring the device back, or give the claim back (fleet-cdi claim del {claim.id})."
        ) from None
    write_claim(places.state_dir, claim._replace(boot_id=boot_id, reason="", spec=spec_path(places, claim.id)))


def _parts(places: Layout, caller: Caller, claim: ClaimRecord, ledger: LedgerGrants) -> tuple[ClaimPart, ...]:
    """Return the claim's parts with their device nodes in this boot. Raises CdiError if one is gone or another device.

    Our executables answer a repeated ADD with the same hardware and its present nodes. Others' must not be called twice
    for one request (proposal, "ADD"), so of those a path stands for its device.
    """
    lost = ledger.lost(claim)
    if lost:
        raise CdiError(lost)  # a repeated ADD would now be a new one, of any hardware
    found = []
    for part in claim.parts:
        configuration = read(part.configuration)
        if configuration.config.plugin in PROFILES:
            paths = ask(caller, [configuration], claim.wanted, configuration.config.type, again=True).devices
        else:
            paths = tuple(node.path for node in part.nodes)
        nodes = tuple(read_node(places.root, path) for path in paths)
        changed = [node.path for node, before in zip(nodes, part.nodes) if node.type != before.type]
        if changed:
            raise CdiError(f"{changed[0]}: is of another type than the device that was granted")
        found.append(part._replace(nodes=nodes))
    return tuple(found)
