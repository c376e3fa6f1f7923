# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the diff that a module returns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Optional

from .change import Change

FORGOTTEN = "is gone already; fleet.cdi forgets that it wrote it\n"
TAKEN_OVER = "has the wanted content already; fleet.cdi takes it over\n"  # its record was lost
CORRECTED = "has the wanted content already; its owner, its mode or its record is corrected\n"


def diff(name: str, before: Any, after: Any) -> dict[str, Any]:
    """Return one part of a diff. Of a file that is in neither state only the record of it changes."""
    if before == after == "":
        return prepared(name, FORGOTTEN)
    return {"before_header": name, "after_header": name, "before": before, "after": after}


def prepared(name: str, told: str) -> dict[str, Any]:
    """Return one part of a diff as a text."""
    return {"before_header": name, "after_header": name, "prepared": told}


def of_file(change: Change, show: Callable[[Optional[bytes]], Any]) -> dict[str, Any]:
    """Return the diff of a file whose content looks as `show` returns it."""
    if change.before is not None and change.before == change.after:
        return prepared(change.path, TAKEN_OVER if change.ours else CORRECTED)
    return diff(change.path, show(change.before), show(change.after))


def text(change: Change) -> dict[str, Any]:
    """Return the diff of a text file."""
    return of_file(change, lambda content: (content or b"").decode(errors="replace"))


def document(change: Change) -> dict[str, Any]:
    """Return the diff of a JSON file."""
    return of_file(change, parsed)


def parsed(content: Optional[bytes]) -> Any:
    """Return the JSON document in a file, its text if it is not JSON, or "" for no file."""
    try:
        return json.loads(content) if content else ""
    except (ValueError, RecursionError):
        return (content or b"").decode(errors="replace")


def units(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the diff of the state of units (a record) in systemd; [] if it stays the same."""
    return [] if before == after else [diff("systemd", before._asdict(), after._asdict())]


NAMED = 10  # devices that a short diff names, for each of what was added, removed and changed


def brief(part: dict[str, Any]) -> dict[str, Any]:
    """Shorten `part` to a line for each kind: "fleet.cdi/tty: + tty61, - tty60, ~ tty3: deviceNodes (PATH)".

    Only parts about devices, of a spec or of an inventory, are shortened so, and the texts of programs that come or go
    with a release; the others are short.
    """
    sides = [part.get(side) for side in ("before", "after")]
    releases = [side for side in sides if isinstance(side, dict) and isinstance(side.get("launchers"), dict)]
    if len(releases) == 2:
        return {**part, "before": _counted(*releases), "after": _counted(*reversed(releases))}
    if not any(isinstance(side, dict) and isinstance(side.get("devices"), list) for side in sides):
        return part
    before, after = map(_by_kind, sides)
    path = part["after_header"]
    lines = []
    for kind in dict.fromkeys((*before, *after)):
        changes = list(_changes(before.get(kind, {}), after.get(kind, {})))
        lines += [f"{kind}: {', '.join(changes)} ({path})"] if changes else []
    text = "\n".join(lines or [f"only how it is written ({path})"])
    return prepared(path, f"{text}\n")


def _counted(release: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a release with the number of lines of each program that the other state does not have."""
    launchers = {
        name: lines if name in other["launchers"] else f"lines: {len(lines)}"
        for name, lines in release["launchers"].items()
    }
    return {**release, "launchers": launchers}


def _by_kind(document: Any) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return kind -> name of each device -> its fields; the name "" has what a spec holds besides its devices.

    A file of another tool may hold anything: entries that are not devices of a kind are left out.
    """
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    if not isinstance(document, dict):
        return found
    if isinstance(document.get("kind"), str):
        rest = {key: value for key, value in document.items() if key not in ("devices", "kind", "containerEdits")}
        found[document["kind"]] = {"": {**rest, **_mapping(document.get("containerEdits"))}}
    devices = document.get("devices")
    for device in filter(None, map(_mapping, devices if isinstance(devices, list) else ())):
        kind = document.get("kind") or device.get("kind")
        name = device.get("name") or _first(device.get("names"), device.get("id"))
        found.setdefault(str(kind), {})[str(name)] = _mapping(device.get("containerEdits", device))
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _changes(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the differences: names with +, - and ~, and the changed keys of the whole spec."""
    yield from _named("+", [name for name in after if name and name not in before])
    yield from _named("-", [name for name in before if name and name not in after])
    differ = {name: _keys(before[name], after[name]) for name in after if name in before}
    yield from _named("~", [f"{name}: {keys}" for name, keys in differ.items() if name and keys])
    if differ.get(""):
        yield f"~ whole spec: {differ['']}"


def _named(sign: str, names: Sequence[str]) -> Iterator[str]:
    yield from (f"{sign} {name}" for name in names[:NAMED])
    if len(names) > NAMED:
        yield f"{sign} {len(names) - NAMED} more"


def _keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return " and ".join(key for key in dict.fromkeys((*before, *after)) if before.get(key) != after.get(key))


def _first(names: Any, otherwise: Any) -> Any:
    return names[0] if isinstance(names, list) and names else otherwise
