# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each release of the reference library takes a file for, right or wrong: its kind, its devices, their edits.

`codec` and `validate` find the faults of a file; a release may still read it. Here a file is read as the
releases read it (releases.py), so that nobody who writes beside it overlooks it. Three answers are possible: a release
takes the file for a spec, refuses it, or dies of it. What PyYAML and the two YAML parsers of the library may read in
different ways can't count as any of these: such a file is `unclear`.

The library parses every file, .json too, with go-yaml: release 2 before 1.1.1, where the result goes through JSON
into Go's structures, and release 3 from then on, straight into them. The way of a file: document_tree.py, go_decoder.py
(one run for each way), verdict.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Callable, NamedTuple, Optional

from .. import codec, model
from . import releases
from .document_tree import FileRefused, FileUnclear, read_tree
from .go_decoder import GoDecoder
from .verdict import NONE, Names, judged

EVERY: Names = frozenset(releases.BY_NAME)


class TakenSpec(NamedTuple):
    """What some releases take a file for: known fields alone, each of the type that the model says."""

    spec: dict[str, Any]
    by: Names


class Unclear(NamedTuple):
    """A file of which can't be told what it defines."""

    why: str
    text: str = ""  # its content, each line ended by \n; "" if unknown

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


# What ends a line of YAML besides \n. An escaped end of a line joins the text before and after it.
_BREAK = re.compile("\r\n?|[\x85\u2028\u2029]")

# A tag that may make text of base64, which !!str does not, or a directive that gives tags another meaning.
_HIDING = re.compile(r"!<|%TAG|!(?!!str[ \t])\S*!")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|\n[ \t]*|.)", re.DOTALL)

# What makes a release crash: null, written out or as an item that is only a dash, an anchor or a tag; a kind with
# a part of one letter, which a path that begins with a slash is not. No text may match a part of it in two ways: the
# time to search a file of others has to grow with its length and no faster.
_DEADLY = re.compile(
    r"(?i:\bnull\b)|~|^[ \t?:-]*-[ \t]*(?:[&!]\S*[ \t]+)*(?:[&!]\S*|#.*)?$"
    r"|(?<![\w./-])(?:[A-Za-z]/[A-Za-z]|[A-Za-z][\w.-]*/[A-Za-z](?![\w./-]))",
    re.MULTILINE,
)


def read_sight(content: bytes, path: str, reading: Optional[codec.SpecReading] = None) -> Sight:
    """Return how the releases read the bytes of the file `path`; `reading` is codec's result, if known."""
    if reading is not None and reading.spec is not None:
        return _valid(reading.spec, (one.pointer for one in reading.findings if one.rule == "null"))
    try:
        tree = read_tree(content, path)
    except FileRefused:
        return Sight()
    except FileUnclear as error:
        return Sight(unclear=Unclear(str(error), _text(content)))
    taken: list[TakenSpec] = []
    crashes: set[str] = set()
    for decoder in (GoDecoder(3), GoDecoder(2)):
        try:
            spec = decoder.object(tree, model.SPEC)
            by, dying = judged(spec, decoder)
        except FileRefused:
            continue
        except FileUnclear as error:
            return Sight(unclear=Unclear(str(error), _text(content)))
        crashes |= dying
        if by and taken and taken[0].spec == spec:
            taken[0] = TakenSpec(spec, taken[0].by | by)
        elif by:
            taken.append(TakenSpec(spec, by))
    return Sight(tuple(taken), frozenset(crashes))


def _valid(spec: dict[str, Any], nulls: Iterable[str]) -> Sight:
    """What the releases make of a valid spec: all that take it read the same.

    Only its version and its fields can be new to them, empty ones too, and `nulls`, as in unknown_field.
    """
    by = releases.declaring(spec["cdiVersion"])
    fields = {(use.table, use.key, use.value == "/") for use in _fields(spec, model.SPEC)}
    for table, key, in_root_class in fields.union((*_null_field(one)[:2], False) for one in nulls):
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


def unknown_field(spec: dict[str, Any], name: str, nulls: Iterable[str] = ()) -> str:
    """The first field of a spec that release `name` does not know, as a JSON pointer; "" if it knows all.

    `nulls`: the pointers of the fields of the file that are null, which `spec` lacks.
    """
    named = [*((*use[:2], use.pointer) for use in _fields(spec, model.SPEC)), *map(_null_field, nulls)]
    return next((pointer for table, key, pointer in named if name not in releases.knowing(table, key)), "")


def _null_field(pointer: str) -> tuple[str, str, str]:
    """Return (table, key, pointer) of the field at `pointer`."""
    table, (*parents, key) = model.SPEC, pointer.split("/")[1:]
    for parent in parents:
        if not parent.isdigit() and isinstance(below := table.fields[parent].type, model.FieldTable):
            table = below
    return table.name, key, pointer


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


def _text(content: bytes) -> str:
    """Return the text of a file, to search for a kind in it."""
    marks = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
    encoding = marks.get(content[:2])
    text = content[2:].decode(encoding, "replace") if encoding else content.decode("utf-8", "replace")
    return _BREAK.sub("\n", text)


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if escape[0] in "xuU" and len(escape) > 1:
        code = int(escape[1:], 16)
        return chr(code) if code < 0x110000 else ""
    return "" if escape.startswith("\n") else escape
