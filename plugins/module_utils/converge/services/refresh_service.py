# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install or remove the units that start a refresh (module refresh_service).

The manifest lists the files, so undo removes them. systemctl(1) enables, starts and queries the units.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from ... import files, schema
from ...layout import SPEC_DIRS
from ...manifest import Manifest, locked_manifest, read_manifest
from ...release.needed_by import check_host
from ...system import systemd
from ...system.systemd import Run, run_on_host
from .. import module_diff, node_features
from ..driver import device_links
from ..driver.virtual_functions import parse
from . import units
from .claims_unit import CLAIMS_SERVICE, CLAIMS_TIMER
from .refresh_fields import FEATURE_FILE, KERNEL_MODULE, METRICS_FILE
from .refresh_unit import (
    LIBRARIES_PATH,
    LIBRARIES_SERVICE,
    PATH,
    RULES,
    SERVICE,
    TIMER,
    WANTED,
    WANTED_BY_UDEV,
    RefreshUnit,
    refresh_texts,
)

UNITS = (SERVICE, PATH, TIMER, LIBRARIES_PATH, CLAIMS_TIMER)  # units that are enabled
WATCHERS = (PATH, TIMER, LIBRARIES_PATH, CLAIMS_TIMER)  # units that run all the time
SERVICES = (SERVICE, LIBRARIES_SERVICE, CLAIMS_SERVICE)
BY = "refresh"  # the owner of the files, for the manifest
OPTIONS = {
    "properties": {
        "timeout": {"type": "integer", "minimum": 0, "description": "0 or more seconds"},
        "grace": {"type": "integer", "minimum": 0, "description": "0 or more seconds"},
        "interval": {"type": "integer", "minimum": 10, "description": "10 or more seconds"},
        "claims_idle": {"type": "integer", "minimum": 0, "description": "0 or more seconds"},
        "metrics_file": METRICS_FILE,
        "feature_file": FEATURE_FILE,
        "load_modules": {
            "items": KERNEL_MODULE,
        },
    }
}


class UnitsState(NamedTuple):
    """The state of the units in systemd."""

    enabled: tuple[str, ...]
    active: tuple[str, ...]  # of WATCHERS; all of them if systemd does not run (an image), because none can be started


def install(
    settings: RefreshUnit, state_dir: str, check: bool, run: Run = run_on_host, booted: Optional[bool] = None
) -> dict[str, Any]:
    """Write the files, enable the units and start the watchers by `settings`; return the changes, for the module.

    `booted` tells if systemd runs here; None finds out. Raises CdiError.
    """
    live = systemd.booted() if booted is None else booted
    _check(settings)
    if settings.feature_file:  # the service ignores it if its last commands fail
        node_features.check_features(settings.feature_file, state_dir)
    wanted = refresh_texts(settings)
    before = _state(run, live)

    written = units.write_units(wanted, BY, state_dir, check)
    after = UnitsState(UNITS, WATCHERS)
    spec_dirs = tuple(dict.fromkeys((settings.spec_dir, *SPEC_DIRS)))
    links = device_links.keep_links(spec_dirs, state_dir, check) if live else ()  # before systemd is reloaded
    # The service writes the file of features; a file that the settings do not name any more goes now.
    left = () if settings.feature_file else node_features.keep_features("", "", state_dir, check)
    changed = bool(written) or before != after
    if changed and not check:
        touched = {os.path.basename(change.path) for change in written}
        if live:
            systemd.reload(run, (*WATCHERS, *SERVICES))
        if os.path.basename(RULES) in touched:
            run(["udevadm", "control", "--reload"])  # udevd also notices by itself, and may not run
        stale = [unit for unit in WATCHERS if unit in touched or unit not in before.active]
        units.start(run, live, UNITS, stale)
        if live:
            systemd.do(run, ["systemctl", "start", "--no-block", SERVICE])
    diff = [*map(module_diff.text, (*written, *left)), *module_diff.units(before, after), *device_links.shown(links)]
    return {"changed": changed or bool(links) or bool(left), "diff": diff}


def uninstall(state_dir: str, check: bool, run: Run = run_on_host, booted: Optional[bool] = None) -> dict[str, Any]:
    """Stop and disable the units and remove their files; return the changes. Raises CdiError."""
    manifest = read_manifest(state_dir)
    changes = units.leaving(manifest, installed(manifest))
    if not changes:
        return {"changed": False, "diff": []}
    live = systemd.booted() if booted is None else booted
    before = _state(run, live)
    links = [device_links.LinkChange(*one, "") for one in device_links.ours(manifest).items()]
    left = node_features.keep_features("", "", state_dir, check)
    if not check:
        stop(run, live)
        units.take_back_units(changes, state_dir)
        with locked_manifest(state_dir) as manifest:
            device_links.take_back_links(manifest)
        forget(run, live)
    gone = map(module_diff.text, (*changes, *left))
    diff = [*gone, *module_diff.units(before, UnitsState((), ())), *device_links.shown(links)]
    return {"changed": True, "diff": diff}


def installed(manifest: Manifest) -> tuple[str, ...]:
    """Return the files of the refresh that the manifest lists."""
    return tuple(path for path in refresh_texts(RefreshUnit()) if manifest.record(path))


def stop(run: Run, booted: Optional[bool] = None) -> None:
    """Stop and disable the units, before their files go."""
    live = systemd.booted() if booted is None else booted
    units.stop(run, live, (*WATCHERS, *SERVICES), UNITS)


def forget(run: Run, booted: Optional[bool] = None) -> None:
    """Make systemd and udev forget the units, after their files went."""
    live = systemd.booted() if booted is None else booted
    units.forget(run, live, (*WATCHERS, *SERVICES))
    if live:
        run(["udevadm", "control", "--reload"])
    files.remove(WANTED)
    files.remove(WANTED_BY_UDEV)


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module refresh_service for its `options`. Raises CdiError."""
    warnings = check_host(options, check)
    if options["state"] == "absent":
        return uninstall(options["state_dir"], check), warnings
    settings = RefreshUnit(**{key: options[key] for key in RefreshUnit._fields})
    functions = tuple(f"{device}={count}" for device, count in sorted(options["virtual_functions"].items()))
    settings = settings._replace(load_modules=tuple(options["load_modules"]), virtual_functions=functions)
    return install(settings, options["state_dir"], check), [*warnings, *_unwritten(settings)]


def _unwritten(settings: RefreshUnit) -> list[str]:
    """Return why the service will write no metrics: it makes no directory of others, and does not fail without it."""
    directory = os.path.dirname(settings.metrics_file)
    why = (
        f"metrics_file (role: cdi_host_metrics_file): found {settings.metrics_file}, whose directory does not exist; "
        "expected one that node_exporter reads (--collector.textfile.directory). Until it exists, no metrics are "
        "written."
    )
    return [why] if directory and not os.path.isdir(directory) else []


def _check(settings: RefreshUnit) -> None:
    units.need_systemd(
        "a refresh at boot and on hot-plug needs systemd. Use state: absent (role: cdi_host_refresh: false), and run "
        "`fleet-cdi refresh` by other means."
    )
    schema.check(settings._asdict(), OPTIONS, "")
    for text in settings.virtual_functions:
        parse(text)


def _state(run: Run, live: bool) -> UnitsState:
    return UnitsState(systemd.enabled(run, UNITS), systemd.active(run, WATCHERS) if live else WATCHERS)
