# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a spec, as data. Private API of fleet.cdi.

The rules are those of the reference library (pkg/cdi/{spec,device,container-edits}.go and pkg/parser), and stricter
where SPEC.md is
and that library is not: absolute paths, DNS vendor, lengths, a positive timeout, no null.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils.spec import model, names, versions

HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")


class Finding(NamedTuple):
    """One thing that is wrong: where (JSON pointer, RFC 6901), what was found and what was expected."""

    rule: str
    pointer: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: found {self.found}, expected {self.expected} [{self.rule}]"


class Rule(NamedTuple):
    """What a value that has the right JSON type must also be."""

    holds: Callable[[Any], bool]
    expected: str


def _integer(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _list_of(one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(one(item) for item in value)


def _string(value: Any) -> bool:
    return isinstance(value, str)


TYPES = {
    "string": Rule(_string, "a string"),
    "boolean": Rule(lambda value: isinstance(value, bool), "true or false"),
    "int64": Rule(_integer(-(2**63), 2**63 - 1), "an integer"),
    "uint32": Rule(_integer(0, 2**32 - 1), "an integer from 0 to 4294967295"),
    "strings": Rule(_list_of(_string), "a list of strings"),
    "uint32s": Rule(_list_of(_integer(0, 2**32 - 1)), "a list of integers from 0 to 4294967295"),
    "annotations": Rule(
        lambda value: isinstance(value, dict) and all(_string(item) for pair in value.items() for item in pair),
        "an object whose values are strings",
    ),
}

RULES = {
    "not-empty": Rule(bool, "something"),
    "absolute-path": Rule(lambda path: path.startswith("/") and "\0" not in path, "an absolute path"),
    "node-type": Rule(lambda value: value in ("", "b", "c", "u", "p"), "one of b, c, u, p"),
    "permissions": Rule(lambda value: set(value) <= set("rwm"), "any of the letters r, w, m"),
    "environment": Rule(lambda value: all(item.find("=") > 0 for item in value), "NAME=value in every item"),
    "hook-name": Rule(lambda value: value in HOOK_NAMES, "one of " + ", ".join(HOOK_NAMES)),
    "positive": Rule(lambda value: value > 0, "seconds, greater than 0"),
    "clos-id": Rule(
        lambda value: (
            value == "/" or (value not in (".", "..") and len(value) < 4096 and "/" not in value and "\n" not in value)
        ),
        "the name of a directory below /sys/fs/resctrl, or /",
    ),
    "version": Rule(lambda value: value.removeprefix("v") in model.VERSIONS, "one of " + ", ".join(model.VERSIONS)),
    "kind": Rule(
        lambda value: bool(names.VENDOR.match(value.partition("/")[0]) and names.CLASS.match(value.partition("/")[2])),
        f"vendor/class; vendor: {names.VENDOR_RULE}; class: {names.CLASS_RULE}",
    ),
    "device-name": Rule(lambda value: bool(names.DEVICE.match(value)), names.DEVICE_RULE),
    "some-edit": Rule(
        lambda edits: any(
            edits.get(key) or (key == "intelRdt" and key in edits) for key in model.CONTAINER_EDITS.fields
        ),
        "at least one edit: the reference library refuses a device without",
    ),
    "unique-names": Rule(
        lambda devices: 0 < len(devices) == len({device.get("name") for device in devices}),
        "at least one device, and each name once",
    ),
}


def validate(spec: Any) -> list[Finding]:
    """Everything that is wrong with the parsed JSON document `spec`; empty for a valid one. Raises nothing."""
    findings: list[Finding] = []
    _check_object(spec, model.SPEC, "", findings)
    if not findings:
        declared, needed = spec["cdiVersion"].removeprefix("v"), versions.minimum_version(spec)
        if model.VERSIONS.index(declared) < model.VERSIONS.index(needed):
            findings.append(
                Finding("minimum-version", "/cdiVersion", declared, f"at least {needed}, which its content needs")
            )
    return findings


def _check_object(value: Any, table: model.Table, pointer: str, findings: list[Finding]) -> None:
    if not isinstance(value, dict):
        findings.append(Finding("type", pointer, _show(value), f"an object ({table.name})"))
        return
    for key in value:
        if key not in table.fields:
            known = ", ".join(table.fields)
            findings.append(
                Finding("unknown-field", f"{pointer}/{_escape(key)}", "an unknown field", f"one of {known}")
            )
    for key, field in table.fields.items():
        if key in value:
            _check_field(value[key], field, f"{pointer}/{key}", findings)
        elif field.required:
            findings.append(Finding("required", f"{pointer}/{key}", "nothing", "the field, which is required"))


def _check_field(value: Any, field: model.Field, pointer: str, findings: list[Finding]) -> None:
    before = len(findings)
    if isinstance(field.type, str):
        _apply(TYPES[field.type], "type", value, pointer, findings)
    elif not field.many:
        _check_object(value, field.type, pointer, findings)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_object(item, field.type, f"{pointer}/{index}", findings)
    else:
        findings.append(Finding("type", pointer, _show(value), f"a list of objects ({field.type.name})"))
    if field.rule and len(findings) == before:
        _apply(RULES[field.rule], field.rule, value, pointer, findings)


def _apply(rule: Rule, name: str, value: Any, pointer: str, findings: list[Finding]) -> None:
    if not rule.holds(value):
        findings.append(Finding(name, pointer, _show(value), rule.expected))


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _escape(key: Any) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
