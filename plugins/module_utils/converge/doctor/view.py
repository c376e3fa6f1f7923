# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host as the doctor sees it, in four views: wanted, written, live and running.

`take` reads everything once and changes nothing. A file that can't be read becomes an error in its view, so one damaged
file hides nothing else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

from ... import directories, documents, files
from ...allocation.ledger.examine import Examined, examine
from ...claims import ended
from ...claims.check_claims import ClaimFault, check_claims, claim_specs
from ...claims.ledger_grants import LedgerGrants
from ...claims.lifetime import unused_since
from ...claims.pods import pod_record
from ...claims.store import DIRECTORY as CLAIMS
from ...claims.store import has_claims
from ...device_plugin.config import configuration, in_force
from ...device_plugin.process import instance_status
from ...discovery import inventory, out_of_service
from ...discovery.inventory import Inventory
from ...discovery.out_of_service import Disabled
from ...layout import Layout
from ...lost_records import lost_records
from ...manifest import Manifest, changed_by_others, digest, read_manifest
from ...protocol import configurations, pools
from ...protocol.errors import ProtocolError
from ...protocol.messages import Config
from ...records import CdiError, Device
from ...release import integrity, tree
from ...runtimes import installations, podman
from ...runtimes.oci_runtimes import OciRuntime, detect_oci
from ...runtimes.survey import RuntimeState
from ...runtimes.survey import survey as survey_runtimes
from ...spec.registry import Registry, load, seen_with
from ...spec.stale import Reason
from ...system import mandatory_access, programs, systemd
from ...system.occupied import Occupied
from ..change import wrong_rights
from ..driver import device_links
from ..holders import occupied
from ..kinds.memory import Memory, memory_of
from ..kinds.spec_info import compare
from ..last_refresh import note_path
from ..libraries import of_places
from ..runtime import managed_keys
from ..services import converge_service, device_plugin_config, openers_unit, refresh_service
from ..services import device_plugin_unit as plugin_unit
from ..writable_places import WritablePlace, look_at_places


class RememberedState(NamedTuple):
    """The settings of this host, as the state directory remembers them."""

    manifest: Manifest
    manifest_error: str = ""  # why the manifest can't be read; `manifest` is empty then
    manifest_changed: bool = False  # by another process since we saved it
    kinds: Mapping[str, Memory] = {}
    disabled: Mapping[str, Disabled] = {}  # by id: devices out of service
    disabled_error: str = ""
    denied: tuple[str, ...] = ()  # of these errors, those of a file that this user may not read
    lost: str = ""  # what shows that the manifest, or a part of its records, is lost

    def is_leaving(self, device: Device) -> bool:
        """Return True if the settings dropped the device while it was held."""
        memory = self.kinds.get(device.kind)
        return memory is not None and device.id in memory.leaving


class Written(NamedTuple):
    """The files on disk: all specs, and the files that the manifest lists."""

    registry: Registry
    managed: Mapping[str, str] = {}  # path of each spec of ours that is unchanged -> who asked for it
    files: Mapping[str, str] = {}  # path of each file of the manifest -> "" (unchanged), GONE, CHANGED or an error
    keys: Mapping[str, tuple[str, ...]] = {}  # path of another tool's file -> keys of ours that are changed or gone
    key_errors: Mapping[str, str] = {}  # path of another tool's file with keys of ours -> why it can't be read
    configurations: Mapping[str, tuple[Config, ...]] = {}  # path of each .conf -> it and its delegates
    configuration_errors: Mapping[str, str] = {}
    plugin_config: str = ""  # path of the device plugin's configuration; "" if fleet.cdi wrote none
    plugin_config_error: str = ""
    release: tuple[integrity.Fault, ...] = ()
    link: tuple[integrity.Fault, ...] = ()  # faults of the link to the command on the PATH
    places: tuple[WritablePlace, ...] = ()  # the directories of specs, state, inventory and release
    labels: Mapping[str, tuple[mandatory_access.WrongLabel, ...]] = {}  # path of ours -> files at or below it
    claim_specs: Mapping[str, str] = {}  # path of each spec of a claim -> id of the claim
    irregular: Mapping[str, str] = {}  # path of a lock, a note or a list of devices -> why it is not a regular file
    programs: Mapping[str, str] = {}  # path of each program that a configuration needs -> "" or why it can't be run
    untrusted: Mapping[str, str] = {}  # directory of ours -> why other users can put files of theirs in it
    ended_lost: str = ""  # why names of claims that ended in this boot may be lost
    unused_damaged: str = ""  # why it is not known since when the containers of claims are gone
    rights: Mapping[str, str] = {}  # path of each file of the manifest whose mode or owner is wrong -> which they are


GONE, CHANGED = "gone", "changed"
LEDGER_LOST = "lost"  # state of a store of which nothing is left but claims


class LiveDevices(NamedTuple):
    """The devices, and the inventory and pools that list them."""

    boot_id: str
    listed: Inventory
    inventory_error: str = ""  # only for an inventory that should exist
    pools: Mapping[str, str] = {}  # path of each pool that a configuration needs -> "" or why it can't be used
    pooled: tuple[Device, ...] = ()  # the devices of these pools
    stale: Mapping[str, tuple[Reason, ...]] = {}  # path of a spec -> where it disagrees with the host
    ill: tuple[Device, ...] = ()
    numbered: tuple[device_links.Numbered, ...] = ()  # the nodes of the specs and their links; only with systemd
    denials: mandatory_access.Denials = mandatory_access.NONE  # which nodes of specs SELinux keeps from containers


class RunningState(NamedTuple):
    """The runtimes, daemons, units and grants."""

    runtimes: tuple[RuntimeState, ...] = ()
    runtime_warnings: tuple[str, ...] = ()
    units: Mapping[str, Mapping[str, str]] = {}  # unit of ours -> its properties (systemctl show)
    ledger: Examined = Examined()
    plugin: tuple[str, ...] = ()  # problems that the instances of the device plugin report
    oci_runtimes: tuple[OciRuntime, ...] = ()
    status_errors: Mapping[str, str] = {}  # path of the status file of a running instance -> why it can't be used
    occupied: tuple[Occupied, ...] = ()  # devices that no request holds and a process has open
    compose: Mapping[str, str] = {}  # path of what drops CDI devices of compose files -> its release
    claims: tuple[ClaimFault, ...] = ()
    claims_error: str = ""  # why the claims can't be listed


class HostView(NamedTuple):
    """The host, read once."""

    places: Layout
    wanted: RememberedState
    written: Written
    live: LiveDevices
    running: RunningState = RunningState()


# The properties that we ask systemd for, for each unit.
PROPERTIES = ("Id", "LoadState", "ActiveState", "NeedDaemonReload", "Result")


def take(places: Layout, run: systemd.Run = systemd.run_on_host, booted: Optional[bool] = None) -> HostView:
    """Read the host and return the view."""
    wanted = _wanted(places)
    written = _written(places, wanted)
    has_systemd = systemd.booted() if booted is None else booted
    live = _live(places, written)
    if has_systemd:
        live = live._replace(numbered=device_links.numbered_nodes(device_links.nodes(written.registry)))
    if mandatory_access.enforcing():
        live = live._replace(denials=mandatory_access.denials(device_links.nodes(written.registry)))
        written = written._replace(labels=_labels(places, written, run))
    managed, live = _compared(wanted, written, live)
    found = installations.find_installations(places.path)
    ours = _units(wanted.manifest)
    plugin, status_errors = _plugin(written, wanted.manifest)
    store = examine(places.state_dir, live.boot_id)
    claims, claims_error = _claims(places, written, live.boot_id, store)
    running = RunningState(
        survey_runtimes(found.places),
        found.warnings,
        _said(run, ours) if ours and has_systemd else {},
        _with_claims(store, claims),
        plugin,
        detect_oci(places.path),
        status_errors,
        occupied.find_occupied(_offered(places, written, live), store, wanted.disabled),
        podman.compose_drops(places.path, found.places),
        claims,
        claims_error,
    )
    linked = of_places(found.places)
    registry = seen_with(written.registry, linked) if linked else written.registry
    return HostView(places, wanted, written._replace(managed=managed, registry=registry), live, running)


def _wanted(places: Layout) -> RememberedState:
    empty = Manifest(os.path.abspath(places.state_dir), {})
    manifest, error, denied = _read(lambda: read_manifest(places.state_dir), empty)
    out, out_error, out_denied = _read(lambda: out_of_service.in_force(places.state_dir), {})
    kinds = {kind: memory for kind, document in manifest.kinds.items() if (memory := memory_of(document))}
    lost = "" if error else lost_records(places, manifest)
    changed = not error and changed_by_others(manifest)
    refused = tuple(why for why, is_denied in ((error, denied), (out_error, out_denied)) if is_denied)
    return RememberedState(manifest, error, changed, kinds, out, out_error, refused, lost)


def _written(places: Layout, wanted: RememberedState) -> Written:
    manifest = wanted.manifest
    changed, key_errors = {}, {}
    for path, record in manifest.edits.items():
        try:
            live = files.read(path)
            changed[path] = managed_keys.without_ours(path, live.content if live else None, record).theirs
        except CdiError as error:
            key_errors[path] = str(error)
    plugins, errors = _configurations(places, manifest)
    claims = claim_specs(places)
    plugin_config = next((path for path, one in manifest.files.items() if one["by"] == device_plugin_config.BY), "")
    return Written(
        load(places.spec_dirs),
        {},
        {path: _state(path, record) for path, record in sorted(manifest.files.items()) if record["applied"][0]},
        changed,
        key_errors,
        plugins,
        errors,
        plugin_config,
        _or(lambda: _operate().settings_at(plugin_config), None)[1] if plugin_config else "",
        integrity.faults(places.prefix),
        integrity.of_links(places.prefix),
        look_at_places(_directories(places, wanted)),
        claim_specs=claims,
        programs=_programs(places, plugins),
        irregular=_irregular(places, (*(path for path, one in manifest.files.items() if one["kind"]), *claims)),
        ended_lost=ended.names_lost(places.ended_claims, ended.this_boot(places)),
        unused_damaged=unused_since.damage(places.unused_claims),
        rights=_rights(path for path, record in sorted(manifest.files.items()) if record["applied"][0]),
        untrusted=_untrusted((*_directories(places, wanted), *_inner_directories(places))),
    )


def _programs(places: Layout, plugins: Mapping[str, tuple[Config, ...]]) -> dict[str, str]:
    names = sorted({one.plugin for chain in plugins.values() for one in chain})
    return {path: _unrunnable(path) for path in (os.path.join(places.prefix, "bin", name) for name in names)}


def _unrunnable(path: str) -> str:
    """Return why a call of this program fails; "" if it does not."""
    if not os.access(path, os.X_OK):
        return "can't be run"
    return _or(lambda: programs.check(path), None)[1].rstrip(".")


def _irregular(places: Layout, specs: Iterable[str]) -> dict[str, str]:
    """Return path -> why a lock, note, list of devices or temporary file, of one of `specs`, is not a regular file."""
    notes = [places.ended_claims, ended.checksum_path(places.ended_claims), places.unused_claims]
    notes += [tree.at(places.prefix, tree.LOCK)]
    notes += [note_path(places.inventory)] if places.inventory else []
    ours = (places.state_dir, *(os.path.join(places.state_dir, name) for name in (CLAIMS, pod_record.DIRECTORY)))
    beside = [path for folder in ours for path in _paths_in(folder, (".lock", ".tmp", "-journal"))]
    beside += map(files.temporary_path, specs)  # no others there: other tools have files beside our specs
    lists = [files.canonical(places.inventory)] if places.inventory else []
    lists += [
        path for one in lists for path in _paths_in(os.path.dirname(pools.pool_path(one, "", "", {})), (".json",))
    ]
    found = {}
    for path in (*notes, *beside, *lists):
        with suppress(OSError):
            mode = os.lstat(path).st_mode
            if not stat.S_ISREG(mode):
                found[path] = str(documents.irregular(path, mode))
    return found


def _paths_in(folder: str, ends: tuple[str, ...]) -> list[str]:
    """Return the paths in a directory whose names end so; [] if it can't be listed."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.endswith(ends)]


def _inner_directories(places: Layout) -> tuple[str, ...]:
    """Return the directories of ours that need no look at their space: they are in one that `_directories` yields."""
    inner = (os.path.join(places.state_dir, name) for name in (CLAIMS, pod_record.DIRECTORY))
    return (*inner, os.path.join(places.prefix, "bin"), *places.spec_dirs[-1:])


def _untrusted(paths: Iterable[str]) -> dict[str, str]:
    found = {}
    for path in paths:
        try:
            os.close(directories.opened(path))
        except directories.Untrusted as error:
            found[path] = str(error)
        except OSError:
            continue  # it is missing, or this user can't look there
    return found


def _directories(places: Layout, wanted: RememberedState) -> Iterator[str]:
    """Yield the directories that fleet.cdi writes to."""
    remembered = [memory.directory for memory in wanted.kinds.values()]
    yield from remembered or [places.spec_dir]
    yield from (places.state_dir, os.path.dirname(places.inventory) or "/", places.prefix)


def _configurations(places: Layout, manifest: Manifest) -> tuple[dict[str, tuple[Config, ...]], dict[str, str]]:
    """Return (path of each .conf -> its configuration and those of its delegates, path -> why it is not valid)."""
    ours = (os.path.dirname(os.path.dirname(path)) for path in manifest.files if path.endswith(".conf"))
    plugins, errors = {}, {}
    for directory in dict.fromkeys((*places.spec_dirs[:1], *ours)):
        found = configurations.find(directory)
        errors.update({path: str(error) for path, error in found.errors.items()})
        for path, _content, first in found.configurations:
            try:
                plugins[path] = pools.chain(first)
            except ProtocolError as error:
                errors[path] = str(error)
    return plugins, errors


def _labels(places: Layout, written: Written, run: systemd.Run) -> dict[str, tuple[mandatory_access.WrongLabel, ...]]:
    """Return, for each of our paths, the files at or below it with a wrong label of SELinux."""
    tops = [places.prefix, places.state_dir, *(path for path, state in written.files.items() if state != GONE)]
    found: dict[str, tuple[mandatory_access.WrongLabel, ...]] = {}
    for one in mandatory_access.wrong_labels(tops, run):
        top = next((top for top in tops if one.path == top or one.path.startswith(f"{top}/")), one.path)
        found[top] = (*found.get(top, ()), one)
    return found


def _state(path: str, record: Mapping[str, Any]) -> str:
    try:
        live = files.read(path)
    except CdiError as error:
        return str(error)
    if live is None:
        return GONE
    return "" if digest(live.content) in record["applied"] else CHANGED


def _rights(paths: Iterable[str]) -> dict[str, str]:
    found = {}
    for path in paths:
        with suppress(CdiError):  # `_state` tells why it can't be read
            live = files.read(path)
            if live and (why := wrong_rights(live)):
                found[path] = why
    return found


def _live(places: Layout, written: Written) -> LiveDevices:
    boot_id = inventory.boot_id()
    listed, error = _or(lambda: inventory.read(places.inventory, boot_id), Inventory(()))
    expected = files.canonical(places.inventory) in written.files or os.path.lexists(places.inventory)
    needed = {
        files.canonical(pools.pool_path(places.inventory, one.type, one.plugin, one.args))
        for chain in written.configurations.values()
        for one in chain
        if one.plugin in pools.PROFILES
    }
    read = {path: _or(partial(inventory.read, path, boot_id), Inventory(())) for path in sorted(needed)}
    pooled = tuple(device for found, _error in read.values() for device in found.devices)
    return LiveDevices(boot_id, listed, error if expected else "", {path: one[1] for path, one in read.items()}, pooled)


def _offered(places: Layout, written: Written, live: LiveDevices) -> Iterator[occupied.OfferedDevices]:
    """Yield the devices that are granted: for each executable its pool, for the device plugin the inventory."""
    for chain in written.configurations.values():
        for one in chain:
            path = pools.pool_path(places.inventory, one.type, one.plugin, one.args)
            devices, _error = _or(partial(inventory.read, path, live.boot_id), Inventory(()))
            yield occupied.OfferedDevices(devices, one.args.get("occupied"), one.args.get("occupied_ignore"))
    if written.plugin_config and not written.plugin_config_error:
        settings, error = _or(partial(configuration.read, written.plugin_config), None)
        if not error:
            yield occupied.OfferedDevices(live.listed, settings.occupied, settings.occupied_ignore)


def _compared(wanted: RememberedState, written: Written, live: LiveDevices) -> tuple[Mapping[str, str], LiveDevices]:
    found = compare(written.registry, wanted.manifest, live.listed, wanted.disabled)
    return found.managed, live._replace(stale=found.stale, ill=found.ill)


def _units(manifest: Manifest) -> tuple[str, ...]:
    """Return the units whose files the manifest lists; for the template of the device plugin both instances."""
    refreshing = refresh_service.UNITS if refresh_service.installed(manifest) else ()
    plugin = plugin_unit.path() in manifest.files
    looking = plugin_unit.paths()[-1] in manifest.files
    instances = map(plugin_unit.instance, plugin_unit.INSTANCES) if plugin else ()
    itself = converge_service.BOTH if converge_service.installed(manifest) else ()
    return (*refreshing, *itself, *instances, *([openers_unit.SOCKET] if looking else ()))


def _said(run: systemd.Run, units: tuple[str, ...]) -> Mapping[str, Mapping[str, str]]:
    states = systemd.unit_files(run, units)
    found = systemd.show(run, units, PROPERTIES)
    return {unit: {**pairs, "UnitFileState": states.get(unit, "")} for unit, pairs in found.items()}


def _claims(places: Layout, written: Written, boot_id: str, store: Examined) -> tuple[tuple[ClaimFault, ...], str]:
    """Return (the faults of claims, why they can't be listed).

    Asked of the ledger is what was read of it: the ledger itself would repair what the doctor is to name. While that
    can't be read, a rule of the ledger says so, and not each claim.
    """
    if not written.claim_specs and not has_claims(places.state_dir):
        return (), ""
    lost = LedgerGrants(places, boot_id, store.grants).lost if store.grants is not None else lambda _claim: None
    found, error = _or(lambda: check_claims(places, boot_id, lost).faults, ())
    return found, error


def _with_claims(store: Examined, claims: tuple[ClaimFault, ...]) -> Examined:
    """Return the store as lost if nothing is left of it and claims have grants of it."""
    if store.state or os.path.lexists(store.path) or not any(store.path in fault.causes for fault in claims):
        return store
    return store._replace(state=LEDGER_LOST, problem="nothing is left of it, and claims have grants of it")


def _plugin(written: Written, manifest: Manifest) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return (problems that the running instances report, the status files that can't be used)."""
    if not written.plugin_config and plugin_unit.path() not in manifest.files:
        return (), {}
    run_dir = in_force.run_dir(written.plugin_config) if written.plugin_config else plugin_unit.RUN_DIR
    serves = plugin_unit.path() in manifest.files or instance_status.instances_in(run_dir)
    return tuple(_operate().living(run_dir)[1]) if serves else (), instance_status.unusable(run_dir)


def _operate() -> Any:
    # Imported here: few hosts have the device plugin, and its code takes as long to load as all else of the doctor.
    from ...device_plugin.daemon import operate

    return operate


def _or(read: Callable[[], Any], otherwise: Any) -> tuple[Any, str]:
    """Return (the result of `read`, ""), or (`otherwise`, why it can't be read)."""
    return _read(read, otherwise)[:2]


def _read(read: Callable[[], Any], otherwise: Any) -> tuple[Any, str, bool]:
    """Return the same as `_or`, and whether this user may not read it."""
    try:
        return read(), "", False
    except CdiError as error:
        return otherwise, str(error), isinstance(error, documents.CallDenied)
