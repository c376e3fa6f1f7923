# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the configuration of the device plugin, and check that its instances use it (module device_plugin_config).

The manifest lists the file. Instances read a new file by themselves, and serve their resources meanwhile.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple, Optional

from ... import files, schema
from ...device_plugin.allocate import delivery
from ...device_plugin.config import configuration
from ...device_plugin.config.configuration import PluginSettings
from ...device_plugin.process import instance_status
from ...layout import kubelet_layout
from ...manifest import Manifest, locked_manifest, read_manifest
from ...records import CdiError
from ...release.needed_by import check_host
from ...system import systemd
from .. import module_diff
from ..apply import apply
from ..change import OR_FORCE, Change, Plan, plan_file
from .device_plugin_unit import INSTANCES, RUN_DIR, instance

BY = "device_plugin_config"  # the owner of the file, for the manifest
PAUSE = 0.2  # seconds between two looks at the instances
HEARD = 2.0  # seconds after which an error of an instance is about this file, and not about the one before

# Options of the module that go into the document unchanged.
FIELDS = (
    "resources",
    "delivery",
    "registration",
    "takeover",
    "occupied",
    "occupied_ignore",
    "metrics",
    "grace",
    "spec_dirs",
    "state_dir",
)


class TakenOver(NamedTuple):
    """A running instance, and if it uses the configuration; `error` is its reason if it does not."""

    instance: str
    taken: bool
    error: Optional[str]


def rendered(options: Mapping[str, Any]) -> bytes:
    """Return the text of the configuration for the options of the module. Raises CdiError for wrong options."""
    kubelet = options["kubelet_dir"].rstrip("/")
    for name, path in (("config_file", options["config_file"]), ("kubelet_dir", kubelet)):
        schema.check({name: path}, {"properties": {name: schema.PATH}}, options["config_file"])
    # The usual directories count as well: runtimes may read them even if the plugin does not.
    directories = {*options["spec_dirs"], *PluginSettings().spec_dirs}
    if os.path.realpath(os.path.dirname(options["config_file"])) in map(os.path.realpath, directories):
        raise CdiError(
            f"{options['config_file']}: is in a spec directory, where container runtimes would take it for a spec; "
            "choose another path"
        )
    document = {
        "version": configuration.VERSION,
        **{field: options[field] for field in FIELDS},
        "inventory": options["device_list"],
        **kubelet_layout(kubelet)._asdict(),
    }
    configuration.parse(document, options["config_file"])
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def write_config(path: str, content: Optional[bytes], state_dir: str, force: bool, check: bool) -> Optional[Change]:
    """Write `content` to the configuration at `path`; None restores the file from before us.

    Returns the change, or None if the file already agrees. Raises CdiError, with nothing changed.
    """
    where = files.canonical(path)
    if content is None:
        return _take_back(where, state_dir, force, check)

    def make_plan(manifest: Manifest) -> Plan:
        return Plan(where, plan_file(where, content, manifest, BY, force, "Move it away, " + OR_FORCE), ())

    return next(iter(apply(make_plan, state_dir, check).changes), None)


def _take_back(path: str, state_dir: str, force: bool, check: bool) -> Optional[Change]:
    manifest = read_manifest(state_dir)
    if path not in manifest.files:
        return None
    live, prior = files.read(path), manifest.files[path]["prior"]
    change = Change(path, "", live.content if live else None, base64.b64decode(prior["content"]) if prior else None)
    if check:
        manifest.take_back(path, check=True, force=force)
    else:
        with locked_manifest(state_dir) as manifest:
            if path in manifest.files:  # an undo may have come before the lock
                manifest.take_back(path, force=force)
    return change


def taken(
    path: str,
    content: Optional[bytes],
    wait: float,
    living: Callable[[], Iterable[Mapping[str, Any]]],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[TakenOver, ...]:
    """Tell which running instances use the configuration at `path`; wait up to `wait` seconds for them."""
    wanted = hashlib.sha256(content).hexdigest() if content is not None else ""
    until = clock() + wait
    heard = clock() + HEARD
    while True:
        found = tuple(
            TakenOver(one["instance"], one["config"]["sha256"] == wanted, one["config"]["error"])
            for one in living()
            if files.canonical(one["config"]["path"]) == files.canonical(path)
        )
        if all(one.taken or (one.error and clock() >= heard) for one in found) or clock() >= until:
            return found
        sleep(PAUSE)


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module device_plugin_config for its `options`. Raises CdiError."""
    warnings = check_host(options, check)
    path = options["config_file"]
    content = rendered(options) if options["state"] == "present" else None
    if content is not None:
        settings = configuration.parse(json.loads(content), path)
        readers = delivery.readers(settings.root)
        known = delivery.load_specs(settings.spec_dirs, lambda: readers)
        warnings += delivery.warnings(settings, readers, known, delivery.kubelets(settings.root))
    change = write_config(path, content, options["state_dir"], options["force"], check)
    if change and not check:
        _reload()
    live = files.read(files.canonical(path))
    has = live.content if live else None
    found = () if check else taken(path, has, options["timeout"], _living)
    for one in found:
        if not one.taken:
            warnings.append(
                f"{path}: instance {one.instance} of the device plugin has not taken it: "
                f"{one.error or 'it did not say why'}. It goes on with what it had."
            )
    result = {
        "changed": change is not None,
        "path": files.canonical(path),
        "taken": all(one.taken for one in found) if found else None,
        "instances": [one._asdict() for one in found],
        "diff": [module_diff.document(change)] if change else [],
    }
    return result, warnings


def _living() -> list[Mapping[str, Any]]:
    return [seen.document for seen in instance_status.instances_in(RUN_DIR) if seen.alive]


def _reload() -> None:
    """Reload the instances under systemd. They also see a change by themselves, but not on every file system."""
    if systemd.booted() and shutil.which("systemctl"):
        for unit in systemd.active(systemd.run_on_host, [*map(instance, INSTANCES)]):
            systemd.run_on_host(["systemctl", "reload", unit])
