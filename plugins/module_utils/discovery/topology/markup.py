# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""XML that others wrote, read into a small tree that knows its lines.

Nothing is expanded or fetched: a document type that declares anything is refused, since entities are how a few bytes of
XML become gigabytes. hwloc's files name their DTD, which is let pass and never read. Size, depth and the number of
elements are limited.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn
from xml.parsers import expat

from ...records import CdiError

# The XML of a 16-GPU server has 42 KiB, 8 levels below its CPUs and 600 elements; a machine of 1,024 CPUs has 2 MiB.
SIZE = 8 << 20  # bytes
DEPTH = 100
ELEMENTS = 100_000
NEXT = "write the file again with the tool that made it"


class Element(NamedTuple):
    """One element, with the line on which it starts."""

    tag: str
    attributes: dict[str, str]
    children: list[Element]
    text: list[str]  # pieces
    line: int

    def find(self, tag: str) -> list[Element]:
        """Children with this tag."""
        return [child for child in self.children if child.tag == tag]


def parse(content: bytes, name: str) -> Element:
    """Return the root element of the file called `name`. Raises CdiError with the line and the problem."""
    if len(content) > SIZE:
        refuse(name, 0, "the file", f"has more than {SIZE} bytes", "a topology file, which has a few hundred kilobytes")
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    top = Element("", {}, [], [], 0)
    open_ = [top]
    elements = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        elements += 1
        line = parser.CurrentLineNumber
        if len(open_) > DEPTH or elements > ELEMENTS:
            what = f"is more than {DEPTH} levels deep" if len(open_) > DEPTH else f"is one of more than {ELEMENTS}"
            refuse(name, line, f"element <{tag}>", what, "a topology file of one host")
        element = Element(tag, attributes, [], [], line)
        open_[-1].children.append(element)
        open_.append(element)

    def end(_tag: str) -> None:
        open_.pop()

    def text(data: str) -> None:
        open_[-1].text.append(data)

    def doctype(_name: str, _system: object, _public: object, declares: int) -> None:
        if declares:
            refuse(name, parser.CurrentLineNumber, "the DOCTYPE", "declares entities or elements", "none that does")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        refuse(name, error.lineno, "the file", f"is no XML ({expat.ErrorString(error.code)})", "well-formed XML")
    return top.children[0]


def refuse(name: str, line: int, what: str, found: str, expected: str) -> NoReturn:
    """Raise CdiError for the file called `name`; line 0 is the whole of it."""
    where = f", line {line}" if line else ""
    raise CdiError(f"topology file {name}{where}: {what} {found}; expected {expected}; {NEXT}")


def integer(element: Element, attribute: str, name: str, default: int, low: int = 0, high: int = 1 << 31) -> int:
    """The value of an attribute that is a decimal number; `default` where it is missing."""
    text = element.attributes.get(attribute, str(default))
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isdecimal() and digits.isascii() and len(digits) < 12 and low <= int(text) <= high):
        found = f"has {attribute}={text[:40]!r}"
        refuse(name, element.line, f"element <{element.tag}>", found, f"a number from {low} to {high}")
    return int(text)
