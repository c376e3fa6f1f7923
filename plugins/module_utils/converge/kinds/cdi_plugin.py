# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converge the configuration of one executable of the 2017 proposal (module cdi_plugin).

The manifest lists the file. A refresh then writes the pool of devices of the executable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ... import files
from ...claims.store import has_claims, read_claims
from ...layout import Layout
from ...manifest import Manifest
from ...protocol import grammar, messages, pools
from ...records import CdiError
from ...release.needed_by import check_host, host_spec_dirs
from .. import module_diff, plugin_configuration
from ..apply import apply
from ..change import OR_FORCE, Change, Plan, plan_file
from ..holders import holders
from . import leaving
from .refresh_all import refresh


class WantedConfiguration(NamedTuple):
    """One configuration and its place; `document` None: the configuration is to be removed."""

    resource_type: str
    name: str  # name of the file, without .conf
    document: Optional[dict[str, Any]]
    by: str = ""


class ConfigurationOutcome(NamedTuple):
    """The changes that were made, or with `check` would be made."""

    path: str
    change: Optional[Change]  # change of the configuration itself
    changed: tuple[str, ...]  # all paths, pools included
    warnings: tuple[str, ...]


class ConfigurationOutcomes(NamedTuple):
    """The changes for several configurations."""

    changes: tuple[Change, ...]  # of the configurations themselves
    changed: tuple[str, ...]  # all paths, pools included
    warnings: tuple[str, ...]
    failed: tuple[CdiError, ...]


def converge_configuration(
    wanted: WantedConfiguration,
    places: Layout,
    bin_dir: str,
    force: bool = False,
    check: bool = False,
    on_held: str = leaving.KEEP,
) -> ConfigurationOutcome:
    """Do as `converge_configurations` does, for one.

    Raises CdiError, with nothing changed. Exception: if its devices can't be found, the configuration is already
    written.
    """
    done = converge_configurations([wanted], places, bin_dir, force, check, on_held)
    for error in done.failed:
        raise error
    path = path_of(wanted, places)
    return ConfigurationOutcome(path, next(iter(done.changes), None), done.changed, done.warnings)


def converge_configurations(
    wanted: Sequence[WantedConfiguration],
    places: Layout,
    bin_dir: str,
    force: bool = False,
    check: bool = False,
    on_held: str = leaving.KEEP,
) -> ConfigurationOutcomes:
    """Write or remove configurations, and refresh their pools once.

    A configuration to remove, or to give to another plugin, stays while requests hold devices through it: DEL needs it,
    and another plugin would not know the requests. `on_held` may refuse or force the change. One that can't be
    converged does not stop the others. Raises CdiError if the manifest can't be used.
    """
    changes: list[Change] = []
    warnings: list[str] = []
    failed: list[CdiError] = []
    there: list[str] = []  # paths of the configurations that are to exist
    done = 0
    for one in wanted:
        try:
            _check_names(one)
            content = _rendered(one, bin_dir, check)
            plan = _written(one, content, places, force, check, on_held)
        except CdiError as error:
            failed.append(error)
            continue
        changes += plan.changes
        warnings += plan.warnings
        if plan.warnings:
            continue
        done += 1
        there += [path_of(one, places)] if one.document is not None else []
    if not done:
        return ConfigurationOutcomes((), (), tuple(warnings), tuple(failed))
    # Devices that are missing now are left to the next refresh.
    planned = {change.path: change.after for change in changes} if check else None
    report = refresh(places, grace=float("inf"), check=check, planned=planned)
    changed = dict.fromkeys([*(change.path for change in changes), *report.changed])
    for path in there:
        unusable = [text for text in report.failed if text.startswith(f"{path}: ")]
        if unusable:
            failed.append(
                CdiError(
                    f"{'; '.join(unusable)}. The configuration {'would be' if check else 'is'} there, and its "
                    "executable can grant nothing until that is put right."
                )
            )
    return ConfigurationOutcomes(
        tuple(changes), tuple(changed), (*warnings, *report.warnings, *report.failed), tuple(failed)
    )


def path_of(wanted: WantedConfiguration, places: Layout) -> str:
    """Return the path of a configuration."""
    return files.canonical(os.path.join(places.config_dir, f"{wanted.resource_type}.d", f"{wanted.name}.conf"))


def _check_names(wanted: WantedConfiguration) -> None:
    """Raise CdiError for names that would lead elsewhere."""
    if not grammar.is_resource_type(wanted.resource_type):
        raise CdiError(
            f"resource_type: found {wanted.resource_type!r}; expected a letter, then up to 15 letters and digits"
        )
    if not grammar.is_plugin(wanted.name):
        raise CdiError(f"name: found {wanted.name!r}; expected letters, digits, - and _, up to 64 of them")


def _staying(wanted: WantedConfiguration, content: Optional[bytes], places: Layout, on_held: str) -> str:
    """Return why a configuration does not get its new `content`; "" if it may. Raises CdiError if `on_held` says so."""
    path = path_of(wanted, places)
    live = None if on_held == leaving.DROP else files.read(path)
    before = _plugins(live.content if live else None)
    if set(before) <= set(_plugins(content)):
        return ""
    held = _held(path, wanted.resource_type, before[0], places.state_dir)
    if held and on_held == leaving.FAIL:
        raise CdiError(f"{held}. Nothing was changed. Give the devices back first, or let on_held be 'keep' or 'drop'.")
    why = f"{held}; the configuration stays until they give it back and this runs again; on_held 'drop' does it now"
    return why if held else ""


def _plugins(content: Optional[bytes]) -> tuple[str, ...]:
    """Return the plugin of a configuration, and those that it delegates to; () for one that every plugin refuses."""
    if content is None:
        return ()
    try:
        return tuple(one.plugin for one in pools.chain(messages.config(messages.load(content))))
    except messages.ProtocolError:
        return ()


def _written(
    wanted: WantedConfiguration, content: Optional[bytes], places: Layout, force: bool, check: bool, on_held: str
) -> Plan:
    """Write or remove one configuration, or return the warning why it stays. Raises CdiError, with nothing changed."""
    path = path_of(wanted, places)

    def look_and_plan(manifest: Manifest) -> Plan:
        stays = _staying(wanted, content, places, on_held)
        if stays:
            return Plan(path, (), (stays,))
        advice = "Move it away, choose another name, " + OR_FORCE
        return Plan(path, plan_file(path, content, manifest, wanted.by, force, advice), ())

    return apply(look_and_plan, places.state_dir, check)


def _held(path: str, resource_type: str, plugin: str, state_dir: str) -> str:
    """Tell which requests hold devices by the configuration at `path`; "" if none do. Raises CdiError.

    A grant names resource-type and executable only, so it counts for every configuration of that pair. Of others'
    executables, whose grants no store of ours has, the claims tell.
    """
    found = [
        holders.named_holders(grant)
        for grant in holders.grants(state_dir)
        if (grant.key.resource_type, grant.key.plugin) == (resource_type, plugin)
    ]
    if plugin not in pools.PROFILES and has_claims(state_dir):
        found += [
            f"claim {claim.id} has devices by it"
            for claim in read_claims(state_dir).claims
            if path in map(files.canonical, claim.configurations)
        ]
    if not found:
        return ""
    more = f" and {len(found) - holders.SOME} more" if found[holders.SOME :] else ""
    return f"{path}: {'; '.join(found[: holders.SOME])}{more}"


def _rendered(wanted: WantedConfiguration, bin_dir: str, check: bool) -> Optional[bytes]:
    """Return the text of a configuration; None for one to remove. Raises CdiError if its executable would refuse it.

    With `check` our executables may be missing, because a previewed release would install them.
    """
    if wanted.document is None:
        return None
    what = f"configuration {wanted.resource_type}/{wanted.name}"
    try:
        content = (json.dumps(wanted.document, indent=2, sort_keys=True) + "\n").encode("ascii")
        config = messages.config(messages.load(content))
        chain = pools.chain(config)
        for wrong in plugin_configuration.wrong_chain(config):
            raise CdiError(f"{what}: {wrong}")
    except messages.ProtocolError as error:
        raise CdiError(f"{what}: {error.details}") from None
    for one in chain:
        previewed = check and one.plugin in pools.PROFILES
        if not previewed and not os.access(os.path.join(bin_dir, one.plugin), os.X_OK):
            there = ", ".join(sorted(pools.PROFILES))
            raise CdiError(
                f"{what}: plugin: found {one.plugin!r}, which is not a program in {bin_dir}; ours are {there}. Install "
                "the release first (module fleet.cdi.host_release), or the plugin that is meant."
            )
    return content


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module cdi_plugin for its `options`. Raises CdiError."""
    warnings = check_host(options, check)
    wanted = wanted_configuration(options)
    places = Layout(
        options["state_dir"],
        options["device_list"],
        options["config_dir"],
        prefix=options["prefix"],
        spec_dirs=host_spec_dirs(options["prefix"]),
        path=os.environ.get("PATH", ""),
    )
    bin_dir = os.path.join(options["prefix"], "bin")
    outcome = converge_configuration(wanted, places, bin_dir, options["force"], check, options["on_held"])
    result = {
        "changed": bool(outcome.changed),
        "path": outcome.path,
        "paths": list(outcome.changed),
        "diff": [module_diff.document(outcome.change)] if outcome.change else [],
    }
    return result, [*warnings, *outcome.warnings]


def wanted_configuration(options: Mapping[str, Any]) -> WantedConfiguration:
    """Return the configuration that `options`, those of module cdi_plugin, ask for."""
    document = plugin_configuration.document_of(options) if options["state"] == "present" else None
    name = options["name"] or options["plugin"] or ""
    return WantedConfiguration(options["resource_type"], name, document, options["managed_by"])
