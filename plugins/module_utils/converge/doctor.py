# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the CDI devices of this host, and what to do next. Private API of fleet.cdi."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils.converge.survey import Survey, survey
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.detect import Found, Runtime, detect
from ansible_collections.fleet.cdi.plugins.module_utils.spec.model import VERSIONS

AGAIN = "run the provisioning again (playbook fleet.cdi.provision or module fleet.cdi.spec)"
VENDOR = "let the tool that wrote it write it anew"

# Sort of finding -> what to do next: where the spec is ours, and, if that differs, where it is somebody else's.
NEXT = {
    "invalid": ("repair or remove it; `fleet-cdi validate FILE` names every fault",),
    "conflict": ("remove or rename the device in all files but one",),
    "shadowed": ("remove it from the directory that is not meant",),
    "too-new": (f"{AGAIN}: it writes what the runtimes read", f"upgrade the runtime, or {VENDOR} in an older version"),
    "no-cdi": ("upgrade the runtime; this release is from before CDI",),
    "unknown-runtime": ("repair or remove that program",),
    "node-missing": (f"load its driver; or {AGAIN}", f"load its driver; or {VENDOR}"),
    "node-type": (AGAIN, VENDOR),
    "node-number": (f"{AGAIN}: it leaves numbers out, and the runtime reads them from the host", VENDOR),
    "mount-missing": (f"bring the file back; or {AGAIN}", f"bring the file back; or {VENDOR}"),
    "library-missing": (f"install what it belongs to; or {AGAIN}", f"install what it belongs to; or {VENDOR}"),
    "driver-version": (f"the driver was changed: {AGAIN}", f"the driver was changed: {VENDOR}"),
    "hook-missing": ("install the program that the hook runs",),
    "hook-not-executable": ("make the hook executable (chmod +x)",),
    "interface-missing": (f"bring the interface up; or {AGAIN}", f"bring the interface up; or {VENDOR}"),
    "device-gone": ("look after the device; `fleet-cdi refresh --drop` gives it up",),
    "unhealthy": ("repair what the reason names; or `fleet-cdi device disable` it, so that nobody waits for it",),
    "disabled": ("`fleet-cdi device enable` it when it may be used again",),
    "device-new": ("run `fleet-cdi refresh`; it says why, if the device is not offered then",),
}


class Finding(NamedTuple):
    """One thing that is wrong with `subject` (a path or a qualified name)."""

    rule: str
    subject: str
    problem: str
    next: str


def examine(directories: Sequence[str], state_dir: str, inventory_path: str, path: str) -> tuple[Survey, Found]:
    """What `diagnose` needs of this host; `path` is the variable PATH. Raises CdiError as `survey` does."""
    return survey(directories, state_dir, inventory_path), detect(path)


def diagnose(found: Survey, engines: Found) -> tuple[Finding, ...]:
    """Everything that keeps a container from its device, or gives it a wrong one; () if all is well. Raises nothing."""
    found_all = (*_of_registry(found), *_of_runtimes(found, engines), *_of_host(found))
    # The first advice is for our own files, the last for others'.
    return tuple(
        Finding(rule, subject, problem, NEXT[rule][0 if subject in found.managed else -1])
        for rule, subject, problem in found_all
    )


def _of_registry(found: Survey) -> Iterator[tuple[str, str, str]]:
    registry = found.registry
    for path, error in registry.errors.items():
        yield "invalid", path, error
    for name, paths in registry.conflicts.items():
        yield "conflict", name, f"{' and '.join(paths)} define it; no runtime resolves it"
    for name, paths in registry.shadowed.items():
        yield "shadowed", name, f"{registry.devices[name]} overrules {' and '.join(paths)}"


def _of_runtimes(found: Survey, engines: Found) -> Iterator[tuple[str, str, str]]:
    for text in engines.warnings:
        yield "unknown-runtime", text.partition(":")[0], text
    if not found.registry.specs:
        return
    for engine in engines.runtimes:
        if not engine.reads:
            yield "no-cdi", engine.path, f"{engine.name} {engine.version} reads no CDI specs"
    for file in found.registry.specs:
        version = file.spec["cdiVersion"].removeprefix("v")
        behind = [_named(engine) for engine in _behind(version, engines.runtimes)]
        if behind:
            yield "too-new", file.path, f"it is CDI {version}; none of its devices exists for {', '.join(behind)}"


def _of_host(found: Survey) -> Iterator[tuple[str, str, str]]:
    kinds = {file.path: file.spec["kind"] for file in found.registry.specs}
    gone = {f"{kinds[path]}={one.expected}" for path, reasons in found.stale.items() for one in reasons}
    for device in found.ill:
        if gone.isdisjoint(device.qualified_names):  # a stale spec says more
            yield "unhealthy", device.qualified_names[0], f"{device.id}: {device.health.reason}"
    for name, one in found.disabled.items():
        until = f"until {one.until}" if one.until else "until it is enabled"
        yield "disabled", name, f"out of service since {one.since}, {until}: {one.reason}"
    for path, reasons in found.stale.items():
        for reason in reasons:
            yield reason.rule, path, f"{reason.pointer}: the spec says {reason.expected}, the host has {reason.found}"


def _behind(version: str, engines: Iterable[Runtime]) -> list[Runtime]:
    return [one for one in engines if one.reads and VERSIONS.index(one.reads) < VERSIONS.index(version)]


def _named(engine: Runtime) -> str:
    return f"{engine.name} {engine.version} (reads up to {engine.reads})"
