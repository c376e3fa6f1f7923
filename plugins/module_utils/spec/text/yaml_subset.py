# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML as all releases of the CDI reference library read it, in bounded time and memory.

The library's older releases parse with go-yaml 2, the newer ones with go-yaml 3. Here PyYAML parses, and what its
events mean is said by the few rules below, because PyYAML's own ("1:0" is sixty) differ. What the two
libraries read differently has no meaning here, and is refused.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Optional

from ...records import CdiError
from .json_subset import Malformed, unique, unreadable

DEPTH = 32  # a spec has seven levels
# In characters: as many as `files.read` reads at most; a minute's worth where PyYAML has no libyaml.
LENGTH, LENGTH_WITHOUT_LIBYAML = 16 << 20, 4 << 20
# Of 10,000 devices, each with three nodes, three mounts with options and two hooks, there are 950,000 in 10 MB of text.
# As many as are allowed take 2 s and 170 MB.
NODES = 1_500_000
# go-yaml refuses a document of which 99 % come from aliases, and counts a little differently.
ALIASED = 0.95

CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((word for true in ("y", "yes", "true", "on") for word in (true, true.title(), true.upper())), True),
    **dict.fromkeys(
        (word for false in ("n", "no", "false", "off") for word in (false, false.title(), false.upper())), False
    ),
}
INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,18})\Z")
NUMERIC = frozenset("+-.0123456789")  # what all of these start with
OCTAL = re.compile(r"0o?([0-7]{1,22})\Z")  # 64 bits at most, as INTEGER
# Without the underscores, which may stand anywhere but at the start, also in "0_xB80" (go-yaml 2, resolve.go).
NUMBER = re.compile(
    r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|\.[0-9]+([eE][-+]?[0-9]+)?"
    r"|[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))\Z|\.(nan|NaN|NAN)\Z"
)


# A directive; an escape that go-yaml doesn't know.
STRANGE = re.compile(r"^%|\\/", re.MULTILINE)


class Octal(int):
    """An integer as modes are written. Where a string is wanted, the two libraries read different ones."""


class Number(float):
    """A number in any other notation than JSON's integers: no field takes one, as a string it has two readings."""

    def __new__(cls, text: str) -> Number:
        number = super().__new__(cls)
        number.text = text
        return number

    text: str

    def __repr__(self) -> str:
        return self.text


class _Anchor:
    """What an anchor stands for. As in go-yaml it is known from where its node begins, and complete where that ends."""

    value: Any = None
    nodes: Optional[int] = None  # how many values are in it; None before its node ends


def load_yaml(text: str, path: str, document: Optional[type[YamlReading]] = None) -> Any:
    """The first document in `text`, made of values by `document` (Document if None).

    Raises Malformed for invalid or ambiguous YAML, CdiError without PyYAML.
    """
    if sys.flags.no_site:
        import site

        site.main()  # an executable and `fleet-cdi claim` start without site-packages, where PyYAML is
    try:
        import yaml
    except ImportError:
        raise CdiError(f"{path}: is YAML, and this Python has no PyYAML; install the package python3-yaml") from None
    longest = LENGTH if hasattr(yaml, "CSafeLoader") else LENGTH_WITHOUT_LIBYAML
    if len(text) > longest:
        raise Malformed("yaml-size", f"{len(text)} characters", f"at most {longest}, or JSON")
    strange = STRANGE.search(text) or unreadable(text)
    if strange:
        raise Malformed("yaml-subset", repr(strange[0]), "YAML without directives, the escape \\/ and odd line breaks")
    try:
        return (document or YamlReading)(yaml, text).load()
    except Malformed:
        raise
    except (yaml.YAMLError, OverflowError, ValueError) as error:  # without libyaml, an escape such as \UFFFFFFFF
        if "nesting depth" in str(error):  # PyYAML 6.0.4: libyaml's scanner ends before it reports the first levels
            raise too_deep() from None
        raise Malformed("yaml", f"no YAML ({' '.join(str(error).split())[:300]})", "YAML") from None


def too_deep() -> Malformed:
    """Return the error for a document with too many levels."""
    return Malformed("yaml-size", f"more than {DEPTH} levels", f"at most {DEPTH}; a spec has seven")


def plain(text: str) -> Any:
    """What an unquoted scalar is."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if text[0] not in NUMERIC:  # most texts: spares them three patterns
        return text
    if INTEGER.match(text):
        return int(text)
    octal = OCTAL.match(text)
    if octal:
        return Octal(octal[1], 8)
    return Number(text) if NUMBER.match(text.replace("_", "")) else text


class YamlReading:
    """One run over the events of a text; `nodes` counts values and keys with all that aliases repeat."""

    def __init__(self, yaml: Any, text: str) -> None:
        self.yaml = yaml
        self.events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self.anchors: dict[str, _Anchor] = {}
        self.nodes = self.aliased = 0
        self.flow = 0  # how many braces and brackets we are in

    def load(self) -> Any:
        next(self.events)  # the start of the stream
        if isinstance(next(self.events), self.yaml.StreamEndEvent):
            return None
        value = self.node(next(self.events), 0)
        next(self.events)  # the end of the document: its last tokens must be well-formed
        if isinstance(next(self.events), self.yaml.DocumentStartEvent):
            try:
                next(self.events)
            except self.yaml.YAMLError as error:  # go-yaml 3 looks at one more token, go-yaml 2 does not
                found = f"a second document that does not begin as YAML ({' '.join(str(error).split())[:200]})"
                raise Malformed("yaml-subset", found, "one document") from None
        return value

    def node(self, event: Any, depth: int) -> Any:
        self.count(depth)
        if isinstance(event, self.yaml.AliasEvent):
            return self.alias(event.anchor)
        if event.tag is not None:
            raise Malformed("yaml-subset", f"the tag {event.tag[:60]!r}", "YAML without tags")
        before, anchor = self.nodes, _Anchor()
        if event.anchor:
            self.anchors[event.anchor] = anchor
        if isinstance(event, self.yaml.ScalarEvent):
            if not event.value.isascii() and re.search("[\ud800-\udfff]", event.value):  # without libyaml
                raise Malformed("yaml", "no YAML (an escape of half a character)", "YAML")
            if event.implicit[0] and self.flow and "?" in event.value:  # there it ends a scalar for go-yaml
                raise Malformed("yaml-subset", f"{event.value[:60]!r} within braces", "text with a '?' in quotes")
            value = self.scalar(event)
        else:
            self.flow += bool(event.flow_style)
            is_list = isinstance(event, self.yaml.SequenceStartEvent)
            value = self.sequence(depth + 1) if is_list else self.mapping(depth + 1)
            self.flow -= bool(event.flow_style)
        anchor.value, anchor.nodes = value, self.nodes - before
        return value

    def scalar(self, event: Any) -> Any:
        return plain(event.value) if event.implicit[0] else event.value

    def sequence(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := next(self.events), self.yaml.SequenceEndEvent):
            items.append(self.node(event, depth))
        return items

    def mapping(self, depth: int) -> Any:
        pairs: list[tuple[Any, Any, str]] = []
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            if not isinstance(event, self.yaml.ScalarEvent):
                raise Malformed("yaml-subset", "a key that is not text", "keys that are strings")
            key = self.node(event, depth)
            pairs.append((key, self.node(next(self.events), depth), event.value if event.implicit[0] else ""))
        return self.object(pairs)

    def object(self, pairs: list[tuple[Any, Any, str]]) -> Any:
        """Build a mapping from (key, value, key as written without quotes)."""
        items: list[tuple[str, Any]] = []
        for key, value, written in pairs:
            if written == "<<":
                items += self.merged(value)
            elif isinstance(key, (str, int)) and not isinstance(key, (bool, Octal)):
                items.append((str(key), value))
            else:
                raise Malformed("yaml-subset", f"the key {written[:60]}", "keys in quotes")
        return unique(items)

    def merged(self, value: Any) -> list[tuple[str, Any]]:
        objects = value if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in objects):
            raise Malformed("yaml", "a << that is followed by no object", "YAML")
        return [pair for item in objects for pair in item.items()]

    def alias(self, name: str) -> Any:
        anchor = self.anchors.get(name)
        if anchor is None or anchor.nodes is None:
            raise Malformed("yaml", f"the alias *{name[:60]} with nothing before that it stands for", "YAML")
        self.nodes += anchor.nodes
        self.aliased += anchor.nodes + 1
        if self.aliased > 50 and self.aliased > ALIASED * self.nodes:
            found = f"{self.aliased} of the first {self.nodes} values from aliases"
            raise Malformed("yaml-size", found, "most values written out")
        self.count(0)
        return anchor.value

    def count(self, depth: int) -> None:
        self.nodes += 1
        if depth > DEPTH:
            raise too_deep()
        if self.nodes > NODES:
            raise Malformed("yaml-size", f"more than {NODES} values", f"at most {NODES}, or JSON")
