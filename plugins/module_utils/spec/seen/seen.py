# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each release of the reference library takes a file for, right or wrong: its kind, its devices, their edits.

`codec` and `validate` find the faults of a file; a release may still read it. Here a file is read as the
releases read it (releases.py), so that nobody who writes beside it overlooks it. Three answers are possible: a release
takes the file for a spec, refuses it, or dies of it. What PyYAML and the two YAML parsers of the library may read in
different ways can't count as any of these: such a file is `unclear`.

The library parses every file, .json too, with go-yaml: release 2 before 1.1.1, where the result goes through JSON
into Go's structures, and release 3 from then on, straight into them. Each way is a `Decoder` here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, Callable, NamedTuple, Optional, Union

from ...records import CdiError
from .. import codec, model, names, versions
from ..text import json_subset, yaml_subset
from ..validate import HOOK_NAMES, RULES
from . import releases

Names = frozenset[str]  # of releases

NONE: Names = frozenset()
EVERY: Names = frozenset(releases.BY_NAME)


class TakenSpec(NamedTuple):
    """What some releases take a file for: known fields alone, each of the type that the model says."""

    spec: dict[str, Any]
    by: Names


class Unclear(NamedTuple):
    """A file of which can't be told what it defines."""

    why: str
    text: str = ""  # its content; "" if unknown

    def may_define(self, kind: str) -> bool:
        """Whether it may be a spec of `kind`: YAML can't say a kind without having it in the text, escaped or not."""
        return self._may_have(lambda text: kind in text)

    def may_crash(self, names: Collection[str]) -> bool:
        """Whether one of the releases `names` may die of it.

        All may of a null, most of a vendor or class of one letter, and the oldest of a device's name of one letter.
        """
        dies_of_names = bool(frozenset(names) - releases.having(names, "any_name"))
        return self._may_have(lambda text: dies_of_names or bool(_DEADLY.search(text)))

    def _may_have(self, found: Callable[[str], bool]) -> bool:
        if not self.text or _HIDING.search(self.text):
            return True
        texts = (self.text, _ESCAPE.sub(_unescaped, self.text))
        # Without a version a file is refused before anything else is looked at.
        return any("cdiversion" in text.casefold() for text in texts) and any(map(found, texts))


class Sight(NamedTuple):
    """What the releases make of one file; the others refuse it."""

    taken: tuple[TakenSpec, ...] = ()  # two at most, the one of newer releases first
    crashes: Names = NONE  # these may die of it, with the runtime that has them linked
    unclear: Optional[Unclear] = None

    @property
    def by(self) -> Names:
        """The releases that take it for a spec."""
        return NONE.union(*(one.by for one in self.taken))


class _RefusedError(Exception):
    """No release that reads in this way takes the file."""


class _UnclearError(Exception):
    """Argument: why it can't be told what a release makes of the file."""


class _Plain(NamedTuple):
    """A scalar without quotes: what it is depends on who reads it."""

    text: str


class _Object(NamedTuple):
    """Keys and values in their order, as they stand there."""

    pairs: tuple[tuple[Union[str, _Plain], Any], ...]


# A tag that makes text of base64, or a directive that makes such a tag.
_HIDING = re.compile(r"!!binary|!<|^%TAG|!\S*!", re.MULTILINE)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|\r?\n[ \t]*|.)", re.DOTALL)

# What makes a release crash: null, written out or as an item that is only a dash, an anchor or a tag; a kind with
# a part of one letter, which a path that begins with a slash is not.
_DEADLY = re.compile(
    r"(?i:\bnull\b)|~|^[ \t?:-]*-[ \t]*(?:[&!]\S*[ \t]*)*(?:#.*)?$"
    r"|(?<![\w./-])(?:[A-Za-z]/[A-Za-z]|[A-Za-z][\w.-]*/[A-Za-z](?![\w./-]))",
    re.MULTILINE,
)

# Of go-yaml; the underscores are taken out before. Both releases read octals with and without the letter.
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {
    2: {text: value for text, value in yaml_subset.CONSTANTS.items() if isinstance(value, bool)},
    3: {
        **dict.fromkeys(("true", "True", "TRUE", "y", "Y", "yes", "on"), True),
        **dict.fromkeys(("false", "False", "FALSE", "n", "N", "no", "off"), False),
    },
}
_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+\Z")
_LARGEST = 1 << 63

# go-yaml makes null of a null entry in these, and the library looks into it.
_POINTERS = (model.DEVICE_NODE, model.NET_DEVICE, model.HOOK, model.MOUNT)


def read_sight(content: bytes, path: str, reading: Optional[codec.SpecReading] = None) -> Sight:
    """Return how the releases read the bytes of the file `path`; `reading` is codec's result, if known."""
    if reading is not None and reading.spec is not None and all(one.rule != "null" for one in reading.findings):
        return _valid(reading.spec)  # all releases that take it read the same; of a null it has nothing any more
    try:
        tree = _tree(content, path)
    except _RefusedError:
        return Sight()
    except _UnclearError as error:
        return Sight(unclear=Unclear(str(error), _text(content)))
    taken: list[TakenSpec] = []
    crashes: set[str] = set()
    for decoder in (_Decoder(3), _Decoder(2)):
        try:
            spec = decoder.object(tree, model.SPEC)
            by, dying = _judged(spec, decoder)
        except _RefusedError:
            continue
        except _UnclearError as error:
            return Sight(unclear=Unclear(str(error), _text(content)))
        crashes |= dying
        if by and taken and taken[0].spec == spec:
            taken[0] = TakenSpec(spec, taken[0].by | by)
        elif by:
            taken.append(TakenSpec(spec, by))
    return Sight(tuple(taken), frozenset(crashes))


def _valid(spec: dict[str, Any]) -> Sight:
    """What the releases make of a valid spec: only its version and its fields, empty ones too, can be new to them."""
    by = releases.declaring(spec["cdiVersion"])
    for table, key, in_root_class in {(use.table, use.key, use.value == "/") for use in _fields(spec, model.SPEC)}:
        by &= releases.knowing(table, key)
        if in_root_class:
            by = releases.having(by, "root_class")
    if "." in spec["kind"].partition("/")[2]:
        by = releases.having(by, "dotted_class")
    all_names = (device["name"] for device in spec["devices"])
    odd = next((name for name in all_names if len(name) == 1 or not name[0].isalpha()), "")
    strict = by - releases.having(by, "any_name") if odd else NONE
    taken = (TakenSpec(spec, by - strict),) if by - strict else ()
    return Sight(taken, strict if odd[:1].isalpha() else NONE)


def unknown_field(spec: dict[str, Any], name: str) -> str:
    """The first field of a spec that release `name` does not know, as a JSON pointer; "" if it knows all."""
    return next((use.pointer for use in _fields(spec, model.SPEC) if name not in releases.knowing(*use[:2])), "")


class _Use(NamedTuple):
    """A field where a spec uses it."""

    table: str
    key: str
    value: Any
    pointer: str


def _fields(value: dict[str, Any], table: model.FieldTable, pointer: str = "") -> Iterator[_Use]:
    """Every field in a well-formed object that is not in all releases, or has another rule in some."""
    for key, found in value.items():
        field, at = table.fields[key], f"{pointer}/{key}"
        if field.until or field.since != model.VERSIONS[0] or key == "closID":
            yield _Use(table.name, key, found if key == "closID" else None, at)
        if isinstance(field.type, model.FieldTable) and found:
            items = ((f"{at}/{index}", item) for index, item in enumerate(found)) if field.many else ((at, found),)
            for where, item in items:
                yield from _fields(item, field.type, where)


# -- from bytes to a tree of _Object, list, str (in quotes) and _Plain


def _text(content: bytes) -> str:
    """Return the text of a file, to search for a kind in it."""
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if content.startswith(mark):
            return content[2:].decode(encoding, "replace")
    return content.decode("utf-8", "replace")


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if escape[0] in "xuU" and len(escape) > 1:
        code = int(escape[1:], 16)
        return chr(code) if code < 0x110000 else ""
    return "/" if escape == "/" else "" if escape.lstrip("\r").startswith("\n") else escape


def _tree(content: bytes, path: str) -> Any:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _UnclearError("it is UTF-16, which fleet.cdi does not read and runtimes do")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _RefusedError from None
    try:
        if path.endswith(".json"):
            with suppress(ValueError, RecursionError):  # else it may be YAML
                return _json(text)
        return yaml_subset.load_yaml(text, path, _Document)
    except json_subset.Malformed as error:
        if error.args[0] == "duplicate-key":
            raise _RefusedError from None
        raise _UnclearError(f"{error.args[1]}, expected {error.args[2]}") from None
    except CdiError as error:  # no PyYAML
        raise _UnclearError(str(error)) from None


def _json(text: str) -> Any:
    """The tree of a JSON text. Raises ValueError where it is none, or where YAML parsers read it otherwise."""
    document = json.loads(
        text, object_pairs_hook=_json_object, parse_int=_Plain, parse_float=_Plain, parse_constant=_Plain
    )
    if "\\" in text and json_subset.HALF.search(text):
        raise _RefusedError  # YAML has no surrogates
    if json_subset.not_for_yaml(text):
        raise ValueError
    return document


def _json_object(pairs: list[tuple[str, Any]]) -> _Object:
    if any(len(key) > json_subset.LONGEST_KEY // 6 for key, _value in pairs):
        raise _UnclearError("a key so long that YAML parsers may not see its colon")
    return _object(pairs)


def _object(pairs: Any) -> _Object:
    texts = [key if isinstance(key, str) else key.text for key, _value in pairs]
    if len(set(texts)) < len(texts):
        raise json_subset.Malformed("duplicate-key", "a key twice in one object", "each key once")
    return _Object(tuple(pairs))


class _Document(yaml_subset.YamlReading):
    """YAML as a tree in which scalars are not yet anything."""

    def scalar(self, event: Any) -> Union[str, _Plain]:
        return _Plain(event.value) if event.implicit[0] else str(event.value)

    def object(self, pairs: list[tuple[Any, Any, str]]) -> _Object:
        merged: list[tuple[Any, Any]] = []
        for key, value, written in pairs:
            if written == "<<":
                objects = value if isinstance(value, list) else [value]
                if not all(isinstance(item, _Object) for item in objects):
                    raise json_subset.Malformed("duplicate-key", "a << that is followed by no object", "YAML")
                merged += [pair for item in objects for pair in item.pairs]
            elif isinstance(key, _Plain) and (key.text in _NULLS or _typed(key.text, 2) is not key.text):
                raise json_subset.Malformed("yaml-subset", f"the key {key.text[:60]}", "keys in quotes")
            else:
                merged.append((key, value))
        texts = [key if isinstance(key, str) else key.text for key, _value in merged]
        if len(set(texts)) < len(texts) and "<<" in {written for _key, _value, written in pairs}:
            raise json_subset.Malformed("yaml-subset", "a << and a key that it overrides", "each key once")
        return _object(merged)


def _typed(text: str, yaml: int) -> Any:
    """What a scalar without quotes is to go-yaml 2 or 3: None, True, False, an int, a float or the text itself."""
    if text in _NULLS:
        return None
    booleans = _BOOLEANS[yaml] if yaml == 2 else {word: word[0] in "tT" for word in _CORE}
    if text in booleans:
        return booleans[text]
    digits = text.replace("_", "")
    if text[:1] in "0123456789+-." and _INTEGER.match(digits):
        sign, body = (-1 if digits[0] == "-" else 1), digits.lstrip("+-").lower()
        base = {"0x": 16, "0b": 2, "0o": 8}.get(body[:2], 8 if body[0] == "0" and len(body) > 1 else 10)
        lettered = body[:2] in ("0x", "0b", "0o")
        number = sign * int(body[2:] if lettered else body, base)
        if -_LARGEST <= number < 2 * _LARGEST:
            return number
        return text if lettered else float(digits)
    if text[:1] in "0123456789+-." and _FLOAT.match(digits):
        return float(digits.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


_CORE = ("true", "True", "TRUE", "false", "False", "FALSE")


# -- from a tree to the content of Go's structures


class _Decoder:
    """One run over a tree, as go-yaml 2 with JSON, or go-yaml 3, fills the library's structures.

    `left`: the releases that read in this way and have not refused the file yet. Raises _RefusedError where all have.
    """

    def __init__(self, yaml: int) -> None:
        self.yaml = yaml
        self.left: set[str] = {one.name for one in releases.EVERY if one.yaml == yaml}
        self.unknown = False

    def object(self, value: Any, table: model.FieldTable) -> dict[str, Any]:
        if not isinstance(value, _Object):
            raise _RefusedError
        found: dict[str, Any] = {}
        for key, item in value.pairs:
            known = self.key(key if isinstance(key, str) else key.text, table)
            if not known:
                self.unknown = True
                self.keep(frozenset({releases.NEWER.name}))
                continue
            if known in found:  # in another case: which of the two counts is not worth knowing
                raise _UnclearError(f"the key {known!r} in several spellings")
            self.keep(releases.knowing(table.name, known))
            found[known] = self.field(item, table.fields[known])
        if table is model.DEVICE and found.get("containerEdits") is None:
            found["containerEdits"] = {}
        return {key: found[key] for key in table.fields if found.get(key) is not None}

    def key(self, text: str, table: model.FieldTable) -> str:
        """The field that a key stands for; "" for none. JSON takes it in any case."""
        if text in table.fields or self.yaml == 3:
            return text if text in table.fields else ""
        folded = text.casefold()
        return next((key for key in table.fields if len(key) == len(text) and key.casefold() == folded), "")

    def field(self, value: Any, field: model.Field) -> Any:
        if self.null(value):
            return None
        if not isinstance(field.type, str):
            if not field.many:
                return self.object(value, field.type)
            return list(self.objects(self.list(value), field.type))
        if field.type == "annotations":
            return self.annotations(value)
        if field.type in ("strings", "uint32s"):
            found = [self.scalar(item, field.type[:-1]) for item in self.list(value)]
            if self.yaml == 3:  # leaves null out
                return [item for item in found if item is not None]
            return [(("" if field.type == "strings" else 0) if item is None else item) for item in found]
        return self.scalar(value, field.type)

    def objects(self, items: list[Any], table: model.FieldTable) -> Iterator[Optional[dict[str, Any]]]:
        for item in items:
            if not self.null(item):
                yield self.object(item, table)
            elif table in _POINTERS:
                yield None
            elif self.yaml == 2:
                yield {"containerEdits": {}}  # a device without a name, which is refused after the kind was looked at

    def list(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _RefusedError
        return value

    def annotations(self, value: Any) -> dict[str, str]:
        if not isinstance(value, _Object):
            raise _RefusedError
        texts = ((key if isinstance(key, str) else key.text, self.scalar(item, "string")) for key, item in value.pairs)
        return {key: text or "" for key, text in texts}

    def null(self, value: Any) -> bool:
        return value is None or (isinstance(value, _Plain) and value.text in _NULLS)

    def scalar(self, value: Any, type_: str) -> Any:
        """A scalar as a string, boolean, int64 or uint32; None for null."""
        if isinstance(value, (list, _Object)):
            raise _RefusedError
        if value is True or value is False:  # of JSON
            value = _Plain(str(value).lower())
        if self.null(value):
            return None
        return getattr(self, f"_{type_}")(value)

    def _string(self, value: Union[str, _Plain]) -> str:
        if isinstance(value, str):
            return value
        if self.yaml == 3:
            return value.text
        found = _typed(value.text, 2)
        if isinstance(found, bool):
            return str(found).lower()
        if isinstance(found, int):
            return str(found)
        return _go_float(found) if isinstance(found, float) else value.text

    def _boolean(self, value: Union[str, _Plain]) -> bool:
        text = value if isinstance(value, str) else value.text
        if text not in _BOOLEANS[self.yaml] or (self.yaml == 2 and isinstance(value, str)):
            raise _RefusedError
        return _BOOLEANS[self.yaml][text]

    def _int64(self, value: Union[str, _Plain]) -> int:
        return self.integer(value, -_LARGEST, _LARGEST - 1)

    def _uint32(self, value: Union[str, _Plain]) -> int:
        return self.integer(value, 0, (1 << 32) - 1)

    def integer(self, value: Union[str, _Plain], low: int, high: int) -> int:
        found = _typed(value.text, self.yaml) if isinstance(value, _Plain) else value
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise _RefusedError
        if isinstance(found, float):
            if math.isnan(found) or abs(found) >= 1e15:
                raise _UnclearError(f"the number {value.text if isinstance(value, _Plain) else value}")
            if self.yaml == 2 and (found != int(found) or (not low and str(found) == "-0.0")):
                raise _RefusedError
            found = int(found)
        if not low <= found <= high:
            raise _RefusedError
        return found

    def keep(self, some: Names) -> None:
        self.left &= some
        if not self.left:
            raise _RefusedError


def _go_float(value: float) -> str:
    """A float as Go writes it (strconv.FormatFloat, 'g', shortest)."""
    if not math.isfinite(value):
        return {"inf": "+Inf", "-inf": "-Inf"}.get(str(value), "NaN")
    sign, digits, exponent = "-" if str(value)[0] == "-" else "", "", 0
    mantissa, _e, power = f"{abs(value)!r}".partition("e")
    whole, _point, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0") or "0"
    exponent = (
        int(power or 0) + len(whole) - 1
        if whole != "0"
        else int(power or 0) - (len(fraction) - len(fraction.lstrip("0")) + 1)
    )
    digits = digits.rstrip("0") or "0"
    if digits == "0":
        return f"{sign}0"
    if exponent < -4 or exponent >= 6:
        mark = "-" if exponent < 0 else "+"
        return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{mark}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    padded = digits.ljust(exponent + 1, "0")
    return sign + padded[: exponent + 1] + (f".{padded[exponent + 1 :]}" if padded[exponent + 1 :] else "")


# -- from Go's structures to verdicts


class _Verdict:
    """One run over a spec, in the order of (*Spec).validate. `left`: who has not refused it; `dying`: who crashes."""

    def __init__(self, left: Names) -> None:
        self.left = left
        self.dying: Names = NONE

    def refuse(self, who: Names) -> None:
        """Raises _RefusedError where nobody is left."""
        self.left -= who
        if not self.left:
            raise _RefusedError

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
            if not names.PART.match(part):
                self.refuse(self.left)
            if len(part) == 1:
                self.die(self.without("one_letter"))
        if "." in class_:
            self.refuse(self.without("dotted_class"))

    def device(self, device: dict[str, Any], unknown: bool) -> None:
        name, edits = device.get("name", ""), device.get("containerEdits") or {}
        if not names.DEVICE.match(name):
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


def _judged(spec: dict[str, Any], decoder: _Decoder) -> tuple[Names, Names]:
    """(the releases that take `spec`, those that die of it)."""
    verdict, devices = _Verdict(frozenset(decoder.left)), spec.get("devices") or ()
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
    except _RefusedError:
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
