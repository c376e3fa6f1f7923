# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect from plugins/ the messages that the code can say: the texts of errors and warnings, as templates.

messages.py          print each template with its file and line, and the id of the page that explains it
messages.py --open   only those that no page explains

A template is the text of a message with VARIES for all that varies. The AST gives it: f-strings, text in pieces, both
branches of a condition; constants and variables of the same file are looked up, and functions of all files: those of
the same file first, others if only one function of plugins/ has the name. What counts as a message:

- the text of a call of an exception that users see: CdiError, HookError, Ansible's errors, and their subclasses;
- a text that goes into a list named in LISTS, by append, extend, +=, as an argument, or out of a function that another
  file made; and what `answer` of a module returns as its warnings;
- the text of a call in SAID, and those arguments of a call in TOLD that another file makes into a message;
- in roles and playbooks, what the tasks `fail` and `assert` say (jinja.py).

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

import jinja

CHECKOUT = Path(__file__).resolve().parents[2]
PLUGINS = CHECKOUT / "plugins"
VARIES = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}"
BASES = {"CdiError", "HookError", "AnsibleError", "AnsibleFilterError", "AnsibleActionFail", "Finding"}
INNER = {"Finding"}  # has a page for its rule
LISTS = {"warnings", "trouble", "troubles", "lacking", "notes"}
SAID = {"complain", "warning"}
# Call -> the places of its arguments in a message that another file writes; `{}` stands for one.
TOLD = {
    "Wrong": (f"{VARIES}: {{}}; expected {{}}", (1, 2)),
    "HostProblem": ("{}", (1,)),
    "ClaimFault": ("{}; {}", (1, 2)),
}
THROUGH = {"list", "tuple", "filter", "dict.fromkeys", "sorted"}  # give the texts that they get
PREFIX = 3
NAME = rf"(?:(?!(?:is|was|found|can't|asked|exit|status)\b)[\w`'./-]|{VARIES})+"  # a word of a prefix is not a verb
MOST = 64  # variants of one text, by conditions in it
DEPTH = 3  # of variables and functions that are looked up
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
    everywhere = _unique_functions(trees.values())
    for path, tree in trees.items():
        known = {**everywhere, **_functions(tree)}
        for scope, names in _scopes(tree):
            for line, expression in _spoken(scope, kinds, {**known, **names}):
                for text in _templates(expression, {**known, **names}):
                    if " " in text.replace(VARIES, "").strip() and re.search("[A-Za-z]", text.replace(VARIES, "")):
                        found[Message(str(path.relative_to(CHECKOUT)), line, text)] = None
    return [*found, *(Message(*one) for one in jinja.spoken(CHECKOUT, VARIES))]


def every_text() -> set[str]:
    """Return all messages, and all texts in the code of plugins/ as templates, also those that no message has."""
    found = {one.text for one in messages()}
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


def _unique_functions(trees: Iterable[ast.AST]) -> Names:
    """Return what the functions and methods of all files can return, if no other one has their name."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(node)
    return {name: _returned(nodes[0]) for name, nodes in found.items() if len(nodes) == 1}


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    """Return what a function returns or yields, and what it puts into a list of its own that it returns."""
    found = [
        part.value
        for part in ast.walk(function)
        if isinstance(part, (ast.Return, ast.Yield, ast.YieldFrom)) and part.value
    ]
    lists = {part.id for part in found if isinstance(part, ast.Name)}
    for part in ast.walk(function):
        if isinstance(part, (ast.Assign, ast.AugAssign)):
            target = part.targets[0] if isinstance(part, ast.Assign) else part.target
            if isinstance(target, ast.Name) and target.id in lists:
                found.append(part.value)
        elif isinstance(part, ast.Call) and _adds(part) in lists:
            found.append(part.args[0])
    return found


def _adds(node: ast.Call) -> str:
    """Return the name of the list that a call of append or extend changes, without its object; else ""."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend") and node.args:
        return ast.unparse(node.func.value).rpartition(".")[2]
    return ""


def _functions(tree: ast.Module) -> Names:
    """Return what the functions of a file can return, by name, and its constants."""
    found: Names = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = _returned(node)
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


def _spoken(tree: ast.AST, kinds: set[str], names: Names) -> Iterator[tuple[int, ast.expr]]:
    """Yield the line of each place that says a message, with the expression of its text."""
    is_answer = isinstance(tree, ast.FunctionDef) and tree.name == "answer"
    for node in ast.walk(tree):
        told: list[ast.expr] = []
        if isinstance(node, ast.Call):
            yield from ((node.lineno, text) for text in _said(node, kinds))
            told = [keyword.value for keyword in node.keywords if keyword.arg in LISTS]
            told += node.args[:1] if _adds(node) in LISTS else []
        elif isinstance(node, (ast.AugAssign, ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            told = [node.value] if any(_name(target) in LISTS for target in targets) else []
        elif is_answer and isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            told = node.value.elts[1:]
        yield from ((getattr(node, "lineno", 0), text) for value in told for text in _items(value, names))


def _said(node: ast.Call, kinds: set[str]) -> Iterator[ast.expr]:
    """Yield the text that a call says: of an exception, or of a call in SAID or TOLD."""
    name = ast.unparse(node.func).rpartition(".")[2]
    if name in kinds:
        yield max(node.args[:2], key=_own_text, default=ast.Constant(""))
    elif name in SAID and node.args:
        yield node.args[0]
    elif name in TOLD and len(node.args) > max(TOLD[name][1]):
        yield _joined(*TOLD[name], node.args)


def _name(target: ast.expr) -> str:
    """Return the name of what an assignment changes, without its object, and without the place in it."""
    return ast.unparse(target.value if isinstance(target, ast.Subscript) else target).rpartition(".")[2]


def _joined(form: str, places: tuple[int, ...], arguments: list[ast.expr]) -> ast.expr:
    """Return the message that another file makes of the arguments at `places`."""
    pieces = [ast.Constant(text) for text in form.split("{}")]
    whole: ast.expr = pieces[0]
    for place, piece in zip(places, pieces[1:]):
        whole = ast.BinOp(ast.BinOp(whole, ast.Add(), arguments[place]), ast.Add(), piece)
    return whole


def _own_text(node: ast.expr) -> int:
    return max(len(text.replace(VARIES, "")) for text in _templates(node, {}))


def _items(node: ast.expr, names: Names, depth: int = 0) -> Iterator[ast.expr]:
    """Yield the texts of a list, a tuple, a comprehension, a condition of those, or of a function that returns one."""
    inner: list[ast.expr] = []
    if isinstance(node, (ast.List, ast.Tuple)):
        inner = node.elts
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        varies = isinstance(node.elt, ast.Name)  # the loop's own: the texts are those that it takes
        inner = [node.generators[0].iter] if varies else [node.elt]
    elif isinstance(node, ast.IfExp):
        inner = [node.body, node.orelse]
    elif isinstance(node, ast.BinOp):
        inner = [node.left, node.right]
    elif isinstance(node, ast.Starred):
        inner = [node.value]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in THROUGH:
        inner = node.args
    elif isinstance(node, (ast.JoinedStr, ast.Constant)) or (isinstance(node, ast.Call) and _own_text(node)):
        yield node
    elif isinstance(node, (ast.Name, ast.Call)) and depth < DEPTH:
        name = ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]
        for value in names.get(name, ()):
            yield from _items(value, names, depth + 1)
    for one in inner:
        yield from _items(one, names, depth)


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
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) and isinstance(node, ast.Call) else ast.unparse(called)
    if name in names and depth < DEPTH:
        texts = [text for value in names[name] for text in _templates(value, names, depth + 1)]
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
