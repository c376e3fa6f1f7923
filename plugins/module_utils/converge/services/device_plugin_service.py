# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install or remove the units of the device plugin; one of its two instances runs (module device_plugin_service).

One instance runs from the installed unit and release. An instance of an older unit or release is not restarted. The
other instance is started beside it. The older one is stopped when the kubelet watches every resource of the new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from ... import files
from ...device_plugin.process import instance_status
from ...layout import SPEC_DIRS
from ...manifest import Manifest, read_manifest
from ...records import CdiError
from ...release.needed_by import check_host
from ...system import systemd
from .. import module_diff
from ..change import Change
from ..driver import device_links
from . import device_plugin_config, units
from . import device_plugin_unit as unit_file
from .device_plugin_removal import tidy
from .device_plugin_unit import INSTANCES, PluginUnit, instance, instances_of
from .openers_unit import PROCESSES, SOCKET

BY = "device_plugin_service"  # the owner of the files, for the manifest
PAUSE = 0.2  # seconds between two looks at an instance that is starting


def _living() -> dict[str, Mapping[str, Any]]:
    """Return the status of each running instance. One that hangs is left out: it serves no pods."""
    seen = [one for one in instance_status.instances_in(unit_file.RUN_DIR) if one.alive and not one.hangs]
    return {str(one.document["instance"]): one.document for one in seen}


def _environment(process: int) -> bytes:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


class ServiceHost(NamedTuple):
    """The calls to systemd and the host; tests replace them."""

    run: systemd.Run = systemd.run_on_host
    booted: Callable[[], bool] = systemd.booted
    statuses: Callable[[], Mapping[str, Mapping[str, Any]]] = _living  # by instance
    environment: Callable[[int], bytes] = _environment  # of a process
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


THIS = ServiceHost()


class InstancesState(NamedTuple):
    """The instances: which start at boot, which run, and which run from the installed unit and release."""

    enabled: tuple[str, ...]
    active: tuple[str, ...]
    current: tuple[str, ...]  # the youngest first: it serves
    looking: tuple[str, ...] = ()  # state of the openers socket: "enabled", "active"


def install(
    unit: PluginUnit, release: Optional[str], state_dir: str, wait: float, check: bool, host: ServiceHost = THIS
) -> dict[str, Any]:
    """Make one instance run from `unit` and `release`; return the changes, for the module.

    An older instance is replaced as the text of this file describes. The new one has `wait` seconds to take over. If it
    does not, it is stopped, CdiError is raised, and the older one goes on serving. Raises CdiError.

    A configuration of ours that only the older one had is taken back then.
    """
    contents = unit_file.plugin_texts(unit)
    units.need_systemd(
        "the device plugin's service needs systemd. Run `fleet-cdi plugin run` by other means, or in a pod "
        "(examples/kubernetes)."
    )
    live = host.booted()
    before = _state(host, contents[unit_file.path()] or b"", release)
    leaving = units.leaving(read_manifest(state_dir), [path for path, content in contents.items() if content is None])
    if not (leaving or unit.process_access):
        before = before._replace(looking=())  # the socket belongs to another tool
    wanted = {path: content for path, content in contents.items() if content is not None}
    unnamed = _unnamed(unit, state_dir, host)
    written = units.write_units(wanted, BY, state_dir, check)
    chosen = _chosen(before)
    running = (chosen,) if live else ()
    looking = (("enabled", "active") if live else ("enabled",)) if unit.process_access else ()
    after = InstancesState((chosen,), running, running, looking)
    changed = bool(written or leaving) or before != after
    if leaving and not check:
        _stop_looking(host)
        units.take_back_units(leaving, state_dir)
    # Before systemd is reloaded.
    links = device_links.keep_links(SPEC_DIRS, state_dir, check) if changed and live else ()
    if changed and not check:
        renewed = any(os.path.basename(change.path) == SOCKET for change in written)
        _bring_about(host, before, after, renewed, wait)
        if unnamed:
            units.take_back_units(unnamed, state_dir)
    diff = [
        *map(module_diff.text, (*written, *leaving, *unnamed)),
        *module_diff.units(before, after),
        *device_links.shown(links),
    ]
    return {"changed": changed, "diff": diff, "instance": chosen}


def _bring_about(host: ServiceHost, before: InstancesState, after: InstancesState, renewed: bool, wait: float) -> None:
    """Bring the units from `before` to `after`, after their files; `renewed`: that of the socket changed.

    Raises CdiError; then an older instance goes on serving.
    """
    (chosen,), live = after.enabled, bool(after.active)
    if live:
        systemd.reload(host.run, [*map(instance, INSTANCES), SOCKET])
    if after.looking:
        units.start(host.run, live, [SOCKET], [SOCKET] if renewed or "active" not in before.looking else [])
    systemd.enable(host.run, [instance(chosen)])
    if live:
        _take_over(host, chosen, before, wait)
    for other in {*before.active, *before.enabled} - {chosen}:
        systemd.disable(host.run, [instance(other)])
        if live:
            systemd.do(host.run, ["systemctl", "stop", instance(other)])


def uninstall(
    state_dir: str, kubelet_dir: str, check: bool, host: ServiceHost = THIS
) -> tuple[dict[str, Any], list[str]]:
    """Stop both instances, remove the units and clean up; return the changes, and warnings. Raises CdiError."""
    manifest = read_manifest(state_dir)
    if not installed(manifest):
        return {"changed": False, "diff": [], "instance": None}, []
    leaving = units.leaving(manifest, unit_file.paths())  # before anything is stopped
    before = _state(host, b"", None)
    if not check:
        stop(host)
    # The units are still in the manifest, so the next run completes what a killed run began.
    warnings = tidy(manifest, state_dir, kubelet_dir, unit_file.RUN_DIR, check)
    if not check:
        units.take_back_units(leaving, state_dir)
        forget(host)
    diff = [*map(module_diff.text, leaving), *module_diff.units(before, InstancesState((), (), ()))]
    return {"changed": True, "diff": diff, "instance": None}, warnings


def installed(manifest: Manifest) -> bool:
    """Return True if the manifest lists a unit of the device plugin."""
    return any(manifest.record(path) for path in unit_file.paths())


def stop(host: ServiceHost = THIS) -> None:
    """Stop and disable both instances and their openers socket, before the files of the units go.

    Raises CdiError while an instance runs.
    """
    names = [*map(instance, INSTANCES)]
    units.stop(host.run, host.booted(), names, names, must_end=True)
    _stop_looking(host)


def _stop_looking(host: ServiceHost) -> None:
    """Stop and disable the openers units."""
    units.stop(host.run, host.booted(), [SOCKET, PROCESSES], [SOCKET])


def forget(host: ServiceHost = THIS) -> None:
    """Make systemd forget the units, after their files went."""
    units.forget(host.run, host.booted(), [*map(instance, INSTANCES), SOCKET])


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module device_plugin_service for its `options`. Raises CdiError."""
    warnings = check_host(options, check)
    if options["state"] == "absent":
        result, more = uninstall(options["state_dir"], options["kubelet_dir"], check)
        return result, [*warnings, *more]
    if options["timeout"] < 0:
        raise CdiError(f"timeout: found {options['timeout']}; expected 0 or more seconds")
    unit = PluginUnit(**{key: options[key] for key in PluginUnit._fields})._replace(
        capabilities=tuple(options["capabilities"]), writable_paths=tuple(options["writable_paths"])
    )
    command = os.path.join(unit.prefix, "bin", "fleet-cdi")
    if not check and not os.access(command, os.X_OK):
        raise CdiError(f"{command}: does not exist; install the release first (module fleet.cdi.host_release)")
    # The release that is active now, or in check mode the one to be installed.
    return install(unit, options["release"], options["state_dir"], options["timeout"], check), warnings


def _unnamed(unit: PluginUnit, state_dir: str, host: ServiceHost) -> list[Change]:
    """Return the removal of each configuration of ours that the present unit or an instance has and `unit` has not.

    After a take-over that failed only the instance has it.
    """
    live = files.read(unit_file.path())
    text = live.content if live else b""
    used = {one.get("config", {}).get("path") or "/" for one in host.statuses().values()}
    manifest = read_manifest(state_dir)
    there = [path for path, record in manifest.files.items() if record["by"] == device_plugin_config.BY]
    named = {path for path in there if f" --config {units.argument(path)} ".encode() in text}
    left = (named | {*map(files.canonical, used)}) & {*there} - {files.canonical(unit.config_file)}
    return units.leaving(manifest, filter(manifest.may_drop, sorted(left)))


def _state(host: ServiceHost, content: bytes, release: Optional[str]) -> InstancesState:
    names = [*map(instance, INSTANCES)]
    enabled = instances_of(systemd.enabled(host.run, names))
    looking: tuple[str, ...] = ("enabled",) if systemd.enabled(host.run, [SOCKET]) else ()
    if not host.booted():
        return InstancesState(enabled, (), (), looking)
    looking += ("active",) if systemd.active(host.run, [SOCKET]) else ()
    active = instances_of(systemd.active(host.run, names))
    statuses = host.statuses()
    mark = f"{unit_file.MARK}={unit_file.unit_mark(content)}".encode()
    current = tuple(
        name
        for name in active
        if mark in host.environment(systemd.main_process(host.run, instance(name))).split(b"\0")
        and statuses.get(name, {}).get("release", release) == release
    )
    ages = [*statuses]
    youngest = sorted(current, key=lambda name: ages.index(name) if name in ages else -1, reverse=True)
    return InstancesState(enabled, active, tuple(youngest), looking)


def _chosen(state: InstancesState) -> str:
    """Return the instance that is to run: a current one that runs, otherwise one that does not run."""
    if state.current:
        return state.current[0]
    if not state.active:
        return state.enabled[0] if state.enabled else INSTANCES[0]
    return next((name for name in INSTANCES if name not in state.active), INSTANCES[0])


def _take_over(host: ServiceHost, name: str, before: InstancesState, wait: float) -> None:
    """Make an instance run, and wait until it has the resources of the other running instances.

    A current instance is restarted only if a younger one has its resources. Raises CdiError; then the instance is
    stopped if others run.
    """
    others = [other for other in before.active if other != name]
    statuses = host.statuses()
    old = [one for other, one in statuses.items() if other in others]
    if name in before.current and (not others or (name in statuses and not _lacking(statuses[name], old))):
        return
    ages = [other for other in statuses if other in before.active]
    overtaken = name in ages[:-1]
    try:
        if overtaken or name not in before.current:
            systemd.do(host.run, ["systemctl", "restart", instance(name)])
        lacking = _waited(host, name, old, wait)
        if not lacking:
            return
        lacking = f"did not take over within {wait:g} s: {lacking}"
    except CdiError as error:
        lacking = str(error)
    said = systemd.last_words(host.run, instance(name))
    if others:
        systemd.disable(host.run, [instance(name)])
        host.run(["systemctl", "stop", instance(name)])
    rest = "The one that ran before goes on serving" if others else "It is tried again by systemd"
    raise CdiError(f"{instance(name)}: {lacking.rstrip('.')}. {rest}. Its last words: {said or 'none'}")


def _waited(host: ServiceHost, name: str, old: list[Mapping[str, Any]], wait: float) -> str:
    """Return what an instance lacks after `wait` seconds; "" if nothing. A configuration error ends the wait."""
    until = host.clock() + wait
    lacking = "it does not answer"
    while True:
        new = host.statuses().get(name)
        if new is not None:
            lacking = _lacking(new, old)
        if not lacking or host.clock() >= until or (new or {}).get("config", {}).get("error"):
            return lacking
        host.sleep(PAUSE)


def _lacking(new: Mapping[str, Any], old: list[Mapping[str, Any]]) -> str:
    """Return in words what a new instance lacks that older ones have; "" if nothing."""
    if new.get("config", {}).get("error"):
        return str(new["config"]["error"])
    if not new.get("ready"):
        return "it is still looking at the devices"
    watched = {name for one in old for name, found in one["resources"].items() if found.get("stream")}
    missing = [name for name in sorted(watched & set(new["resources"])) if not new["resources"][name].get("stream")]
    return f"the kubelet does not watch {', '.join(missing)} there yet" if missing else ""
