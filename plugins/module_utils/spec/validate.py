# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of a spec, as data.

An error is what some runtime rejects or crashes on: the rules of the reference library (pkg/cdi/{spec,device,
container-edits}.go, pkg/parser, specs-go/version.go), and what its releases don't read alike. A warning is what
SPEC.md forbids and the library takes. tests/conformance/rules.yml lists every rule that refuses more than the
library, with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from ..safe_text import one_line
from . import model, names, versions

ERROR, WARNING = "error", "warning"
ENOUGH = 100  # findings; of a file of garbage nobody reads more
# Stages of hooks that run outside of the container, with the host's programs and root's rights (OCI runtime
# specification, "POSIX-platform Hooks").
OUTSIDE = ("prestart", "createRuntime", "createContainer", "poststart", "poststop")
HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")


class Finding(NamedTuple):
    """One thing that is wrong: where (JSON pointer, RFC 6901), what was found and what was expected."""

    rule: str
    pointer: str
    found: str
    expected: str
    severity: str = ERROR

    def __str__(self) -> str:
        return one_line(f"{self.pointer or '/'}: found {self.found}, expected {self.expected} [{self.rule}]")


class ValueRule(NamedTuple):
    """What a value that has the right JSON type must also be."""

    holds: Callable[[Any], bool]
    expected: str
    severity: str = ERROR


def _unique(values: list[Any]) -> bool:
    return len(set(map(str, values))) == len(values)


def _is_annotation_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(re.match(ANNOTATION, name) and (re.match(names.SUBDOMAIN, prefix) if slash else True))


ANNOTATION = r"(?=.{1,63}\Z)[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z"
UNUSABLE = re.compile("[\0\ud800-\udfff]")

RULES = {
    "not-empty": ValueRule(bool, "something"),
    "absolute-path": ValueRule(lambda path: path[:1] in ("", "/"), "an absolute path", WARNING),
    "absolute-source": ValueRule(
        lambda mounts: all(
            str(mount["hostPath"])[0] == "/" or mount.get("type") not in (None, "", "none", "bind") for mount in mounts
        ),
        "an absolute hostPath in every bind mount",
        WARNING,
    ),
    "node-type": ValueRule(lambda value: value in ("", "b", "c", "u", "p"), "one of b, c, u, p"),
    "unbuffered-major": ValueRule(
        lambda nodes: all(node.get("major") for node in nodes if node.get("type") == "u"),
        "a major in every node of type u: without it no runtime can give the device to a container",
    ),
    "permissions": ValueRule(lambda value: set(value) <= set("rwm"), "any of the letters r, w, m"),
    "environment": ValueRule(lambda value: all(item.find("=") > 0 for item in value), "NAME=value in every item"),
    "unique-environment": ValueRule(
        lambda value: _unique([item.partition("=")[0] for item in value]), "each variable once", WARNING
    ),
    "hook-name": ValueRule(lambda value: value in HOOK_NAMES, "one of " + ", ".join(HOOK_NAMES)),
    "not-negative": ValueRule(lambda value: value >= 0, "seconds, greater than 0"),
    "positive": ValueRule(lambda value: value > 0, "seconds, greater than 0", WARNING),
    "clos-id": ValueRule(
        lambda value: (
            value == "/" or not (value in (".", "..") or "/" in value or "\n" in value or len(value.encode()) >= 4096)
        ),
        "the name of a directory below /sys/fs/resctrl, or /",
    ),
    "gid-zero": ValueRule(lambda value: 0 not in value, "groups other than 0, which is ignored", WARNING),
    "version": ValueRule(
        lambda value: value.removeprefix("v") in model.VERSIONS, "one of " + ", ".join(model.VERSIONS)
    ),
    "semantic-version": ValueRule(
        lambda value: value[:1] != "v", "a version without v: the library of some runtimes refuses a v", WARNING
    ),
    "kind": ValueRule(
        lambda value: all(re.match(names.PART, part) for part in (value.partition("/")[0], value.partition("/")[2])),
        f"vendor/class, each of {names.PART_RULE}",
    ),
    "one-letter": ValueRule(
        lambda value: min(map(len, value.split("/"))) > 1,
        "vendor and class of more than one letter: releases of the reference library before 1.1.1 crash",
    ),
    "vendor-dns": ValueRule(
        lambda value: bool(re.match(names.SUBDOMAIN, value.partition("/")[0])),
        "a vendor that is a DNS subdomain of at most 253 characters",
        WARNING,
    ),
    "class-length": ValueRule(
        lambda value: len(value.partition("/")[2]) <= 63, "a class of at most 63 characters", WARNING
    ),
    "device-name": ValueRule(lambda value: bool(re.match(names.DEVICE, value)), names.DEVICE_RULE),
    "some-edit": ValueRule(
        lambda edits: any(
            edits.get(key) or (field.type is model.INTEL_RDT and edits.get(key) is not None)
            for key, field in model.CONTAINER_EDITS.fields.items()
        ),
        "at least one edit: the reference library refuses a device without, whatever the edits of the whole spec",
    ),
    "no-devices": ValueRule(bool, "at least one device"),
    "unique-names": ValueRule(lambda devices: _unique([device["name"] for device in devices]), "each name once"),
    "unique-interfaces": ValueRule(
        lambda value: all(_unique([item[key] for item in value]) for key in model.NET_DEVICE.fields),
        "each hostInterfaceName and each name once",
    ),
    "annotation-keys": ValueRule(
        lambda value: all(map(_is_annotation_key, value)),
        "keys as Kubernetes has them: an optional DNS subdomain and '/', then up to 63 letters, digits, '-', '_', '.'",
        WARNING,
    ),
    "annotation-size": ValueRule(
        lambda value: sum(len(str(text).encode()) for pair in value.items() for text in pair) <= 256 << 10,
        "keys and values of at most 256 KiB",
        WARNING,
    ),
}

HOOK_ENVIRONMENT = (
    'env with at least one variable, as in ["PATH=/usr/bin:/bin"]: some runtimes (runc before 1.3.0, at '
    "createContainer) give a hook without it the environment of the image, whose LD_PRELOAD then runs on the host"
)
INTEGERS = {"int64": (-(2**63), 2**63 - 1), "uint32": (0, 2**32 - 1)}
LISTS = {"strings": "string", "uint32s": "uint32"}


def hooks_without_environment(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(JSON pointer, hook) of each hook of a well-formed spec that runs outside of the container and has no `env`.

    A runtime may give it the environment of the container, which the author of the image chooses. An empty `env` is
    none: it is not passed on (OCI runtime specification, config.go: omitempty).
    """
    holders = [("", spec), *((f"/devices/{index}", device) for index, device in enumerate(spec["devices"]))]
    for pointer, holder in holders:
        for index, hook in enumerate((holder.get("containerEdits") or {}).get("hooks") or ()):
            if hook["hookName"] in OUTSIDE and not hook.get("env"):
                yield f"{pointer}/containerEdits/hooks/{index}", hook


class _EnoughFoundError(Exception):
    pass


def validate(spec: Any) -> list[Finding]:
    """Return the faults of the parsed document `spec`, at most ENOUGH findings; none for a good one."""
    check = _Check()
    try:
        check.object(spec, model.SPEC, "")
        if not check.errors:
            check.versions(spec)
            check.hooks(spec)
    except _EnoughFoundError:
        pass
    return check.findings


class _Check:
    """One run over a document. What the methods return is the value as the reference reads it."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.errors = 0

    def add(self, rule: str, pointer: str, found: str, expected: str, severity: str = ERROR) -> None:
        self.findings.append(Finding(rule, pointer, found, expected, severity))
        self.errors += severity == ERROR
        if len(self.findings) >= ENOUGH:
            raise _EnoughFoundError

    def object(self, value: Any, table: model.FieldTable, pointer: str) -> None:
        if not isinstance(value, dict):
            rule = "null-item" if value is None and pointer else "type"
            self.add(rule, pointer, _show(value), f"an object ({table.name})")
            return
        for key in value:
            if key not in table.fields:
                self.unknown(str(key), table, pointer)
        for key, field in table.fields.items():
            found = value.get(key)
            if found is not None:
                self.field(found, field, f"{pointer}/{key}")
            elif field.required and field.many:
                self.add("no-devices", f"{pointer}/{key}", "nothing", RULES["no-devices"].expected)
            elif field.required:
                self.add("required", f"{pointer}/{key}", "nothing", "the field, which is required")
            elif key in value:
                self.add("null", f"{pointer}/{key}", "null", "a value, or no such field", WARNING)

    def unknown(self, key: str, table: model.FieldTable, pointer: str) -> None:
        pointer = f"{pointer}/{_escape(key)}"
        for known in table.fields:
            if known.casefold() == key.casefold():
                self.add("key-case", pointer, _show(key), f"{known}, in this spelling")
                return
        self.add("unknown-field", pointer, "an unknown field", "one of " + ", ".join(table.fields))

    def field(self, value: Any, field: model.Field, pointer: str) -> None:
        before = self.errors
        if isinstance(field.type, str):
            value = self.value(value, field.type, pointer)
        elif not field.many:
            self.object(value, field.type, pointer)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self.object(item, field.type, f"{pointer}/{index}")
        else:
            self.add("type", pointer, _show(value), f"a list of objects ({field.type.name})")
        for name in field.rules:
            if self.errors > before:
                return  # what follows may rely on it
            rule = RULES[name]
            if not rule.holds(value):
                self.add(name, pointer, _show(value), rule.expected, rule.severity)

    def value(self, value: Any, type_: str, pointer: str) -> Any:
        if type_ == "string":
            return self.text(value, pointer)
        if type_ in LISTS:
            if isinstance(value, list):
                return [self.value(item, LISTS[type_], f"{pointer}/{index}") for index, item in enumerate(value)]
            self.add("type", pointer, _show(value), "a list")
        elif type_ == "annotations":
            if isinstance(value, dict):
                return {
                    self.key(key, pointer): self.text(text, f"{pointer}/{_escape(key)}") for key, text in value.items()
                }
            self.add("type", pointer, _show(value), "an object")
        elif type_ == "boolean":
            if not isinstance(value, bool):
                self.wrong(value, pointer, "true or false")
        else:
            low, high = INTEGERS[type_]
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                self.wrong(value, pointer, f"an integer from {low} to {high}")
        return value

    def text(self, value: Any, pointer: str) -> str:
        if isinstance(value, str):
            if UNUSABLE.search(value):
                self.add("text", pointer, _show(value), "no NUL and no half of a surrogate pair")
            return value
        # Both parsers of the reference make the same string of these. They differ over 1.50, 1e3, 0x10 and no.
        if value.__class__ is int and -(2**63) <= value < 2**63:  # neither a bool nor an octal of YAML
            self.add("unquoted", pointer, str(value), "a string, in quotes", WARNING)
        else:
            self.wrong(value, pointer, "a string, in quotes")
        return str(value)

    def key(self, key: Any, pointer: str) -> str:
        if not isinstance(key, str) or UNUSABLE.search(key):
            self.wrong(key, pointer, "keys that are strings")
        return str(key)

    def wrong(self, value: Any, pointer: str, expected: str) -> None:
        self.add("type" if value is not None else "null-item", pointer, _show(value), expected)

    def hooks(self, spec: dict[str, Any]) -> None:
        for pointer, hook in hooks_without_environment(spec):
            found = f"a {hook['hookName']} hook without env ({_show(hook['path'])})"
            self.add("hook-environment", pointer, found, HOOK_ENVIRONMENT, WARNING)

    def versions(self, spec: dict[str, Any]) -> None:
        declared = spec["cdiVersion"].removeprefix("v")
        at, old = model.VERSIONS.index(declared), model.VERSIONS.index(model.LAST_OF_OLD_LIBRARIES)
        found = f"it in a spec of {declared}"
        used = list(versions.uses(spec))
        for use in used:
            since, until = model.VERSIONS.index(use.field.since), use.field.until
            if since > old and at < since:
                self.add("field-since", use.pointer, found, f"cdiVersion {use.field.since}, or no such field")
            elif until and at >= model.VERSIONS.index(until):
                self.add("field-until", use.pointer, found, f"a cdiVersion before {until}, or no such field")
            elif until:
                expected = "no such field: runtimes with the newest library refuse it in any spec"
                self.add("not-every-runtime", use.pointer, found, expected, WARNING)
            elif at < since and not use.counts:
                expected = f"no such field: it says nothing, and libraries from before CDI {use.field.since} refuse it"
                self.add("not-every-runtime", use.pointer, found, expected, WARNING)
            elif use.field.type is model.INTEL_RDT and use.value and use.value.get("closID") == "/" and at <= old:
                expected = "cdiVersion 1.1.0, or another class: libraries of 0.8 refuse the root class"
                self.add("root-class", f"{use.pointer}/closID", found, expected)
        needed = versions.minimum_version(spec, used)
        if at < model.VERSIONS.index(needed):
            self.add("minimum-version", "/cdiVersion", declared, f"at least {needed}, which its content needs")
        elif old < at < len(model.VERSIONS) - 1:
            expected = f"{needed}, which its content fits: runtimes with a library of 0.8 refuse {declared}"
            self.add("not-every-runtime", "/cdiVersion", declared, expected, WARNING)


def _show(value: Any) -> str:
    """A value in the words of JSON, on one short line."""
    if isinstance(value, (dict, list)):
        return ("an object" if isinstance(value, dict) else "a list") + f" of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value if not isinstance(value, str) else value[:60])
    return text if len(text) <= 60 else text[:57] + "..."


def _escape(key: Any) -> str:
    return str(key)[:200].replace("~", "~0").replace("/", "~1")
