# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spec files by the ten thousand: from a grammar of good ones, with changes to the document, its text and its bytes.

The same seed yields the same files. A change is a function in one of three tables, most of them named for the rule
that they aim at; what the file then really is, the judge says.
"""

from __future__ import annotations

import copy
import json
import string
from collections.abc import Iterator
from random import Random
from typing import Any, Callable, NamedTuple

import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.spec import model

ALNUM = string.ascii_letters + string.digits
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


class Case(NamedTuple):
    """One file, and what was done to it, for people."""

    made: str
    name: str
    content: bytes


def generate(count: int, seed: int = 1) -> Iterator[Case]:
    """`count` cases."""
    rng = Random(seed)
    for number in range(count):
        yield one(rng, number)


def one(rng: Random, number: int) -> Case:
    """A good spec, in half of the cases changed once or more."""
    spec, made = good_spec(rng), []
    as_yaml = rng.random() < 0.35
    dice = rng.random()
    while dice > 0.5:
        table = rng.choice((DOCUMENT, DOCUMENT, DOCUMENT, ANYWHERE))
        label = rng.choice(list(table))
        spec = table[label](rng, spec) or spec
        made.append(label)
        dice = rng.random()
    text = to_yaml(rng, spec) if as_yaml else to_json(rng, spec)
    if rng.random() < 0.25:
        texts = YAML_TEXT if as_yaml else JSON_TEXT
        label = rng.choice(list(texts))
        text = texts[label](rng, text)
        made.append(label)
    content = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.06:
        label = rng.choice(list(BYTES))
        content = BYTES[label](rng, content)
        made.append(label)
    return Case(f"{number}: {' + '.join(made) or 'good'}", "case.yaml" if as_yaml else "case.json", content)


# A grammar of good specs. What it yields is valid for the reference; some of it only a warning of ours speaks of.


def word(rng: Random, inside: str = "", most: int = 8) -> str:
    """A name: letters and digits at both ends, `inside` too between."""
    between = "".join(rng.choice(ALNUM + inside) for _index in range(rng.randrange(most)))
    return rng.choice(ALNUM) + between + rng.choice(ALNUM)


def path(rng: Random) -> str:
    return "".join(f"/{word(rng, '._-')}" for _index in range(rng.randint(1, 4)))


def text(rng: Random) -> str:
    return rng.choice(
        (
            "",
            "x",
            "a b",
            "1",
            "yes",
            "~",
            "1:0",
            "0x1f",
            "#no",
            "- a",
            "é",
            "😀",
            'say "a"',
            "it's",
            "{a: b}",
            word(rng),
        )
    )


def variables(rng: Random) -> list[str]:
    return [
        f"{name}={text(rng)}" for name in dict.fromkeys(word(rng, "_").upper() for _index in range(rng.randint(1, 3)))
    ]


def some(rng: Random, item: Callable[[], Any], most: int = 2) -> list[Any]:
    return [item() for _index in range(rng.randint(1, most))]


def optional(rng: Random, **fields: Callable[[], Any]) -> dict[str, Any]:
    return {key: make() for key, make in fields.items() if rng.random() < 0.3}


def node(rng: Random, at: int) -> dict[str, Any]:

    def number() -> int:
        return rng.choice((0, 1, 44, 226, 2**31, 2**32 - 1))

    fields = optional(
        rng,
        type=lambda: rng.choice("bcup"),
        major=number,
        minor=number,
        fileMode=lambda: rng.choice((0o660, 0o666, 0)),
        permissions=lambda: rng.choice(("r", "rw", "rwm", "mr", "")),
        uid=number,
        gid=number,
    )
    host = optional(rng, hostPath=lambda: path(rng)) if at >= 2 else {}
    return {"path": path(rng), **fields, **host}


def mount(rng: Random, at: int) -> dict[str, Any]:
    kinds = optional(rng, type=lambda: rng.choice(("none", "bind", "tmpfs", ""))) if at >= 1 else {}
    options = optional(rng, options=lambda: ["ro", "rbind"])
    return {"hostPath": path(rng), "containerPath": path(rng), **options, **kinds}


def hook(rng: Random) -> dict[str, Any]:
    names = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
    fields = optional(
        rng, args=lambda: some(rng, lambda: text(rng)), env=lambda: variables(rng), timeout=lambda: rng.randint(1, 9)
    )
    return {"hookName": rng.choice(names), "path": path(rng), **fields}


def rdt(rng: Random, at: int) -> dict[str, Any]:
    fields = optional(
        rng,
        closID=lambda: rng.choice(("/" if at > 5 else "one", word(rng, "._-"), "")),
        l3CacheSchema=lambda: "L3:0=f;1=f",
        memBwSchema=lambda: "MB:0=50",
    )
    if at >= 7:
        return {
            **fields,
            **optional(rng, schemata=lambda: rng.choice(([], ["L3:0=f"])), enableMonitoring=lambda: rng.random() < 0.5),
        }
    if at < 6:
        return {**fields, **optional(rng, enableCMT=lambda: rng.random() < 0.5, enableMBM=lambda: True)}
    return fields


def edits(rng: Random, at: int) -> dict[str, Any]:
    """The container edits that version number `at` has."""
    found = optional(
        rng,
        env=lambda: variables(rng),
        deviceNodes=lambda: some(rng, lambda: node(rng, at)),
        hooks=lambda: some(rng, lambda: hook(rng)),
        mounts=lambda: some(rng, lambda: mount(rng, at)),
    )
    if at >= 4:
        found.update(
            optional(
                rng, intelRdt=lambda: rdt(rng, at), additionalGids=lambda: some(rng, lambda: rng.randint(1, 2**32 - 1))
            )
        )
    if at >= 7:
        found.update(
            optional(rng, netDevices=lambda: [{"hostInterfaceName": f"eth{n}", "name": f"net{n}"} for n in range(2)])
        )
    return found


def annotations(rng: Random) -> dict[str, str]:
    return {
        rng.choice(("", "a.com/", "x-y.b.org/")) + word(rng, "._-"): text(rng) for _index in range(rng.randint(1, 2))
    }


def good_spec(rng: Random) -> dict[str, Any]:
    """A spec that declares a version which has all that it uses."""
    at = rng.choice((0, 1, 2, 3, 4, 4, 5, 5, 6, 7, 7, 7))
    devices = []
    for number in range(rng.randint(1, 4)):
        name = f"{word(rng, '._:-')}{number}" if at >= 2 else f"d{word(rng, '._:-')}{number}"
        own = edits(rng, at) or {"env": variables(rng)}
        devices.append(
            {
                "name": name,
                "containerEdits": own,
                **(optional(rng, annotations=lambda: annotations(rng)) if at >= 3 else {}),
            }
        )
    vendor = ".".join(rng.choice(string.ascii_letters) + word(rng, "-") for _index in range(rng.randint(1, 3)))
    class_ = rng.choice(string.ascii_letters) + word(rng, "_-." if at >= 3 else "_-")
    spec = {
        "cdiVersion": rng.choice(("", "", "", "v")) + model.VERSIONS[at],
        "kind": f"{vendor}/{class_}",
        "devices": devices,
        **optional(rng, containerEdits=lambda: edits(rng, at)),
        **(optional(rng, annotations=lambda: annotations(rng)) if at >= 3 else {}),
    }
    keys = list(spec)
    rng.shuffle(keys)
    return {key: spec[key] for key in keys}


# Changes to the document, each aimed at a rule.


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
    "permissions": adding(
        "deviceNodes", [{"path": "/a", "permissions": "none"}], [{"path": "/a", "permissions": "rx"}]
    ),
    "environment": adding("env", ["A"], ["=1"], [""]),
    "unique-environment": adding("env", ["A=1", "A=2"]),
    "hook-name": adding("hooks", [{"hookName": "never", "path": "/a"}], [{"hookName": "Prestart", "path": "/a"}]),
    "positive": adding(
        "hooks",
        [{"hookName": "poststop", "path": "/a", "timeout": 0}],
        [{"hookName": "poststop", "path": "/a", "timeout": -1}],
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


# From document to text, and changes to that.


def to_json(rng: Random, spec: Any) -> str:
    return json.dumps(spec, indent=rng.choice((None, None, 1, 2, "\t")), ensure_ascii=rng.random() < 0.1)


def to_yaml(rng: Random, spec: Any) -> str:
    if rng.random() < 0.3 and isinstance(spec, dict) and isinstance(spec.get("devices"), list):
        shared = [
            item["containerEdits"] for item in spec["devices"] if isinstance(item, dict) and "containerEdits" in item
        ]
        for item in spec["devices"]:
            if isinstance(item, dict) and shared and rng.random() < 0.5:
                item["containerEdits"] = shared[0]  # PyYAML makes an alias of it
    dumper = DUMPERS[rng.choice((None, None, '"', "'"))]
    return yaml.dump(
        spec,
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=rng.random() < 0.9,
        width=rng.choice((40, 200)),
        default_flow_style=rng.choice((None, True, False)),
    )


def quoting(style: Any) -> Any:
    """A dumper that writes all text in this style."""

    class Dumper(yaml.CSafeDumper):
        """PyYAML's own would quote numbers too, and tag them."""

    Dumper.add_representer(
        str, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)
    )
    return Dumper


DUMPERS = {style: quoting(style) for style in (None, '"', "'")}


def around(before: str, after: str) -> Callable[[Random, str], str]:
    return lambda _rng, text: before + text + after


def inserting(*parts: str) -> Callable[[Random, str], str]:
    """One of `parts` somewhere."""

    def change(rng: Random, text: str) -> str:
        at = rng.randint(0, len(text))
        return text[:at] + rng.choice(parts) + text[at:]

    return change


def in_string(*parts: str) -> Callable[[Random, str], str]:
    """One of `parts` right after some quotation mark."""

    def change(rng: Random, text: str) -> str:
        at = [index for index, character in enumerate(text) if character == '"'] or [0]
        spot_ = rng.choice(at) + 1
        return text[:spot_] + rng.choice(parts) + text[spot_:]

    return change


def substituting(*pairs: tuple[str, str]) -> Callable[[Random, str], str]:
    """One of these replaced, where it first stands."""

    def change(rng: Random, text: str) -> str:
        old, new = rng.choice([pair for pair in pairs if pair[0] in text] or [("", "")])
        return text.replace(old, new, 1)

    return change


def bomb(rng: Random, text: str) -> str:
    """Annotations of which most come from aliases, more or less."""
    width, depth = rng.choice(((2, 3), (9, 2), (30, 2), (60, 1), (9, 7)))
    lines = ["x0: &x0 [a, b]"] + [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * width)}]" for n in range(1, depth + 1)]
    return "\n".join(lines) + "\n" + text


def shared_variables(rng: Random, _text: str) -> str:
    """A good spec whose devices share their edits by aliases; with many of them all but nothing is written out."""
    count = rng.choice((2, 20, 300, 300))
    devices = "".join(f"- {{name: d{number}, containerEdits: *e}}\n" for number in range(count))
    own = ", ".join(f"A{number}=1" for number in range(rng.choice((1, 30, 100, 100))))
    return (
        f"cdiVersion: 0.3.0\nkind: a.com/gpu\ndevices:\n- {{name: d, containerEdits: &e {{env: [{own}]}}}}\n{devices}"
    )


SPEC_TEXT = """\
cdiVersion: 0.5.0
kind: a.com/gpu
devices:
- name: {name}
  containerEdits:
    deviceNodes:
    - {{path: /dev/a, {fields}}}
"""


def hand_written(rng: Random, _text: str) -> str:
    """YAML as people write it, with scalars that parsers take for all sorts of things."""
    scalars = (
        "0",
        "7",
        "10",
        "01",
        "1_0",
        "0x1f",
        "0b1",
        "0o17",
        "1e3",
        "1.",
        ".5",
        "1.5",
        "+1",
        "-1",
        "1:0",
        "0:1",
        "190:20:30",
        "08",
        "2001-01-01",
        "12e03",
        "0x",
        "0b2",
        "1_",
        ".inf",
        "y",
        "no",
        "On",
        "true",
        "~",
        "a",
        "1a",
        "1.1.0",
        "=",
        "<<",
        "!",
        "0.0",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999",
    )
    field = rng.choice(("major", "uid", "fileMode", "hostPath", "type", "permissions"))
    return SPEC_TEXT.format(name=rng.choice(scalars), fields=f"{field}: {rng.choice(scalars)}")


def merging(rng: Random, _text: str) -> str:
    """A merge key, with and without a key that it overrides."""
    own = rng.choice(("", ", name: b", ", containerEdits: {env: [B=2]}"))
    merged = rng.choice(("*d", "[*d]", "[*d, *d]", "5"))
    devices = f"devices:\n- &d {{name: a, containerEdits: {{env: [A=1]}}}}\n- {{<<: {merged}{own}}}\n"
    return f"cdiVersion: 0.3.0\nkind: a.com/gpu\n{devices}"


def indenting(rng: Random, text: str) -> str:
    """One line moved to the right, to the left or joined with the one before."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    lines[at] = rng.choice((" " + lines[at], "  " + lines[at], "\t" + lines[at], lines[at].lstrip(), lines[at][1:]))
    return "\n".join(lines) if rng.random() < 0.7 else "\n".join(lines[:at]) + " " + "\n".join(lines[at:])


SNIPPETS = (
    *(
        "\n",
        "\n  ",
        "  ",
        "\t",
        " #",
        "# x\n",
        ": ",
        ":",
        "- ",
        "? ",
        "|\n   ",
        ">-\n  ",
        "'",
        '"',
        "\\",
        "\\N",
        "\\\n",
    ),
    *(
        "&a ",
        "*a",
        "<<: ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "!",
        "!!str ",
        "%",
        "@",
        "`",
        "---\n",
        "--- ",
        "...\n",
        "\r",
        "\r\n",
    ),
    *("~", "null", "0", "é", "=", "  - ", "key: ", "\n\n", " \n", "'' ", '"" '),
)
ODD = (
    "\x7f",
    "\x80",
    "\x85",
    "\x9f",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\ufffe",
    "\uffff",
    "\t",
    "\x01",
    "\ud800",
    "\r",
    "é",
)
COMMON_TEXT: dict[str, Callable[[Random, str], str]] = {
    "odd character": inserting(*ODD),
    "odd character in string": in_string(*ODD),
    "escape": in_string(
        "\\/",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\ud800",
        "\\u0000",
        "\\u2028",
        "\\x41",
        "\\e",
        "\\\\/",
        '\\"',
        "\\U0001F600",
    ),
    "punctuation": inserting(*'{}[],:"#&*!|>%@`-? \n'),
    "byte order mark": around("\ufeff", ""),
    "duplicate-key": substituting(
        ('"kind":', '"kind": "b.com/x", "kind":'),
        ('"name":', '"name": "x", "name":'),
        ("kind: ", "kind: b.com/x\nkind: "),
        ('"env":', '"env": [], "env":'),
        ("devices:", "devices: []\ndevices:"),
    ),
    "cut off": lambda rng, text: text[: rng.randrange(len(text) + 1)],
    "spaces": lambda rng, text: (
        rng.choice((" ", "\n", "\r\n", "\t")) + text + rng.choice((" ", "\n\n", "\r\n", "\t", "\n\t"))
    ),
}
JSON_TEXT: dict[str, Callable[[Random, str], str]] = {
    **COMMON_TEXT,
    "json-for-yaml": substituting(
        ('"kind":', '"kind"\n:'),
        ('"name":', '"name"\t:'),
        ('"kind":', '"kind"' + " " * 1100 + ":"),
        ('/"', '\\/"'),
        (":", " :\t"),
    ),
    "long key": substituting(
        ('"devices"', '"annotations": {"' + "k" * 1100 + '": "v"}, "devices"'),
        ('"devices"', '"annotations": {"' + "k" * 800 + '": "v"}, "devices"'),
    ),
    "comment": around("", "\n# the end"),
    "trailing": around("", " {"),
    "trailing comma": substituting(("]", ",]"), ("}", ",}")),
    "yaml": lambda _rng, text: text.replace('"kind"', "kind", 1),
    "numbers": substituting(
        ("true", "True"), (": 0", ": -0"), (": 1", ": 01"), ("44", "0x2c"), ("660", "NaN"), ("1", "1e0")
    ),
}
YAML_TEXT: dict[str, Callable[[Random, str], str]] = {
    **COMMON_TEXT,
    "unquoted": lambda _rng, text: text.replace("'", ""),
    "tags": substituting(
        ("kind: ", "kind: !!str "), ("devices:", "devices: !!seq"), ("name: ", "name: !x "), ("kind: ", "!!str kind: ")
    ),
    "directive": around("%YAML 1.1\n---\n", ""),
    "second document": around("---\n", "---\n{"),
    "garbage": around("", "...\nkind: [\n"),
    "comment": around("# first\n", "# last\n"),
    "yaml-size": shared_variables,
    "yaml-size again": shared_variables,
    "bomb again": bomb,
    "bomb": bomb,
    "hand-written": hand_written,
    "hand-written again": hand_written,
    "merge": merging,
    "question": inserting("?", "? ", "a?b", "?\n "),
    "snippet": inserting(*SNIPPETS),
    "snippets": lambda rng, text: inserting(*SNIPPETS)(rng, inserting(*SNIPPETS)(rng, text)),
    "indented": indenting,
    "key": substituting(
        ("kind: ", "? kind\n: "),
        ("annotations: {", "annotations: {yes: a, "),
        ("annotations:\n", "annotations:\n  5: a\n"),
        ("devices:", "1: 2\ndevices:"),
        ("devices:", "&a devices:"),
    ),
    "json": lambda _rng, text: json.dumps(yaml.safe_load(text), default=str),
}


def splice(rng: Random, content: bytes, part: bytes, instead_of: int = 0) -> bytes:
    """`part` somewhere, in the place of so many bytes."""
    at = rng.randrange(len(content) + 1)
    return content[:at] + part + content[at + instead_of :]


BYTES: dict[str, Callable[[Random, bytes], bytes]] = {
    "utf-16": lambda rng, content: content.decode("utf-8", "replace").encode(
        rng.choice(("utf-16", "utf-16-le", "utf-32"))
    ),
    "a byte": lambda rng, content: splice(rng, content, bytes([rng.randrange(256)]), 1),
    "no utf-8": lambda rng, content: splice(rng, content, rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"))),
    "nul": lambda _rng, content: content + b"\0",
    "empty": lambda rng, _content: rng.choice(
        (b"", b"\n", b"\xef\xbb\xbf", b"null", b"---\n", b"[" * 20000, b"{" * 3000, b'{"a":' * 2000)
    ),
}
