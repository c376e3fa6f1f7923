# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fit a spec to the runtimes that are to read it: at most the CDI version they read, and no field they don't know.

A runtime refuses a whole file for one unknown version or field, so that none of its devices is there (podman 4.3:
"unresolvable CDI devices"). Fields that the device in the container does not depend on may be left out instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

from ..records import CdiError
from . import model, versions

DROP, FAIL = "drop", "fail"


class SpecReader(NamedTuple):
    """One runtime that is to read the spec, and the newest CDI version that it reads."""

    name: str
    version: str
    reads: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} (reads CDI up to {self.reads})"


class Fitted(NamedTuple):
    """The spec that every reader reads, and what was left out for that."""

    spec: dict[str, Any]
    warnings: tuple[str, ...]


class Row(NamedTuple):
    """What it means to go without a field. `drop` says whether that may be: it is given the object that has it."""

    drop: Callable[[dict[str, Any]], bool]
    why: str
    gone: str = ""  # the version whose library does not know it any more, whatever version the spec declares


def _yes(_parent: dict[str, Any]) -> bool:
    return True


def _no(_parent: dict[str, Any]) -> bool:
    return False


def _is_bind(mount: dict[str, Any]) -> bool:
    """Whether the kernel ignores a mount's type (mount(2), MS_BIND) and the type says nothing else."""
    return mount["type"] in ("none", "bind") and bool({"bind", "rbind"} & set(mount.get("options") or ()))


# (table, field) of every field of the model that some version lacks.
FIELDS = {
    ("spec", "annotations"): Row(_yes, "they say something about the spec, and change no container"),
    ("device", "annotations"): Row(_yes, "they say something about the device, and change no container"),
    ("deviceNode", "hostPath"): Row(_no, "without it the container would get another node, or none"),
    ("mount", "type"): Row(_is_bind, "a bind mount has no type of its own; any other is another mount without it"),
    ("containerEdits", "additionalGids"): Row(_yes, "a user other than root in the container may lack access"),
    ("containerEdits", "intelRdt"): Row(_yes, "the container's cache and memory bandwidth are then not limited"),
    ("containerEdits", "netDevices"): Row(_yes, "the container does not get the network interface"),
    ("intelRdt", "schemata"): Row(_yes, "these limits of cache and memory bandwidth are then not set"),
    ("intelRdt", "enableMonitoring"): Row(_yes, "the container's cache and memory bandwidth are not monitored"),
    ("intelRdt", "enableCMT"): Row(_yes, "the container's cache is not monitored", gone="1.1.0"),
    ("intelRdt", "enableMBM"): Row(_yes, "the container's memory bandwidth is not monitored", gone="1.1.0"),
}


class NameRow(NamedTuple):
    """Names that not every version allows. People and plugins ask for devices by name, so none is ever changed."""

    since: str
    found: Callable[[dict[str, Any]], Optional[tuple[str, str]]]  # the spec -> (JSON pointer, the value found)
    advice: str


def _device_name(holds: Callable[[str], bool], what: str) -> Callable[[dict[str, Any]], Optional[tuple[str, str]]]:
    """What finds the first device with such a name."""
    return lambda spec: next(
        (
            (f"/devices/{index}/name", f"{device['name']!r}, which {what}")
            for index, device in enumerate(spec["devices"])
            if holds(device["name"])
        ),
        None,
    )


def _root_class(spec: dict[str, Any]) -> Optional[tuple[str, str]]:
    pointer = versions.root_class(spec)
    return (pointer, f"{versions.ROOT_CLASS!r}, which is the root class") if pointer else None


NAMES = (
    NameRow(
        "0.5.0",
        _device_name(lambda name: name[:1].isdigit(), "starts with a digit"),
        "Let its name start with a letter (name_by of a devices entry)",
    ),
    # SPEC.md allows it from the start; the libraries before 0.5.0 crash on it, and no device of any file resolves.
    NameRow(
        "0.5.0",
        _device_name(lambda name: len(name) == 1 and name.isalpha(), "is one letter"),
        "Give it a name of two letters or more (name_by of a devices entry)",
    ),
    NameRow(
        "0.6.0",
        lambda spec: ("/kind", f"{spec['kind']!r}, a class with a dot") if "." in spec["kind"].split("/")[1] else None,
        "Choose a kind whose class has no dot",
    ),
    NameRow(versions.ROOT_CLASS_SINCE, _root_class, "Name another class, or leave intelRdt out"),
)


class Gap(NamedTuple):
    """A field of the spec that some reader does not know."""

    pointer: str
    field: tuple[str, str]  # a key of FIELDS
    text: str
    may_drop: bool


def fit(spec: dict[str, Any], readers: Sequence[SpecReader], on_unsupported: str = DROP) -> Fitted:
    """`spec`, which is valid, as every one of `readers` reads it.

    It keeps its version if nothing has to go, and has the lowest that fits otherwise. `on_unsupported` is DROP (leave
    out and report optional fields) or FAIL. A reader that reads no CDI at all doesn't count; no reader means no cap.
    Raises CdiError naming field, runtime and version where something must not be left out, or may not.
    """
    readers = [reader for reader in readers if reader.reads]
    problems: list[str] = []
    gaps: list[Gap] = []
    fitted = _fit(spec, model.SPEC, "", readers, gaps)
    for row in NAMES:
        found, lacking = row.found(fitted), _unable(readers, row.since)
        if found and lacking:
            problems.append(
                f"{found[0]}: found {found[1]}: new in CDI {row.since}, and so none for {lacking}. {row.advice}"
            )
    problems += _told(gaps, False, "it can't be left out")
    dropped = _told(gaps, True, "it is left out" if on_unsupported == DROP else "on_unsupported=drop leaves it out")
    emptied = _emptied(fitted["devices"])
    declared, lowest = spec["cdiVersion"].removeprefix("v"), versions.lowest_version(fitted)
    too_new = _unable(readers, declared)
    if too_new and declared != versions.lowest_version(spec):
        dropped.append(f"/cdiVersion: found {declared}, too new for {too_new}; {lowest} is enough for the content")
    if problems or emptied or (dropped and on_unsupported == FAIL):
        raise CdiError(
            f"the spec of {spec['kind']} is not for every runtime of this host: "
            f"{'; '.join(problems + dropped + emptied)}. "
            "Change it, upgrade the runtime, or name in `runtime_versions` only those that are to read it."
        )
    if too_new or fitted != spec:
        fitted["cdiVersion"] = lowest
    return Fitted(fitted, tuple(f"the spec of {spec['kind']}: {text}" for text in dropped))


def _emptied(devices: Sequence[dict[str, Any]]) -> list[str]:
    """One problem for all devices that do nothing; none if each does something."""
    found = [index for index, device in enumerate(devices) if not _does_something(device["containerEdits"])]
    more = f" and {len(found) - 1} more" if found[1:] else ""
    return [
        f"/devices/{index}: without that, nothing is left of the device {devices[index]['name']!r}{more}"
        for index in found[:1]
    ]


def _fit(
    value: dict[str, Any], table: model.FieldTable, pointer: str, readers: Sequence[SpecReader], gaps: list[Gap]
) -> dict[str, Any]:
    """A copy of `value` with the fields that all readers know; `gaps` gets the others."""
    kept: dict[str, Any] = {}
    for key, found in value.items():
        field, at = table.fields[key], f"{pointer}/{key}"
        row = FIELDS.get((table.name, key))
        lacking = _unable(readers, field.since, row.gone if row else "")
        if lacking is not None and row is not None:
            # An empty field says nothing, yet a runtime that does not know its name refuses the file: it just goes.
            if found or (field.even_empty and found is not None):
                change = f"gone in CDI {row.gone}" if _reads(lacking, field.since) else f"new in CDI {field.since}"
                gaps.append(Gap(at, (table.name, key), f"{change}, and so nothing for {lacking}", row.drop(value)))
            continue
        if isinstance(field.type, model.FieldTable) and found:
            if field.many:
                found = [_fit(item, field.type, f"{at}/{index}", readers, gaps) for index, item in enumerate(found)]
            else:
                found = _fit(found, field.type, at, readers, gaps)
                if not found and not field.required:
                    continue  # all that was in it is gone
        kept[key] = found
    return kept


def _told(gaps: Sequence[Gap], may_drop: bool, verdict: str) -> list[str]:
    """One line for each field and reader, however many devices have it."""
    pointers: dict[tuple[tuple[str, str], str], list[str]] = {}
    for gap in gaps:
        if gap.may_drop == may_drop:
            pointers.setdefault((gap.field, gap.text), []).append(gap.pointer)
    return [
        f"{found[0]}{f' and {len(found) - 1} more' if found[1:] else ''}: {text}; {verdict}: {FIELDS[field].why}"
        for (field, text), found in pointers.items()
    ]


def _does_something(edits: dict[str, Any]) -> bool:
    """What the reference library asks of a device's edits (container-edits.go, isEmpty)."""
    return any(edits.values()) or edits.get("intelRdt") is not None


def _unable(readers: Sequence[SpecReader], since: str, gone: str = "") -> Optional[SpecReader]:
    """Of the readers that lack what came with `since` and went with `gone` the one that reads least, or None."""
    lacking = [reader for reader in readers if not _reads(reader, since) or (gone and _reads(reader, gone))]
    return min(lacking, key=lambda reader: model.VERSIONS.index(reader.reads), default=None)


def _reads(reader: SpecReader, version: str) -> bool:
    return model.VERSIONS.index(reader.reads) >= model.VERSIONS.index(version)
