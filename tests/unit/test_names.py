# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One name means one thing: no class name twice in module_utils, and no public function's name twice in a room.

Files that do the same for different things, such as profiles and verbs, have functions of the same name: an interface.
names.yml lists those names.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import yaml

MODULE_UTILS = Path(__file__).resolve().parents[2] / "plugins/module_utils"
TABLE = yaml.safe_load(Path(__file__).with_name("names.yml").read_text(encoding="utf-8"))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def definitions() -> list[tuple[str, ast.stmt]]:
    """Each class and function at the top of a file, with the file."""
    files = sorted(path for path in MODULE_UTILS.rglob("*.py"))
    return [
        (str(path.relative_to(MODULE_UTILS)), node)
        for path in files
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    ]


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file, node in definitions():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_a_function_name_means_one_thing_in_its_room() -> None:
    places: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file, node in definitions():
        if isinstance(node, FUNCTIONS) and not node.name.startswith("_"):
            places[file.split("/")[0]][node.name].append(file)
    twice = {room: sorted(name for name, files in names.items() if len(files) > 1) for room, names in places.items()}
    assert {room: names for room, names in twice.items() if names} == TABLE
