# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases of the reference library take the content of Go's structures for a spec, refuse it, or die of it."""

from __future__ import annotations

import re
from typing import Any

from .. import model, names, versions
from ..validate import HOOK_NAMES, RULES
from . import releases
from .document_tree import FileRefused
from .go_decoder import GoDecoder

Names = frozenset[str]  # of releases

NONE: Names = frozenset()
_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+\Z")


class LibraryVerdict:
    """One run over a spec, in the order of (*Spec).validate. `left`: who has not refused it; `dying`: who crashes."""

    def __init__(self, left: Names) -> None:
        self.left = left
        self.dying: Names = NONE

    def refuse(self, who: Names) -> None:
        """Raises FileRefused where nobody is left."""
        self.left -= who
        if not self.left:
            raise FileRefused

    def die(self, who: Names) -> None:
        self.dying |= who & self.left
        self.refuse(who)

    def without(self, column: str) -> Names:
        return self.left - releases.having(self.left, column)

    def version(self, declared: str, spec: dict[str, Any]) -> None:
        self.refuse(self.left - releases.declaring(declared))
        if not _VERSION.match(declared):
            self.refuse(frozenset({releases.NEWER.name}))
        checking = releases.having(self.left, "checks_version")
        if checking and _nulls_counted(spec):
            self.die(checking)
        elif checking and not _new_enough(declared, spec):
            undotted = self.without("dotted_class") & checking  # which don't count a dot in the class
            fits = undotted and _new_enough(declared, {**spec, "kind": ""})
            self.refuse(checking - undotted if fits else checking)

    def kind(self, kind: str) -> None:
        vendor, _slash, class_ = kind.partition("/")
        for part in (vendor, class_):
            if not re.match(names.PART, part):
                self.refuse(self.left)
            if len(part) == 1:
                self.die(self.without("one_letter"))
        if "." in class_:
            self.refuse(self.without("dotted_class"))

    def device(self, device: dict[str, Any], unknown: bool) -> None:
        name, edits = device.get("name", ""), device.get("containerEdits") or {}
        if not re.match(names.DEVICE, name):
            self.refuse(self.left)
        if name[0].isalpha() and len(name) == 1:
            self.die(self.without("any_name"))
        elif not name[0].isalpha():
            self.refuse(self.without("any_name"))
        if not any(edits.values()) and "intelRdt" not in edits:
            self.refuse(self.left - {releases.NEWER.name} if unknown else self.left)
        self.edits(edits)

    def edits(self, edits: dict[str, Any]) -> None:
        self.environment(edits)
        for key, check in (("deviceNodes", self.node), ("hooks", self.hook), ("mounts", self.paths)):
            for item in edits.get(key) or ():
                if item is None:
                    self.die(self.left)
                check(item)
        class_ = (edits.get("intelRdt") or {}).get("closID", "")
        if not RULES["clos-id"].holds(class_):
            self.refuse(self.left)
        if class_ == "/":
            self.refuse(self.without("root_class"))
        devices = edits.get("netDevices") or []
        if None in devices:
            self.die(self.left)
        if not all(device.get(key) for device in devices for key in model.NET_DEVICE.fields):
            self.refuse(self.left)
        if not RULES["unique-interfaces"].holds(devices):
            self.refuse(self.left)

    def environment(self, value: dict[str, Any]) -> None:
        if not RULES["environment"].holds(value.get("env") or ()):
            self.refuse(self.left)

    def node(self, node: dict[str, Any]) -> None:
        permissions = node.get("permissions", "")
        if permissions == "none":
            self.refuse(self.without("no_permissions"))
        elif not RULES["permissions"].holds(permissions):
            self.refuse(self.left)
        if not node.get("path") or not RULES["node-type"].holds(node.get("type", "")):
            self.refuse(self.left)

    def hook(self, hook: dict[str, Any]) -> None:
        if hook.get("hookName") not in HOOK_NAMES or not hook.get("path"):
            self.refuse(self.left)
        self.environment(hook)

    def paths(self, mount: dict[str, Any]) -> None:
        if not mount.get("hostPath") or not mount.get("containerPath"):
            self.refuse(self.left)


def judged(spec: dict[str, Any], decoder: GoDecoder) -> tuple[Names, Names]:
    """(the releases that take `spec`, those that die of it)."""
    verdict, devices = LibraryVerdict(frozenset(decoder.left)), spec.get("devices") or ()
    try:
        verdict.version(spec.get("cdiVersion", ""), spec)
        verdict.kind(spec.get("kind", ""))
        verdict.edits(spec.get("containerEdits") or {})
        seen = set()
        for device in devices:
            verdict.device(device, decoder.unknown)
            if device["name"] in seen:
                return NONE, verdict.dying
            seen.add(device["name"])
    except FileRefused:
        return NONE, verdict.dying
    # One without devices is taken by releases before 1.0.0, for a spec of nothing.
    return (verdict.left if devices else NONE), verdict.dying


def _nulls_counted(spec: dict[str, Any]) -> bool:
    """Whether there is a null where the library looks for the lowest version that fits."""
    last = (spec.get("devices") or [{}])[-1]
    both = [edits for one in (spec, last) for edits in [one.get("containerEdits") or {}]]
    return any(None in (edits.get(key) or ()) for edits in both for key in ("deviceNodes", "mounts"))


def _new_enough(declared: str, spec: dict[str, Any]) -> bool:
    """Whether the file declares a version that its content fits, as the library counts.

    It looks at hostPath and type of the last device alone (tests/conformance/rules.yml, minimum-version).
    """
    declared = declared.removeprefix("v")
    if declared not in model.VERSIONS:
        return declared not in releases.BEFORE  # one that nobody knows yet is newer than all
    devices = [{"name": "", **_without_nulls(device)} for device in spec.get("devices") or ()]
    for device in devices[:-1]:
        edits = device.get("containerEdits") or {}
        for key, lost in (("deviceNodes", "hostPath"), ("mounts", "type")):
            items = edits.get(key) or ()
            edits[key] = [{name: value for name, value in item.items() if name != lost} for item in items]
    needed = versions.minimum_version({"kind": "", **_without_nulls(spec), "devices": devices})
    return model.VERSIONS.index(declared) >= model.VERSIONS.index(needed)


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """A copy of a spec or device without the nulls in the lists of its edits."""
    if "containerEdits" not in value:
        return value
    edits = {
        key: [item for item in found if item is not None] if isinstance(found, list) else found
        for key, found in value["containerEdits"].items()
    }
    return {**value, "containerEdits": edits}
