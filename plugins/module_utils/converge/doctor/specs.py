# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about CDI specs that runtimes can't read or resolve, or that no longer agree with the host."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ... import directories
from ...discovery.out_of_service import health_of
from ...runtimes.oci_runtimes import passes_environment
from ...spec.seen.linked import named_libraries
from ...spec.validate import ERROR, hooks_without_environment
from . import advice
from .rule import DoctorRule, Symptom
from .runtimes import readers_of, too_new, unread_directories
from .view import HostView


def _invalid(view: HostView) -> Iterator[Symptom]:
    seen_by = {file.path: file.seen_by for file in view.written.registry.specs}
    told = _of_another_version(view)
    for path, error in view.written.registry.errors.items():
        if path in told:
            continue
        who = named_libraries(readers_of(view), seen_by.get(path, ()))
        yield Symptom(path, f"{error}. It counts all the same: {who} reads it" if who else error)


def _of_another_version(view: HostView) -> set[str]:
    """Return the specs without a fault but their version, for which no devices exist: rule `too-new` says so."""
    newer = {one.subject for one in too_new(view)}
    return {
        file.path
        for file in view.written.registry.specs
        if file.path in newer and {one.rule for one in file.findings if one.severity == ERROR} == {"version"}
    }


def _conflict(view: HostView) -> Iterator[Symptom]:
    for name, paths in view.written.registry.conflicts.items():
        others = " and ".join(path for path in paths if path != paths[-1])
        yield Symptom(
            paths[-1], f"the same names are in {others}, so no runtime that reads both resolves any of them", name
        )


def _shadowed(view: HostView) -> Iterator[Symptom]:
    registry = view.written.registry
    for name, paths in registry.shadowed.items():
        yield Symptom(registry.devices[name], f"overrules {' and '.join(paths)}", name)


def unresolved(view: HostView) -> Iterator[Symptom]:
    """Find the kinds of the settings that no spec offers, unless a finding about a file or a directory tells why."""
    told = told_kinds(view)
    closed = {one.path for one in view.written.places if one.full or one.read_only}
    unread = {directories.resolved(at) for one, _who, lost in unread_directories(view) for at in (one.path, *lost)}
    there = {name.partition("=")[0] for name in view.written.registry.devices}
    for kind, memory in view.wanted.kinds.items():
        entries = (memory.wanted.get("entries") or {}).values()
        needed = memory.offered or any(entry.get("required", True) for entry in entries)
        useless = memory.directory in closed or directories.resolved(memory.directory) in unread
        explained = kind in told or useless or _out_of_service(kind, view)
        if kind not in there and needed and not explained:
            yield Symptom(kind, "the settings ask for it, and no name of it resolves")


def _out_of_service(kind: str, view: HostView) -> bool:
    """Return True if operators took all devices of a kind out of service: then no name is to resolve."""
    devices = [one for one in view.live.listed.devices if one.kind == kind]
    return bool(devices) and all(health_of(one, view.wanted.disabled) for one in devices)


def told_kinds(view: HostView) -> set[str]:
    """Return the kinds whose names conflict, or of which we wrote a spec that is gone, changed or invalid."""
    paths = (*(path for path, state in view.written.files.items() if state), *view.written.registry.errors)
    ours = {kind for path in paths if (kind := view.wanted.manifest.kind_of(path))}
    return {*ours, *(name.partition("=")[0] for name in view.written.registry.conflicts)}


def _stale(rule: str, view: HostView) -> Iterator[Symptom]:
    for path, reasons in view.live.stale.items():
        for one in reasons:
            if one.rule == rule:
                yield Symptom(path, f"{one.pointer}: the spec says {one.expected}, the host has {one.found}")


def _hook_environment(view: HostView) -> Iterator[Symptom]:
    for file in view.written.registry.specs:
        for pointer, hook in hooks_without_environment(file.spec):
            passing = [one.label for one in view.running.oci_runtimes if passes_environment(one, hook["hookName"])]
            if passing:
                problem = (
                    f"{pointer}: the hook {hook['path']!r} has no env, and {', '.join(passing)} gives it that of the "
                )
                yield Symptom(file.path, f"{problem}image, whose LD_PRELOAD runs code on this host as root")


EXECUTABLE = "make the hook's program executable (`chmod +x`); `fleet-cdi specs` names it"

# Rule of spec/stale.py -> the next step if the spec is ours, and if it is another tool's.
STALE = {
    "node-missing": (f"load its driver; or {advice.PROVISION}", f"load its driver; or {advice.VENDOR}"),
    "node-type": (advice.PROVISION, advice.VENDOR),
    "node-number": (f"{advice.PROVISION}, which leaves numbers out: runtimes read them from the host", advice.VENDOR),
    "mount-missing": (f"bring the file back; or {advice.PROVISION}", f"bring the file back; or {advice.VENDOR}"),
    "library-missing": (
        f"install the package that it belongs to; or {advice.PROVISION}",
        f"install the package that it belongs to; or {advice.VENDOR}",
    ),
    "driver-version": (f"the driver was changed: {advice.PROVISION}", f"the driver was changed: {advice.VENDOR}"),
    "hook-missing": (
        f"install the program that the hook runs; or {advice.PROVISION}",
        f"install the program that the hook runs; or {advice.VENDOR}",
    ),
    "hook-not-executable": (EXECUTABLE, EXECUTABLE),
    "interface-missing": (
        f"bring the interface up; or {advice.PROVISION}",
        f"bring the interface up; or {advice.VENDOR}",
    ),
    "device-gone": ("look at the device; `fleet-cdi refresh --drop` gives it up", ""),
    "device-new": ("`fleet-cdi refresh` offers it, or says why it can't", ""),
}

CORRECT = "correct or remove it; `fleet-cdi validate {subject}` names every fault"

RULES = (
    DoctorRule("invalid", _invalid, CORRECT, CORRECT),
    DoctorRule(
        "conflict", _conflict, "remove or rename these in all files but one; `fleet-cdi specs` shows who wrote which"
    ),
    DoctorRule("shadowed", _shadowed, "remove the file that is not meant; `fleet-cdi specs` shows who wrote which"),
    *(DoctorRule(name, partial(_stale, name), ours, theirs) for name, (ours, theirs) in STALE.items()),
    DoctorRule(
        "hook-environment",
        _hook_environment,
        advice.PROVISION + ", which writes env for hooks of ours; or upgrade runc to 1.3.0 or newer",
        'add `"env": ["PATH=/usr/bin:/bin"]` to the hook and tell its author; or upgrade runc to 1.3.0 or newer',
    ),
    DoctorRule("kind-unresolved", unresolved, "`fleet-cdi refresh` says why; see the findings above", general=True),
)
