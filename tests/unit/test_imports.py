# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may import whom: plugins/ against the table in imports.yml. An import in a function or under TYPE_CHECKING counts
like any other, because Ansible ships what a module names, wherever it names it."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
COLLECTION = "ansible_collections.fleet.cdi."
MODULE_UTILS = COLLECTION + "plugins.module_utils"
TABLE = yaml.safe_load((Path(__file__).parent / "imports.yml").read_text())
KNOWN = {*TABLE["rooms"], *TABLE["entry_points"]}


class Import(NamedTuple):
    """One imported module or name, with its full dotted path."""

    line: int
    name: str
    at_top: bool  # as opposed to: inside a function
    relative: bool


def imports(source: str, package: str = "") -> list[Import]:
    """All imports of a source file in `package`, "" where relative imports have no meaning.

    `from a import b` is a.b: which of them is a module doesn't matter to the rules.
    """

    def origin(node: ast.ImportFrom) -> str:
        if not node.level or not package:
            return "." * node.level + (node.module or "")  # as it is written: no file outside of module_utils has one
        parts = package.split(".")
        return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])

    def walk(node: ast.AST, at_top: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(child.lineno, alias.name, at_top, False)
            elif isinstance(child, ast.ImportFrom):
                for alias in child.names:
                    yield Import(child.lineno, f"{origin(child)}.{alias.name}", at_top, bool(child.level))
            yield from walk(
                child, at_top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            )

    return list(walk(ast.parse(source), True))


def room_of(name: str) -> str:
    """The room that a dotted name is in; "" outside of module_utils."""
    inside = name[len(MODULE_UTILS) + 1 :] if name.startswith(MODULE_UTILS + ".") else ""
    return inside.split(".", maxsplit=1)[0]


def complaint(own: str, in_room: bool, item: Import) -> str:
    """What is wrong with one import of a file in `own` (room, entry point or kind of plugin); "" if none."""
    root = item.name.split(".")[0]
    room = room_of(item.name)
    allowed = sorted({*TABLE["leaves"], *TABLE["rooms"].get(own, ())} - {own})
    third_party = root not in {*sys.stdlib_module_names, "ansible_collections"}
    rules = (
        (not root, f"relative import {item.name}: write {COLLECTION}plugins..."),
        (room and room not in KNOWN, f"{room!r} is not a room (tests/unit/imports.yml)"),
        (room in TABLE["entry_points"] and room != own, f"{own} imports {room}, an entry point"),
        (
            room and own in TABLE["rooms"] and room not in {own, *allowed},
            f"room {own} imports room {room}; it may import {', '.join(allowed)}",
        ),
        (in_room and root == "ansible", "imports ansible, which hosts don't have"),
        (
            in_room and root == "ansible_collections" and not room,
            f"imports {item.name}: a room imports only rooms of this collection",
        ),
        (in_room and root in TABLE["slow"], f"imports {root}, which is slow to import"),
        (
            in_room and item.at_top and third_party,
            f"third-party {root} at the top: import it inside the edge function that needs it",
        ),
        (in_room and room and not item.relative, f"{item.name} by its full name: write a relative import"),
    )
    return next((text for broken, text in rules if broken), "")


def wing_of(name: str) -> tuple[str, str]:
    """The room that a dotted name is in, and the folder or file of that room."""
    parts = name[len(MODULE_UTILS) + 1 :].split(".") if name.startswith(MODULE_UTILS + ".") else []
    return (parts[0], parts[1]) if len(parts) > 1 else ("", "")


def upwards(own: tuple[str, str], item: Import) -> str:
    """What is wrong with an import inside a room: it goes to a later wing; "" if it does not."""
    room, wing = wing_of(item.name)
    wings = TABLE["wings"].get(room, [])
    if room != own[0] or wing == own[1] or own[1] not in wings:
        return ""
    before = wings[: wings.index(own[1])]
    allowed = ", ".join(before) or "nothing"
    return "" if wing in before else f"{own[1]} imports {wing}; in {room} it may import {allowed}"


def joined_rooms(own: str, items: list[Import]) -> dict[str, int]:
    """The rooms that an entry point joins, each with the line that does so first."""
    uncounted = tuple(f"{MODULE_UTILS}.{name}" for name in TABLE["uncounted"])
    joined: dict[str, int] = {}
    for item in items:
        room = room_of(item.name)
        if room and room not in {own, *TABLE["leaves"]} and not item.name.startswith(uncounted):
            joined.setdefault(room, item.line)
    return joined


def violations(path: str, source: str) -> list[str]:
    """What the file at `path` (below plugins/, "module_utils/spec/codec.py") does against the rules, one line each."""
    area, _slash, rest = path.partition("/")
    name = Path(path).name
    in_room = area == "module_utils"
    own = rest.split("/")[0].removesuffix(".py") if in_room else area
    if name == "__init__.py":
        return [f"{path}:1: an __init__.py is empty, it never imports its siblings"] if source.strip() else []
    if name in TABLE["nameless"]:
        return [f"{path}:1: no {name}: name it after what it does"]
    if in_room and own not in KNOWN:
        return [f"{path}:1: room {own!r} is not in tests/unit/imports.yml"]
    package = ".".join([COLLECTION + "plugins", *Path(path).parent.parts]) if in_room else ""
    items = imports(source, package)
    complaints = [(item.line, complaint(own, in_room, item)) for item in items]
    wing = (own, Path(rest).parts[1].removesuffix(".py") if in_room and "/" in rest else "")
    complaints += [(item.line, upwards(wing, item)) for item in items if in_room]
    found = [f"{path}:{line}: {text}" for line, text in complaints if text]
    joined = joined_rooms(own, items) if own in TABLE["entry_points"] else {}
    if len(joined) > 1:
        lines = ", ".join(f"{room} (line {line})" for room, line in joined.items())
        found.append(
            f"{path}:{max(joined.values())}: an entry point joins one room, or converge; this one joins {lines}"
        )
    return found


SOURCES = sorted(str(path.relative_to(CHECKOUT / "plugins")) for path in (CHECKOUT / "plugins").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES)
def test_imports(path: str) -> None:
    """Every file of plugins/ keeps the rule."""
    found = violations(path, (CHECKOUT / "plugins" / path).read_text())
    assert not found, "\n" + "\n".join(found)


def folder_sizes() -> dict[str, int]:
    """Folder below module_utils -> how many files it has, not counting __init__.py."""
    files = [Path(path).relative_to("module_utils") for path in SOURCES if path.startswith("module_utils/")]
    return dict(Counter(str(path.parent) for path in files if path.name != "__init__.py"))


def test_no_folder_is_too_large() -> None:
    """A newcomer reads the names of a folder at one glance."""
    sizes = {folder: size for folder, size in folder_sizes().items() if folder not in TABLE["large"]}
    assert {folder: size for folder, size in sizes.items() if size > TABLE["largest"]} == {}
    assert set(TABLE["large"]) <= set(folder_sizes())


def graph() -> dict[str, set[str]]:
    """File of module_utils -> the files that it imports, wherever the import stands."""
    files = [path for path in SOURCES if path.startswith("module_utils/") and not path.endswith("/__init__.py")]
    names = {path: path[len("module_utils/") : -len(".py")].replace("/", ".") for path in files}
    known = set(names.values())
    edges: dict[str, set[str]] = {}
    for path, name in names.items():
        source = (CHECKOUT / "plugins" / path).read_text()
        package = ".".join([COLLECTION + "plugins", *Path(path).parent.parts])
        inside = [item.name[len(MODULE_UTILS) + 1 :] for item in imports(source, package) if room_of(item.name)]
        # An imported name is a file, or is in one.
        edges[name] = {one if one in known else one.rpartition(".")[0] for one in inside} & known
    return edges


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """All groups of files of which each reaches each other one."""
    reach: dict[str, set[str]] = {}
    for name in edges:
        todo, seen = [name], set[str]()
        while todo:
            new = edges[todo.pop()] - seen
            seen |= new
            todo += new
        reach[name] = seen
    groups = {tuple(sorted(two for two in seen if one in reach[two])) for one, seen in reach.items() if one in seen}
    return sorted(list(group) for group in groups)


def test_no_circles() -> None:
    """Files that import each other can't be read one after the other."""
    assert circles(graph()) == []


def test_every_area_is_known() -> None:
    """A new kind of plugin must be put on one side: host or controller."""
    areas = {path.split("/")[0] for path in SOURCES}
    assert areas <= {"module_utils", *TABLE["entry_points"], *TABLE["controller"]}


BAD = yaml.safe_load((Path(__file__).parent / "imports_cases.yml").read_text())


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_the_rule_itself(case: dict[str, str]) -> None:
    """What the checker says of small files: exactly the expected message, or nothing."""
    found = violations(case["path"], case["source"].replace("UTILS", MODULE_UTILS))
    assert "\n".join(found) == case.get("says", "").replace("UTILS", MODULE_UTILS)
