# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module spec: the spec of one kind, and its part of the inventory, as wanted. Private API of fleet.cdi."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.converge import image, own_hook, show
from ansible_collections.fleet.cdi.plugins.module_utils.converge.apply import apply
from ansible_collections.fleet.cdi.plugins.module_utils.converge.foreign import Foreign
from ansible_collections.fleet.cdi.plugins.module_utils.converge.granted import Granted
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kind import (
    Part,
    Seen,
    Wanted,
    known,
    look,
    plan_kind,
    plan_listing,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.memory import mark
from ansible_collections.fleet.cdi.plugins.module_utils.converge.plan import Change, Plan
from ansible_collections.fleet.cdi.plugins.module_utils.converge.shrink import Terms
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory, snapshot, udev
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.disabled import in_force
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import Manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import as_document
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect


class Paths(NamedTuple):
    """Where things are on the host. `inventory` may be "": none is written."""

    directory: str = "/etc/cdi"
    inventory: str = "/run/cdi-inventory.json"
    state_dir: str = "/var/lib/cdi"
    prefix: str = "/opt/cdi"  # of the release
    release: str = ""  # its id; "" if nobody says


class Outcome(NamedTuple):
    """What was, or with `check` would be, changed."""

    plan: Plan
    spec: Optional[dict[str, Any]]
    runtimes: tuple[detect.Runtime, ...]  # that the spec was fitted to; () where there is none to fit
    warnings: tuple[str, ...]
    foreign: tuple[Foreign, ...] = ()  # specs of others that provide the kind, or did before ours replaced them


def converge(
    wanted: Wanted,
    paths: Paths,
    force: bool = False,
    check: bool = False,
    live: bool = True,
    granted: Optional[Callable[[str], bool]] = None,
) -> Outcome:
    """Make the spec of one kind and its part of the inventory as wanted. Raises CdiError, with nothing changed.

    Devices that are gone are dropped at once: whoever runs the module looked at its preview. Not so those that
    somebody holds (`granted`, by id; None: by the ledger).
    """
    seen = Seen()
    warnings: list[str] = []
    if wanted.entries is not None:
        enricher, warnings = udev.enricher("/") if live else (None, [])
        seen = look(wanted, snapshot.take("/", live), enricher, in_force(paths.state_dir))
    around = known(paths.directory, paths.inventory, inventory.boot_id("/"), paths.prefix)
    ledger = Granted(paths.state_dir, around.boot_id)
    terms = Terms(mark(around.boot_id), 0, granted or ledger)
    parts: list[Part] = []
    lacking: list[str] = []

    def make_plan(manifest: Manifest) -> Plan:
        part = plan_kind(wanted, seen, around, manifest, terms, force)
        parts.append(part)
        lacking[:] = own_hook.require(part.spec, paths.prefix, paths.release, check)
        listing = plan_listing(around, {wanted.kind: part.found}, manifest, wanted.by)
        return part.plan._replace(changes=part.plan.changes + listing)

    plan = apply(make_plan, paths.state_dir, check)
    part = parts[-1]
    if ledger.trouble:
        warnings.append(f"{ledger.trouble}: until then nothing that is gone is dropped")
    return Outcome(plan, part.spec, part.runtimes, (*warnings, *lacking, *part.warnings), part.foreign)


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """(result, warnings) of module spec for its `options`. Raises CdiError."""
    warnings = guard.check(options["prefix"], options["release"], check)
    listing = options["inventory"]
    live = options["root"] == "/"
    if not live:
        image.enter(options["root"])
        listing = ""  # an image has not booted
    present = options["state"] == "present"
    wanted = Wanted(
        options["kind"],
        options["devices"] if present else None,
        options["content"] if present else None,
        options["managed_by"],
        options["on_unsupported"],
        options["runtimes"],
        options["on_foreign_kind"],
    )
    paths = Paths(options["directory"], listing, options["state_dir"], options["prefix"], options["release"] or "")
    outcome = converge(wanted, paths, options["force"], check, live)
    spec = outcome.spec
    result = {
        "changed": bool(outcome.plan.changes or outcome.plan.kinds),
        "kind": wanted.kind,
        "path": outcome.plan.path,
        "cdi_version": spec["cdiVersion"] if spec else "",
        "names": [f"{wanted.kind}={device['name']}" for device in spec["devices"]] if spec else [],
        "foreign": as_document(outcome.foreign),
        "runtimes": as_document(outcome.runtimes),
        "diff": [
            show.diff(change.path, *(_shown(content, change, wanted.kind) for content in (change.before, change.after)))
            for change in outcome.plan.changes
        ],
    }
    return result, [*warnings, *outcome.warnings]


def _shown(content: Optional[bytes], change: Change, kind: str) -> Any:
    """A file's content for the diff.

    Of the inventory it is the devices of `kind`: the others are other runs' doing, and check mode has none of theirs.
    """
    document = show.parsed(content)
    if change.kind:
        return document
    devices = document.get("devices", ()) if isinstance(document, dict) else ()
    return {"devices": [device for device in devices if device["kind"] == kind]}
