# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes to a spec as a document, most of them named for the rule that they aim at."""

from __future__ import annotations

import copy
from random import Random
from typing import Any, Callable

from ansible_collections.fleet.cdi.plugins.module_utils.spec import model

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 5, -1, 2**31, 2**32, 2**63, 2**64, 1.0, 1.5, 1e30, -0.0),
    *(
        "",
        "x",
        "5",
        "a=b",
        "=",
        "/",
        "/a",
        ".",
        "..",
        "é",
        "a\nb",
        "\0",
        "\x7f",
        "\u2028",
        "\ufeff",
        "😀",
        "no",
        "null",
        "none",
    ),
    *([], [None], [0], ["a"], [[]], [{}], {}, {"a": 1}, {"path": "/a"}, {"name": None}),
)


def spot(rng: Random, spec: Any) -> dict[str, Any]:
    """The container edits of some device, or of the whole spec, made if need be."""
    own = spec.setdefault("containerEdits", {}) if rng.random() < 0.3 else rng.choice(spec["devices"])["containerEdits"]
    return own if isinstance(own, dict) else {}


def adding(key: str, *values: Any) -> Callable[[Random, Any], None]:
    """Puts one of `values` at `key` of some edits; into the list there, if the value is one."""

    def change(rng: Random, spec: Any) -> None:
        value = copy.deepcopy(rng.choice(values))
        own = spot(rng, spec)
        if isinstance(value, list) and isinstance(own.get(key), list):
            own[key] += value
        elif isinstance(value, dict) and isinstance(own.get(key), dict):
            own[key].update(value)
        else:
            own[key] = value

    return change


def setting(key: str, *values: Any) -> Callable[[Random, Any], None]:
    """Puts one of `values` at `key` of the spec."""

    def change(rng: Random, spec: Any) -> None:
        spec[key] = copy.deepcopy(rng.choice(values))

    return change


def naming(*values: Any) -> Callable[[Random, Any], None]:
    """Gives some device one of these names."""

    def change(rng: Random, spec: Any) -> None:
        rng.choice(spec["devices"])["name"] = rng.choice(values)

    return change


def dropping(rng: Random, spec: Any) -> None:
    target = rng.choice(objects(spec))
    if target:
        del target[rng.choice(list(target))]


def nulling(rng: Random, spec: Any) -> None:
    table = {"kind": model.SPEC, "name": model.DEVICE, "containerPath": model.MOUNT, "hookName": model.HOOK}
    target = rng.choice(objects(spec))
    fields = next((table[key].fields for key in table if key in target), model.CONTAINER_EDITS.fields)
    optional_fields = [key for key, field in fields.items() if not field.required]
    target[rng.choice(optional_fields)] = None


def repeating_name(rng: Random, spec: Any) -> None:
    spec["devices"].append(copy.deepcopy(rng.choice(spec["devices"])))


def emptying(rng: Random, spec: Any) -> None:
    rng.choice(spec["devices"])["containerEdits"] = rng.choice(
        ({}, {"env": []}, {"mounts": [], "env": None}, {"intelRdt": {}})
    )


def respelling(rng: Random, spec: Any) -> None:
    target = rng.choice([spec, *spec["devices"], *(item["containerEdits"] for item in spec["devices"])])
    if target:
        key = rng.choice(list(target))
        target[rng.choice((str(key).upper(), str(key).capitalize(), str(key).replace("k", "\u212a")))] = target.pop(key)


def inventing(rng: Random, spec: Any) -> None:
    keys = ("colour", "a/b", "", "path", "name", "env", "schemata", "enableCMT", "netDevices", "é", "kind", "<<")
    rng.choice(objects(spec))[rng.choice(keys)] = copy.deepcopy(rng.choice(JUNK))


def annotating(*values: dict[str, Any]) -> Callable[[Random, Any], None]:
    def change(rng: Random, spec: Any) -> None:
        rng.choice([spec, *spec["devices"]])["annotations"] = copy.deepcopy(rng.choice(values))
        if rng.random() < 0.8 and str(spec.get("cdiVersion")) < "0.6.0":
            spec["cdiVersion"] = "0.6.0"

    return change


def declaring(version: str, change: Callable[[Random, Any], None]) -> Callable[[Random, Any], None]:
    """The same change in a spec that mostly declares `version`."""

    def both(rng: Random, spec: Any) -> None:
        if rng.random() < 0.8:
            spec["cdiVersion"] = version
        change(rng, spec)

    return both


NEW = (
    {"hostInterfaceName": "a", "name": "b"},
    {"hostInterfaceName": "a", "name": "c"},
    {"hostInterfaceName": "d", "name": "b"},
)
DOCUMENT: dict[str, Callable[[Random, Any], Any]] = {
    "version": setting("cdiVersion", "", "1", "1.0", "1.0.1", "1.2.0", "vv1.0.0", "0.1.0", "v0.2.0", "0.8.1", "1.1.0 "),
    "other version": setting("cdiVersion", *model.VERSIONS),
    "version as number": setting("cdiVersion", 1, 1.0, 0.3),
    "version 1.0.0": setting("cdiVersion", "1.0.0"),
    "semantic-version": setting("cdiVersion", "v0.3.0", "v0.8.0", "v1.1.0"),
    "kind": setting(
        "kind",
        "",
        "/",
        "a",
        "a.com",
        "a.com/",
        "/gpu",
        "a.com/b/c",
        "3m.com/x1",
        "-a.b/cc",
        "a.b-/cc",
        "a b/cc",
        "ab/gerät",
        "é.com/gpu",
        "ab/c\n",
    ),
    "one-letter": setting("kind", "a/gpu", "a.com/g", "a/b", "x/y.z"),
    "vendor-dns": setting(
        "kind", "a_b.com/gpu", "a..com/gpu", f"{'a' * 254}/gpu", f"{'a' * 64}.com/gpu", "a.-b.com/gpu"
    ),
    "class-length": setting("kind", f"a.com/{'b' * 64}", f"a.com/{'b' * 300}"),
    "no-devices": setting("devices", [], None),
    "no-devices again": lambda _rng, spec: spec.pop("devices") and None,
    "unique-names": repeating_name,
    "device-name": naming("", "-a", "a-", "a b", "a/b", "a=b", "ä", "a\n", ".a", "a" * 300, "-"),
    "unquoted": naming(0, 7, 10),
    "unquoted text": adding("hooks", [{"hookName": "prestart", "path": "/a", "args": [1, 2]}]),
    "number as name": naming(1.5, True, 1e3, 2**70, -5),
    "some-edit": emptying,
    "required": dropping,
    "null": nulling,
    "null-item": adding("mounts", [None]),
    "null-item in text": adding("hooks", [{"hookName": "prestart", "path": "/a", "args": [None]}], [None]),
    "null node": adding("deviceNodes", [None]),
    "key-case": respelling,
    "unknown-field": inventing,
    "not-empty": adding("deviceNodes", [{"path": ""}]),
    "not-empty mount": adding(
        "mounts", [{"hostPath": "", "containerPath": "/a"}], [{"hostPath": "/a", "containerPath": ""}]
    ),
    "absolute-path": adding("deviceNodes", [{"path": "dev/null"}]),
    "absolute-source": adding("mounts", [{"hostPath": "a", "containerPath": "/b"}]),
    "node-type": adding("deviceNodes", [{"path": "/a", "type": "x"}], [{"path": "/a", "type": "char"}]),
    "unbuffered-major": adding(
        "deviceNodes", [{"path": "/dev/tty", "type": "u"}], [{"path": "/a", "type": "u", "major": 0, "minor": 1}]
    ),
    "permissions": adding(
        "deviceNodes", [{"path": "/a", "permissions": "none"}], [{"path": "/a", "permissions": "rx"}]
    ),
    "environment": adding("env", ["A"], ["=1"], [""]),
    "unique-environment": adding("env", ["A=1", "A=2"]),
    "hook-name": adding("hooks", [{"hookName": "never", "path": "/a"}], [{"hookName": "Prestart", "path": "/a"}]),
    "positive": adding("hooks", [{"hookName": "poststop", "path": "/a", "timeout": 0}]),
    "not-negative": adding("hooks", [{"hookName": "poststop", "path": "/a", "timeout": -1}]),
    "hook-environment": adding(
        "hooks",
        [{"hookName": "createContainer", "path": "/a"}],
        [{"hookName": "poststop", "path": "/a", "env": []}],
        [{"hookName": "prestart", "path": "/a", "env": None}],
    ),
    "clos-id": declaring(
        "0.7.0", adding("intelRdt", {"closID": "."}, {"closID": "a/b"}, {"closID": "a\n"}, {"closID": "c" * 4096})
    ),
    "long clos-id": declaring("0.7.0", adding("intelRdt", {"closID": "é" * 2000}, {"closID": "é" * 2048})),
    "gid-zero": declaring("0.7.0", adding("additionalGids", [0], [0, 5])),
    "unique-interfaces": declaring(
        "1.1.0",
        adding("netDevices", [NEW[0], NEW[1]], [NEW[0], NEW[2]], [NEW[0], {"hostInterfaceName": "", "name": ""}]),
    ),
    "field-since": declaring("0.8.0", adding("netDevices", [], None, [NEW[0]])),
    "field-since rdt": declaring(
        "0.7.0", adding("intelRdt", {"schemata": None}, {"enableMonitoring": False}, {"schemata": []})
    ),
    "field-until": declaring("1.1.0", adding("intelRdt", {"enableCMT": True})),
    "field-until again": declaring("1.0.0", adding("intelRdt", {"enableMBM": False}, {"enableCMT": None})),
    "unique-interfaces again": declaring("1.1.0", adding("netDevices", [NEW[0], NEW[1]])),
    "root-class again": declaring("0.8.0", adding("intelRdt", {"closID": "/"})),
    "unique-names again": repeating_name,
    "root-class": declaring("0.7.0", adding("intelRdt", {"closID": "/"})),
    "minimum-version": declaring(
        "0.3.0", adding("mounts", [{"hostPath": "/a", "containerPath": "/b", "type": "none"}])
    ),
    "not-every-runtime": declaring("0.7.0", adding("intelRdt", {"enableCMT": True}, {"enableMBM": False})),
    "annotation-keys": annotating(
        {"-a": "b"},
        {"a b": "c"},
        {"a/b/c": "d"},
        {"/a": "b"},
        {"A.com/": "b"},
        {"A_b/c": "d"},
        {"k" * 64: "v"},
        {"": ""},
    ),
    "annotation-size": annotating({"a": "b" * (256 << 10)}),
    "annotation type": annotating({"a": 1}, {"a": None}, {"a": 1.5}, {"a": True}, {"a": ["b"]}),
    "text": adding("env", ["A=\0"]),
    "text in path": adding("deviceNodes", [{"path": "/a\0b"}]),
    "numbers": adding(
        "deviceNodes",
        [{"path": "/a", "major": 1.0}],
        [{"path": "/a", "minor": 1.5}],
        [{"path": "/a", "uid": -1}],
        [{"path": "/a", "fileMode": "0660"}],
        [{"path": "/a", "major": -5}],
    ),
}


def objects(value: Any) -> list[dict[str, Any]]:
    """All objects in a document, itself first."""
    found = [value] if isinstance(value, dict) else []
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += objects(item)
    return found or [{}]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Container and key of every value in a document."""
    pairs = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _item in pairs] + [place for _key, item in pairs for place in places(item)]


def replacing(rng: Random, spec: Any) -> None:
    container, key = rng.choice(places(spec))
    container[key] = copy.deepcopy(rng.choice(JUNK))


def wrapping(rng: Random, spec: Any) -> None:
    container, key = rng.choice(places(spec))
    container[key] = rng.choice(([container[key]], {"name": container[key]}))


def swapping(rng: Random, spec: Any) -> None:
    (one_, key), (other, other_key) = rng.choice(places(spec)), rng.choice(places(spec))
    one_[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(one_[key])


def whole(rng: Random, _spec: Any) -> Any:
    return copy.deepcopy(rng.choice(JUNK))


def guarded(change: Callable[[Random, Any], Any]) -> Callable[[Random, Any], Any]:
    """The same, and nothing where an earlier change left no place for it."""

    def careful(rng: Random, spec: Any) -> Any:
        try:
            return change(rng, spec)
        except (AttributeError, IndexError, KeyError, TypeError):
            return None

    return careful


ANYWHERE: dict[str, Callable[[Random, Any], Any]] = {
    "another value": replacing,
    "wrapped": wrapping,
    "swapped": swapping,
    "another document": lambda rng, spec: whole(rng, spec) if rng.random() < 0.2 else None,
}
for _table in (DOCUMENT, ANYWHERE):
    _table.update({label: guarded(change) for label, change in _table.items()})
