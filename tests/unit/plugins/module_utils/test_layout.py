# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One file says where things are on a host; modules, which can't import it, repeat it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import layout
from ansible_collections.fleet.cdi.plugins.module_utils.layout import USUAL

PLUGINS = Path(layout.__file__).resolve().parents[1]
PLACES = (USUAL.prefix, USUAL.state_dir, *USUAL.spec_dirs, f"{layout.RUN}/cdi")
# Option of a module -> its default.
OPTIONS = {
    "prefix": USUAL.prefix,
    "state_dir": USUAL.state_dir,
    "device_list": USUAL.inventory,
    "config_dir": USUAL.config_dir,
    "spec_dir": USUAL.spec_dir,
    "spec_dirs": list(USUAL.spec_dirs),
}
# They travel to hosts without the rest.
ALONE = {"on_host.py", "layout.py"}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a file that are not docstrings."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def test_no_other_file_says_where_things_are():
    found = [
        f"{path.relative_to(PLUGINS)}:{line}: {text!r}"
        for path in sorted((PLUGINS / "module_utils").rglob("*.py"))
        if path.name not in ALONE
        for line, text in texts(path)
        if any(text == place or text.startswith((f"{place}/", f"{place}-")) for place in PLACES)
    ]
    assert not found, "write layout.USUAL:\n" + "\n".join(found)


def defaults(path: Path) -> Iterator[tuple[str, object]]:
    """Option -> default of the argument specifications in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        for key, value in zip(node.keys, node.values) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value in OPTIONS and isinstance(value, ast.Dict):
                spec = {one.value: ast.literal_eval(given) for one, given in zip(value.keys, value.values)}
                if spec.get("default") is not None:
                    yield str(key.value), spec["default"]


FILES = [*sorted((PLUGINS / "modules").glob("*.py")), PLUGINS / "module_utils/on_host.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_defaults_of_modules(path):
    for option, default in defaults(path):
        assert default == OPTIONS[option], option


def test_there_are_such_defaults():
    assert len({option for path in FILES for option, _default in defaults(path)}) == len(OPTIONS)
