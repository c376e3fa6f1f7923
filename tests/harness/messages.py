# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect from plugins/ the messages that the code can say: the texts of errors and warnings, as templates.

messages.py          print each template with its file and line, and the id of the page that explains it
messages.py --open   only those that no page explains

A template is the text of a message with VARIES for all that varies. The AST gives it: f-strings, text in pieces, both
branches of a condition; constants, variables and functions of the same file are looked up. What counts as a message:

- the text of a call of an exception that users see: CdiError, HookError, Ansible's errors, and their subclasses;
- a text that goes into a list named in LISTS, by append, extend, += or as an argument;
- the text of a call in SAID.

A template passes on another message if nothing but a short prefix is its own: at most PREFIX words in front of colons,
as in `claim {id}: {error}`. The message that it passes on has the page.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Optional

CHECKOUT = Path(__file__).resolve().parents[2]
PLUGINS = CHECKOUT / "plugins"
VARIES = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}"
BASES = {"CdiError", "HookError", "AnsibleError", "AnsibleFilterError", "AnsibleActionFail", "Finding"}
INNER = {"Finding"}  # has a page for its rule
LISTS = {"warnings", "trouble", "lacking", "notes"}
SAID = {"complain", "warning"}
PREFIX = 3
NAME = rf"(?:(?!(?:is|was|found|can't|asked|exit|status)\b)[\w`'./-]|{VARIES})+"  # a word of a prefix is not a verb
MOST = 16  # variants of one text, by conditions in it
DEPTH = 2  # of variables and functions that are looked up in their file
Names = dict[str, list[ast.expr]]


class Message(NamedTuple):
    """The template of a message, and the place that says it."""

    path: str
    line: int
    text: str

    @property
    def passes_on(self) -> bool:
        """Tell whether it only passes on another message: prefixes that end in colons, then what varies."""
        return (
            bool(re.fullmatch(rf"(\W*{NAME}( {NAME})*\W*(:|; then)\s)*(\w+ )?\W*", self.text))
            and len(self.words) <= PREFIX
        )

    @property
    def words(self) -> list[str]:
        """Return its constant words."""
        return re.findall(r"\w+", self.text.replace(VARIES, " "))


@functools.cache
def messages() -> list[Message]:
    """Return every message of plugins/, in the order of files and lines."""
    trees = _trees()
    kinds = _exceptions(trees.values()) - INNER
    found: dict[Message, None] = {}
    for path, tree in trees.items():
        known = _functions(tree)
        for scope, names in _scopes(tree):
            for line, expression in _spoken(scope, kinds):
                for text in _templates(expression, {**known, **names}):
                    if " " in text.replace(VARIES, "").strip() and re.search("[A-Za-z]", text.replace(VARIES, "")):
                        found[Message(str(path.relative_to(CHECKOUT)), line, text)] = None
    return list(found)


def every_text() -> set[str]:
    """Return all texts in the code of plugins/ as templates, also those that no message has."""
    found: set[str] = set()
    for tree in _trees().values():
        for node in ast.walk(tree):
            if isinstance(node, (ast.JoinedStr, ast.BinOp)) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            ):
                found.update(_templates(node, {}))
    return found


@functools.cache
def _trees() -> dict[Path, ast.Module]:
    """Return the syntax trees of plugins/, without the explanations themselves."""
    files = (path for path in sorted(PLUGINS.rglob("*.py")) if "explanations" not in path.parts)
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}


def _exceptions(trees: Iterable[ast.AST]) -> set[str]:
    """Return the names of the exceptions that users see."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    kinds = set(BASES)
    while True:
        more = {name for name, of in bases.items() if of & kinds} - kinds
        if not more:
            return kinds
        kinds |= more


def _functions(tree: ast.Module) -> Names:
    """Return what the functions of a file can return, by name, and its constants."""
    found: Names = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = [node.value]
    return found


def _scopes(tree: ast.Module) -> Iterator[tuple[ast.AST, Names]]:
    """Yield each function of a file with what its variables can be; methods, too."""
    for node in tree.body:
        parts = node.body if isinstance(node, ast.ClassDef) else [node]
        for part in parts:
            names: Names = {}
            for inner in ast.walk(part):
                if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
                    names.setdefault(inner.targets[0].id, []).append(inner.value)
            yield part, names


def _spoken(tree: ast.AST, kinds: set[str]) -> Iterator[tuple[int, ast.expr]]:
    """Yield the line of each place that says a message, with the expression of its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            of = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if name in kinds:
                yield node.lineno, max(node.args[:2], key=_own_text, default=ast.Constant(""))
            elif name in SAID and node.args:
                yield node.lineno, node.args[0]
            elif name in ("append", "extend") and of.rpartition(".")[2] in LISTS:
                yield from ((node.lineno, text) for text in _items(node.args[0]))
            for keyword in node.keywords:
                if keyword.arg in LISTS:
                    yield from ((node.lineno, text) for text in _items(keyword.value))
        elif isinstance(node, (ast.AugAssign, ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(ast.unparse(target).rpartition(".")[2] in LISTS for target in targets):
                yield from ((node.lineno, text) for text in _items(node.value))


def _own_text(node: ast.expr) -> int:
    return max(len(text.replace(VARIES, "")) for text in _templates(node, {}))


def _items(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the texts of a list, a tuple, a comprehension, or a condition of those."""
    if isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            yield from _items(item)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield node.elt
    elif isinstance(node, ast.IfExp):
        yield from _items(node.body)
        yield from _items(node.orelse)
    elif isinstance(node, ast.BinOp):
        yield from _items(node.left)
        yield from _items(node.right)
    elif isinstance(node, (ast.JoinedStr, ast.Constant)) or (isinstance(node, ast.Call) and _own_text(node)):
        yield node


def _templates(node: ast.expr, names: Names, depth: int = 0) -> list[str]:
    """Return the texts that an expression can be, with VARIES for unknown parts; `names` has values of names."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "with_id":
        return _templates(node.args[0], names, depth)
    if isinstance(node, ast.Constant):
        return [node.value if isinstance(node.value, str) else VARIES]
    if isinstance(node, ast.IfExp):
        return _templates(node.body, names, depth) + _templates(node.orelse, names, depth)
    parts: Optional[list[ast.expr]] = None
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    if parts is not None:
        every = itertools.product(*(_templates(part, names, depth) for part in parts))
        return ["".join(pieces) for pieces in itertools.islice(every, MOST)]
    name = node.func if isinstance(node, ast.Call) else node
    if isinstance(name, ast.Name) and name.id in names and depth < DEPTH:
        texts = [text for value in names[name.id] for text in _templates(value, names, depth + 1)]
        return list(dict.fromkeys(texts))[:MOST] or [VARIES]
    return [VARIES]


if __name__ == "__main__":
    sys.path.insert(0, str(CHECKOUT / "build/pythonpath"))
    from ansible_collections.fleet.cdi.plugins.module_utils.explanations.every import explanation_for

    for one in messages():
        explained = explanation_for(one.text)
        if "--open" in sys.argv and (explained or one.passes_on):
            continue
        state = explained.id if explained else "passes on" if one.passes_on else "-"
        print(f"{one.path.removeprefix('plugins/')}:{one.line}\t{state}\t{one.text}")
