# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the container runtimes: their versions, their configurations, and what their daemons run with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ...runtimes.place import InstalledRuntime
from ...runtimes.survey import RuntimeState, unsearched
from ...spec.model import VERSIONS
from ...spec.registry import Hidden, SpecFile
from ...spec.seen.linked import Linked, named_libraries
from ...spec.seen.seen import unknown_field
from ..clashes import REAL_DIRECTORY
from ..libraries import of_places
from ..runtime.plan import owner
from . import advice
from .rule import NOTES, DoctorRule, Symptom
from .view import HostView


def _unknown(view: HostView) -> Iterator[Symptom]:
    for text in view.running.runtime_warnings:
        path, _colon, problem = text.partition(": ")
        yield Symptom(path, problem)


def _before_cdi(view: HostView) -> Iterator[Symptom]:
    for state in _used(view):
        if not state.place.reads:
            yield Symptom(state.place.program, f"{state.place.title} reads no CDI specs")


def _unreadable(view: HostView) -> Iterator[Symptom]:
    for state in view.running.runtimes:
        if state.error:
            yield Symptom(state.place.config, state.error)


def _our_keys_unreadable(view: HostView) -> Iterator[Symptom]:
    for path, error in view.written.key_errors.items():
        yield Symptom(path, error)


def _our_keys_changed(view: HostView) -> Iterator[Symptom]:
    for path, names in view.written.keys.items():
        for name in names:
            yield Symptom(path, "this was changed or removed since fleet.cdi set it", name)


def _pending(view: HostView) -> Iterator[Symptom]:
    for state in view.running.runtimes:
        if state.pending:
            unit = state.place.units[0] if state.place.units else state.place.name
            yield Symptom(unit, f"{state.place.title} runs with another configuration than its files say")


def _off(view: HostView) -> Iterator[Symptom]:
    """Find the runtimes that have CDI off although the settings turn it on.

    If the settings name no runtime and this host has specs of ours, report it if every runtime has CDI off.
    """
    states = [state for state in view.running.runtimes if state.place.reads]
    off = [state for state in states if state.reading and not state.reading.enabled and not state.pending]
    asked = [state for state in states if _turned(state.place, view) is True]
    for state in off:
        if state in asked:
            yield Symptom(state.place.config, f"{state.place.title} has CDI off; no container of it gets a device")
    left = [state.place for state in off if _turned(state.place, view) is None]
    if left and not asked and len(off) == len(states) and _specs_of_ours(view):
        who = ", ".join(place.title for place in left)
        yield Symptom(left[0].config, f"CDI is off in every runtime ({who}); no container of this host gets a device")


def _silent(view: HostView) -> Iterator[Symptom]:
    for state in view.running.runtimes:
        if state.asked.trouble:
            yield Symptom(state.place.socket, state.asked.trouble)


def too_new(view: HostView) -> Iterator[Symptom]:
    for file, behind in _unread(view):
        version = file.spec["cdiVersion"].removeprefix("v")
        who = ", ".join(_named(place) for place in behind if _is_behind(place, version))
        if who:
            yield Symptom(file.path, f"it is CDI {version}; none of its devices exists for {who}")


def _not_every_runtime(view: HostView) -> Iterator[Symptom]:
    """Find the specs that a runtime does not read although it supports their version."""
    for file, behind in _unread(view):
        version = file.spec["cdiVersion"].removeprefix("v")
        nulls = [one.pointer for one in file.findings if one.rule == "null"]
        for place in behind:
            if not _is_behind(place, version):
                field = next((unknown_field(file.spec, one.release, nulls) for one in of_places([place])), "")
                why = f"it does not know {field}" if field else "it refuses the content of the file"
                yield Symptom(file.path, f"none of its devices exists for {place.title}: {why}")


def _unread(view: HostView) -> Iterator[tuple[SpecFile, list[InstalledRuntime]]]:
    """Yield each spec that some runtimes of this host do not read, with these runtimes."""
    readers = [state.place for state in view.running.runtimes if state.place.reads]
    for file in view.written.registry.specs:
        behind = [place for place in readers if not any(one.release in file.seen_by for one in of_places([place]))]
        if behind:
            yield file, behind


def _crash(view: HostView) -> Iterator[Symptom]:
    for path, names in view.written.registry.crashes.items():
        who = named_libraries(readers_of(view), names)
        if who:
            yield Symptom(path, f"the CDI library of {who} crashes on it, and no device of any file resolves")


def _directory(view: HostView) -> Iterator[Symptom]:
    for one, who, lost in unread_directories(view):
        yield Symptom(one.path, f"it {one.why}, so that {who} reads nothing in {', '.join(lost)}")


def unread_directories(view: HostView) -> Iterator[tuple[Hidden, str, tuple[str, ...]]]:
    """Yield (what hides directories, the runtimes that read nothing in them, these directories)."""
    registry = view.written.registry
    for one in registry.unread:
        who = named_libraries((reader for reader in readers_of(view) if one.hides_from(reader)), one.releases)
        if who:
            yield one, who, tuple(registry.directories[at] for at in one.priorities)


def _unsearched(view: HostView) -> Iterator[Symptom]:
    """Find the directories of our specs in which no runtime that has CDI on looks for specs."""
    ours = [memory.directory for memory in view.wanted.kinds.values() if memory.offered]
    for directory, why in unsearched(ours, view.running.runtimes):
        yield Symptom(directory, why)


def _compose(view: HostView) -> Iterator[Symptom]:
    for path, release in view.running.compose.items() if _used(view) else ():
        yield Symptom(
            path,
            f"{release} starts containers of compose files without the CDI devices below `deploy` (driver cdi), and "
            "says nothing",
        )


def readers_of(view: HostView) -> tuple[Linked, ...]:
    """Return the CDI libraries of the runtimes of this host."""
    return of_places(state.place for state in view.running.runtimes)


def _used(view: HostView) -> tuple[RuntimeState, ...]:
    """Return the runtimes; none if this host neither has a spec nor is to have one."""
    return view.running.runtimes if view.written.registry.specs or view.wanted.kinds else ()


def _turned(place: InstalledRuntime, view: HostView) -> Optional[bool]:
    """Return whether the settings turned CDI on or off (module container_runtime); None if they set nothing."""
    records = [record for record in view.wanted.manifest.edits.values() if record["for"] == owner(place)]
    if not records:
        return None
    return not any(key["value"] is False for record in records for key in record["keys"])


def _specs_of_ours(view: HostView) -> bool:
    """Return True if the manifest lists a spec, unchanged or not."""
    return any(view.wanted.manifest.kind_of(path) for path in view.written.files)


def _is_behind(place: InstalledRuntime, version: str) -> bool:
    return version not in VERSIONS or VERSIONS.index(place.reads) < VERSIONS.index(version)


def _named(place: InstalledRuntime) -> str:
    return f"{place.name} {place.version} (reads up to {place.reads})"


TURN_ON = "turn it on: variable cdi_host_runtime_settings and `ansible-playbook fleet.cdi.provision`"

CRASH = "remove or correct it at once; `fleet-cdi validate {subject}` names the fault"

RULES = (
    DoctorRule("unknown-runtime", _unknown, "repair or remove that program: `{subject} --version` has to answer"),
    DoctorRule(
        "no-cdi",
        _before_cdi,
        "upgrade it, as this release is from before CDI: `{subject} --version`",
    ),
    DoctorRule("runtime-config-damaged", _unreadable, "repair it; then " + advice.PROVISION),
    DoctorRule("runtime-key-damaged", _our_keys_unreadable, "repair it; then " + advice.PROVISION, general=True),
    DoctorRule("runtime-key-changed", _our_keys_changed, advice.PROVISION),
    DoctorRule("runtime-off", _off, TURN_ON, general=True),
    DoctorRule("restart-pending", _pending, "`systemctl restart {subject}`, when its containers may be restarted"),
    DoctorRule("runtime-silent", _silent, "look at its daemon: `journalctl -xe`; then `fleet-cdi doctor` as root"),
    DoctorRule(
        "too-new",
        too_new,
        f"{advice.PROVISION}, which writes what the runtimes read",
        f"upgrade the runtime; or {advice.AGAIN}; `fleet-cdi validate {{subject}}` checks the result",
    ),
    DoctorRule(
        "not-every-runtime",
        _not_every_runtime,
        f"{advice.PROVISION}, which writes what the runtimes read",
        "let the tool that wrote it leave that out; `fleet-cdi validate {subject}` names what not every runtime reads",
    ),
    DoctorRule("runtime-crash", _crash, CRASH, CRASH),
    DoctorRule(
        "directory-unread",
        _directory,
        REAL_DIRECTORY,
    ),
    DoctorRule(
        "directory-not-searched",
        _unsearched,
        f"{advice.SEARCHED}; then {advice.PROVISION}",
    ),
    DoctorRule(
        "compose-drops-cdi",
        _compose,
        "name CDI devices in `devices:` of a service for podman-compose; use `podman run`, or podman 5.4, instead of "
        "docker-compose with an older podman",
        status=NOTES,
    ),
)
