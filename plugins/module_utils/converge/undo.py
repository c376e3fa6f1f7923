# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo: take back exactly what fleet.cdi changed on a host, by the manifest."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from .. import documents, files
from ..claims.calls import Caller
from ..claims.device_name import request_id
from ..claims.ended import this_boot
from ..claims.pods import pod_record
from ..claims.store import DIRECTORY, claim_path, has_claims, read_claims
from ..discovery import inventory
from ..layout import KUBELET, Layout, device_state_path, ledger_path
from ..lost_records import lost_records
from ..manifest import Manifest, locked_manifest, read_manifest
from ..records import CdiError
from ..release.needed_by import check_state_dir
from ..runtimes import containers
from ..runtimes.docker import FEATURE
from .driver import device_links
from .holders import holders
from .last_refresh import forget_notes, inventories
from .runtime import managed_keys
from .services import (
    converge_service,
    device_plugin_service,
    refresh_service,
)
from .services.device_plugin_removal import tidy
from .services.device_plugin_unit import RUN_DIR

UNTOUCHED = "Nothing was touched; force (`fleet-cdi undo --force`, cdi_host_force) takes everything back all the same"
UNWRITTEN = "Nothing was touched"
UNREADABLE = "Nothing was touched; force needs this file, too"

LATE = (
    "claim {0} was made while the configurations were taken back. Provision the host again, give it back "
    "(`fleet-cdi claim del {0}`) and take everything back once more"
)

DONE = ("removed", "restored", "gone")  # results of `Manifest.take_back_all` of files that do not stay
REST = ("manifest.json", ".manifest.json.tmp", ".lock")


class Undone(NamedTuple):
    """The result of undo, or with `check` of its preview, by path."""

    removed: tuple[str, ...]
    restored: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]  # (path, why)
    ended: Mapping[str, str] = {}  # of `removed`: the claims that were ended, by path
    forced: tuple[str, ...] = ()  # who had what, and which files were changed, that went by force alone

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield (path, what was done to it) for people."""
        for path in self.removed:
            ended = self.ended.get(path)
            yield path, f"ended: {ended}" if ended else f"removed: {path}"
        for path in self.restored:
            yield path, f"restored: {path}"


class HeldFile(NamedTuple):
    """A file that does not go without force, because a device is held."""

    path: str
    who: str  # has what
    advice: str = ""  # how that ends
    rest: str = UNTOUCHED

    @property
    def refusal(self) -> tuple[str, str]:
        """Return its path, and why nothing was touched."""
        return self.path, ". ".join(filter(None, (self.who, self.advice, self.rest)))


def undo(places: Layout, check: bool = False, force: bool = False) -> Undone:
    """Remove each file that we wrote, put the earlier file back, and forget the settings.

    In other tools' files remove only the keys that we set and that still have our values.

    While a device is held nothing is touched: the request needs the configuration to give it back, and a container that
    restarts needs the spec. A file that another process changed is kept, with its record. `kept` reports both, and
    `force` removes them all, and first ends the claims: their plugins need the configurations. If that fails, the rest
    stays, so that a later run can end them. Raises CdiError if the manifest can't be read, or is lost.
    """
    places = places._replace(state_dir=os.path.abspath(places.state_dir))
    _check_records(places)
    state_dir = places.state_dir
    ended: dict[str, str] = {}
    forced = _forced(state_dir) if force else ()
    if force and _may_have_claims(state_dir):
        from ..claims.lifetime.every_claim import end_every_claim

        ended, failed = end_every_claim(places, _caller(places), this_boot(places), check)
        if failed:
            return Undone(tuple(ended), (), failed, ended, tuple(filter(None, ended.values())))
    done = _undo(state_dir, check, force)
    if not check and not done.kept:
        from ..claims.lifetime.every_claim import forget_claims

        try:
            forget_claims(places, _caller(places))
            late = [(claim_path(state_dir, one.id), LATE.format(one.id)) for one in read_claims(state_dir).claims]
        except CdiError as error:  # it must not hide what was taken back
            late = [(os.path.join(state_dir, DIRECTORY), str(error))]
        done = done._replace(kept=tuple(late))
    if not check:
        _discard_rest(state_dir)
    return done._replace(removed=(*ended, *done.removed), ended=ended, forced=forced)


def _check_records(places: Layout) -> None:
    """Raise CdiError if the manifest or a part of it is lost: then nobody can tell what has to be taken back."""
    if not os.path.lexists(places.state_dir):
        check_state_dir(places.state_dir, places.prefix, places.inventory)
    manifest = read_manifest(places.state_dir)
    lost = lost_records(places, manifest)
    if lost:
        check_state_dir(places.state_dir, places.prefix, places.inventory)  # they may be of another one
        raise CdiError(
            f"{manifest.path}: {lost}, so fleet.cdi can't take back all that it did. Restore it from a backup; or "
            "provision this host again with the same settings, so that its files become ours again, and then take it "
            "back (our keys in files of others, as in docker's daemon.json, stay then); or remove by hand all that "
            "fleet.cdi wrote, these files last. Nothing was changed."
        )


def _may_have_claims(state_dir: str) -> bool:
    return has_claims(state_dir) or os.path.lexists(os.path.join(state_dir, pod_record.DIRECTORY))


def _caller(places: Layout) -> Caller:
    return Caller(os.path.join(places.prefix, "bin"))


def _undo(state_dir: str, check: bool, force: bool) -> Undone:
    manifest = read_manifest(state_dir)
    held = (*_unwritable(manifest), *(() if force else _held(manifest, state_dir)))
    if held:
        return Undone((), (), tuple(one.refusal for one in held))
    ours = manifest.files or manifest.kinds or manifest.edits or manifest.links or _unrecorded(manifest)
    if check or not ours:
        plugin = device_plugin_service.installed(manifest)
        left = tidy(manifest, state_dir, KUBELET, RUN_DIR, check=True) if plugin else []
        done = _take_back(manifest, check, force)
        return _with_ledger(done, state_dir, check, force, left, freed=plugin and not left)
    with locked_manifest(state_dir) as manifest:
        held = () if force else _held(manifest, state_dir)  # again: the lock may have waited for a module
        if held:
            return Undone((), (), tuple(one.refusal for one in held))
        # Of an inventory that an earlier undo kept, only the file is still known.
        noted = {*inventories(manifest), *manifest.files}
        # First, because a refresh in between would write the files again.
        manifest.remember(dict.fromkeys(manifest.kinds))
        left = []
        units, plugin = refresh_service.installed(manifest), device_plugin_service.installed(manifest)
        itself = converge_service.installed(manifest)
        if itself:
            converge_service.stop(converge_service.run_on_host)
        if units:
            refresh_service.stop(refresh_service.run_on_host)
        if plugin:
            device_plugin_service.stop()
            left = tidy(manifest, state_dir, KUBELET, RUN_DIR)  # what it names stays in the store of grants
        done = _with_ledger(_take_back(manifest, check, force), state_dir, check, force, left)
        done = done._replace(kept=(*done.kept, *forget_notes(noted)))
        if units:
            refresh_service.forget(refresh_service.run_on_host)
        if plugin:
            device_plugin_service.forget()
        if itself:
            converge_service.forget(converge_service.run_on_host)
        return done


def _forced(state_dir: str) -> tuple[str, ...]:
    """Return what keeps files here that go by force alone: who holds devices, and which files were changed since."""
    manifest = read_manifest(state_dir)
    gently, by_force = (manifest.take_back_all(check=True, force=force) for force in (False, True))
    changed = [str(why) for path, why in gently.items() if isinstance(why, CdiError) and by_force[path] in DONE]
    return (*(one.who for one in _held(manifest, state_dir)), *changed)


def _held(manifest: Manifest, state_dir: str) -> tuple[HeldFile, ...]:
    """Return each file that can't go now; empty if no device is held.

    Devices that the device plugin holds are free once it is stopped, unless pods may still use them. A container that
    does not run holds none, so an engine that can't be asked counts only while a container of it may run.
    """
    found = []
    stored = read_claims(state_dir)
    for claim in stored.claims:
        path = os.path.join(state_dir, DIRECTORY)
        found.append(
            HeldFile(path, f"claim {claim.id} has devices", f"Give it back (`fleet-cdi claim del {claim.id}`)")
        )
    found += [HeldFile(path, str(error).rstrip("."), rest=UNREADABLE) for path, error in stored.errors.items()]
    ledger = ledger_path(state_dir)
    try:
        of_claims = {request_id(claim.id) for claim in stored.claims}
        grants = [grant for grant in holders.grants(state_dir) if grant.key.request_id not in of_claims]
    except CdiError as error:
        return (*found, HeldFile(ledger, str(error)))
    if grants:
        # Imported here, because few hosts have a store, and the import of SQLite takes long.
        from ..allocation.holds import pod_holds

        plugin = device_plugin_service.installed(manifest)
        left = tidy(manifest, state_dir, KUBELET, RUN_DIR, check=True) if plugin else []
        if plugin and not left:
            grants = [grant for grant in grants if not pod_holds.is_kept(grant.key)]
        if grants:
            some = "; ".join(map(holders.named_holders, grants[: holders.SOME]))
            more = f"; and {len(grants) - holders.SOME} more" if grants[holders.SOME :] else ""
            who = f"{ledger}: devices are granted to {len(grants)} request(s): {some}{more}"
            found.append(
                HeldFile(ledger, who, ". ".join(("Give them back (DEL, or `fleet-cdi grants gc FILE`)", *left)))
            )
    specs = holders.written(manifest)
    names = {name: nodes for one in specs.values() for name, nodes in one.items()}
    asked = containers.find_containers(names)
    for container in asked.containers:
        if container.runs:
            path = next(path for path, one in specs.items() if container.devices[0] in one)
            has = holders.some(container.devices)
            found.append(HeldFile(path, f"{path}: {container} has {has}", "Stop it first"))
    found += _held_by_docker(manifest, names)
    for why in asked.unknown if asked.may_run else ():
        path = next(iter(specs))
        found.append(HeldFile(path, f"{path}: a container may have {holders.some(names)} ({why})"))
    return tuple(found)


def _held_by_docker(manifest: Manifest, ours: Collection[str]) -> Iterator[HeldFile]:
    """Yield the file of docker in which we turned CDI on, while a container runs with a CDI device of another tool."""
    for path, record in manifest.edits.items():
        if not record["for"].startswith("docker/") or list(FEATURE) not in [key["path"] for key in record["keys"]]:
            continue
        found = containers.using("docker")
        for container in found.containers:
            others = [name for name in container.devices if name not in ours]
            if container.runs and others:
                who = f"{path}: {container} has {holders.some(others)}, and docker has CDI by this file"
                yield HeldFile(path, who, "Stop it first")
        for why in found.unknown if found.may_run else ():
            yield HeldFile(path, f"{path}: a container may have CDI devices ({why})")


def _unwritable(manifest: Manifest) -> tuple[HeldFile, ...]:
    """Return each file that the system does not let us take back, as on a read-only file system."""
    results = manifest.take_back_all(check=True, force=True)
    for path in manifest.edits:
        try:
            managed_keys.take_back_keys(manifest, path, check=True)
        except CdiError as error:
            results[path] = error
    return tuple(
        HeldFile(path, str(error).rstrip("."), rest=UNWRITTEN)
        for path, error in sorted(results.items())
        if isinstance(error, documents.CallFailed)
    )


def _discard_rest(state_dir: str) -> None:
    """Remove what a killed run left: a manifest that lists nothing, its lock, and an empty state directory.

    The directory goes only if it is as `files.make_directory` leaves one. Raises CdiError.
    """
    if any(os.path.lexists(os.path.join(state_dir, name)) for name in REST):
        with locked_manifest(state_dir):
            pass  # leaving the lock clears it
    if files.is_as_made(state_dir):
        files.remove_directory(state_dir)


def _with_ledger(
    done: Undone, state_dir: str, check: bool, force: bool, left: Sequence[str] = (), freed: bool = False
) -> Undone:
    """Return `done` with the store of grants: it goes too, unless a device is held.

    `left`: what pods hold. `freed`: with `check`, the holds of the device plugin would be free by then.
    """
    path = ledger_path(state_dir)
    if not any(name.startswith(("ledger.", "commands.lock")) for name in _names(state_dir)):
        return done
    # Imported here, because few hosts have a store, and the import of SQLite takes long.
    from ..allocation.holds import pod_holds
    from ..allocation.ledger.dispose import dispose
    from ..allocation.ledger.ledger import Ledger

    ledger = Ledger(state_dir, inventory.boot_id())
    try:
        nobody = freed and os.path.lexists(path) and all(pod_holds.is_kept(grant.key) for grant in ledger.grants())
        gone = dispose(ledger, check, force or nobody)
    except CdiError as error:
        return done._replace(kept=(*done.kept, (path, ". ".join((str(error), *left)))))
    return done._replace(removed=(*done.removed, path)) if gone else done


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _unrecorded(manifest: Manifest) -> list[str]:
    """Return the list of devices out of service if the manifest has no record of it: an earlier one was lost."""
    path = device_state_path(manifest.state_dir)
    return [path] if os.path.lexists(path) and not manifest.record(path) else []


def _take_back(manifest: Manifest, check: bool, force: bool) -> Undone:
    done: dict[str, list[str]] = {"removed": [], "restored": [], "gone": []}
    kept = []
    for path, how in manifest.take_back_all(check, force).items():
        if isinstance(how, CdiError):
            kept.append((path, str(how)))
        else:
            done[how].append(path)
    for path in sorted(manifest.edits):
        try:
            done[managed_keys.take_back_keys(manifest, path, check)].append(path)
        except CdiError as error:
            kept.append((path, str(error)))
    for path in _unrecorded(manifest):
        try:
            files.check(path) if check else files.remove(path)
            done["removed"].append(path)
        except CdiError as error:
            kept.append((path, str(error)))
    done["removed"] += sorted(device_links.ours(manifest))
    if not check:
        try:
            device_links.take_back_links(manifest)
        except CdiError as error:
            kept.append((manifest.path, str(error)))
    for name in sorted(manifest.others):
        kept.append((manifest.path, f"has {name!r}, which a newer release noted: undo that with the newer one"))
    return Undone(tuple(done["removed"]), tuple(done["restored"]), tuple(kept))
