# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of runtimes at random, in every form that JSON and TOML have, and edits that somebody else makes.

Each `Edit` is made on the text alone, so that it can be made on a configuration with our keys and on the one without.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import NamedTuple

Edit = Callable[[str], str]

DIRECTORIES = (["/etc/cdi", "/var/run/cdi"], ["/etc/cdi"], ["/opt/cdi", "/run/cdi"])
PLUGINS = {
    1: "cri",
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}


class Configuration(NamedTuple):
    """A text, and what somebody else does to it next."""

    text: str
    edit: Edit
    what: str  # the edit, for the report of a failure


def daemon_json(pick: random.Random) -> Configuration:
    """docker's daemon.json."""
    members = [(f"key{number}", _value(pick, f"v{number}")) for number in range(pick.randrange(5))]
    if pick.random() < 0.6:
        features = [(name, pick.choice([True, False])) for name in ("buildkit", "containerd-snapshotter")]
        features = features[: pick.randrange(3)]
        if pick.random() < 0.5:
            features.insert(pick.randrange(len(features) + 1), ("cdi", pick.choice([True, False])))
        members.insert(pick.randrange(len(members) + 1), ("features", dict(features)))
    if pick.random() < 0.3:
        members.insert(pick.randrange(len(members) + 1), ("cdi-spec-dirs", pick.choice(DIRECTORIES)))
    indent = pick.choice([None, 1, 2, 4, "\t"])
    space = pick.choice([(",", ":"), (", ", ": ")]) if indent is None else (",", pick.choice([": ", ":", " : "]))
    text = json.dumps(dict(members), indent=indent, separators=space)
    if members and indent is None and pick.random() < 0.3:
        text = "{ " + text[1:-1] + " }"
    if not members:
        text = pick.choice(["", "\n", "{}", "{}\n", "{\n}", "{ }", "{\n\n}\n"])
    text += pick.choice(["", "\n", "\n\n"]) if members else ""
    if pick.random() < 0.3:
        text = text.replace("\n", "\r\n")
    if pick.random() < 0.2:
        text = "\ufeff" + text
    return Configuration(text, *_json_edit(pick, text, members))


def _json_edit(pick: random.Random, text: str, members: list) -> tuple[Edit, str]:
    eol = "\r\n" if "\r\n" in text else "\n"
    names = [name for name, _value in members if name.startswith("key")]
    lines = [f'"{name}"' for name in names if _own_line(text, f'"{name}"', ",")]
    edits: list[tuple[Edit, str]] = [(lambda now: now, "nothing")]
    if names:
        number = pick.choice(names)[3:]
        edits.append((lambda now: now.replace(f'"v{number}"', f'"their {number}"'), f"changes v{number}"))
    if names and text.rstrip().endswith("}"):
        edits.append((lambda now: _before_last(now, ', "theirs": [1, 2]'), "appends on the line"))
        edits.append((lambda now: _before_last(now, f',{eol}  "theirs": {{"a": null}}{eol}'), "appends a line"))
    if lines:
        line = pick.choice(lines)
        edits.append((lambda now: _drop_line(now, line), f"removes {line}"))
        edits.append((lambda now: _after_line(now, line, f'   "theirs": 1,{eol}'), f"inserts after {line}"))
    return pick.choice(edits)


def toml(pick: random.Random, version: int, table: tuple[str, ...], keys: dict, elsewhere: list[str]) -> Configuration:
    """A TOML file in which `keys` (name -> value as text) are in `table`; `elsewhere` are root statements."""
    step = pick.choice(["", "  ", "\t"])
    pairs = [*keys.items(), *((f"their{number}", f'"v{number}"') for number in range(pick.randrange(3)))]
    pick.shuffle(pairs)
    lines = [f"version = {version}"] if version and pick.random() < 0.95 else []
    lines += elsewhere
    if pick.random() < 0.5:
        lines.append(f'root = "v10"{pick.choice(["", "  # why"])}')
    tables = [["[grpc]", f'{step}address = "v11"'], ["# about debug", "[debug]"], ["[[list]]", "a = 1", "[[list]]"]]
    tables = tables[: pick.randrange(4)]
    more, blocks = _placed(pick, table, [f"{key} = {text}" for key, text in pairs], step)
    lines, tables = lines + more, tables + blocks
    pick.shuffle(tables)
    for block in tables:
        lines += [*([""] * pick.randrange(3)), *block]
    for _comment in range(pick.randrange(3)):
        lines.insert(pick.randrange(len(lines) + 1), pick.choice(["# enable_cdi = true", "  # their comment", ""]))
    text = "\n".join(lines) + pick.choice(["", "\n", "\n\n"])
    if pick.random() < 0.3:
        text = text.replace("\n", "\r\n")
    return Configuration(text, *_toml_edit(pick, text))


def _placed(
    pick: random.Random, table: tuple[str, ...], pairs: list[str], step: str
) -> tuple[list[str], list[list[str]]]:
    """`pairs` in the table, in one of the forms of TOML: root statements, and blocks with headers."""
    path = ".".join(map(_name(pick), table))
    sub = [[f"{step}[{path}.registry]", f'{step}{step}config_path = "v12"']] if pick.random() < 0.4 else []
    inner = ", ".join(pairs)
    form = pick.choice(
        ["header", "header", "dotted", "inline", "nested", "none"] if pairs else ["header", "inline", "none"]
    )
    if form == "header":
        return [], [[f"{step}[{path}]", *(f"{step}{step}{pair}" for pair in pairs)], *sub]
    if form == "dotted":
        return [f"{path}.{pair}" for pair in pairs], []
    if form == "inline" or (form == "nested" and len(table) == 1):
        for part in reversed(table[1:]):
            inner = f"{_name(pick)(part)} = {{{pick.choice(['', ' '])}{inner} }}"
        return [f"{_name(pick)(table[0])} = {{ {inner} }}"], []
    if form == "nested":
        above = ".".join(map(_name(pick), table[:-1]))
        return [], [[f"[{above}]", f"{step}{_name(pick)(table[-1])} = {{ {inner} }}"]]
    return [], sub


def _toml_edit(pick: random.Random, text: str) -> tuple[Edit, str]:
    eol = "\r\n" if "\r\n" in text else "\n"
    marks = [f'"v{number}"' for number in range(13) if f'"v{number}"' in text]
    edits: list[tuple[Edit, str]] = [
        (lambda now: now, "nothing"),
        (lambda now: f"# theirs{eol}{now}", "puts a comment first"),
        (lambda now: f"{now}{eol}[theirs]{eol}a = 1{eol}", "appends a table"),
        (lambda now: f"{now}{eol}# theirs", "appends a comment"),
    ]
    if any(line.lstrip().startswith("[") for line in text.splitlines()):
        edits.append((lambda now: f"{now}{eol}theirs = 1", "appends a key"))
    if marks:
        mark = pick.choice(marks)
        edits.append((lambda now: now.replace(mark, '"changed"'), f"changes {mark}"))
        if _own_line(text, mark, "") and "{" not in _line_of(text, mark):
            edits.append((lambda now: _drop_line(now, mark), f"removes {mark}"))
            if "." not in _line_of(text, mark).partition("=")[0]:
                edits.append((lambda now: _after_line(now, mark, f"theirs = 1{eol}"), f"inserts after {mark}"))
    return pick.choice(edits)


def _value(pick: random.Random, mark: str) -> object:
    return pick.choice([mark, [mark, 1], {"inner": mark, "cdi": False}, {"a": {"features": mark}}])


def _name(pick: random.Random) -> Callable[[str], str]:
    def spelled(part: str) -> str:
        if "." not in part:
            return pick.choice([part, f'"{part}"'])
        return pick.choice([f'"{part}"', f"'{part}'"])

    return spelled


def _line_of(text: str, mark: str) -> str:
    return next(line for line in text.splitlines() if mark in line)


def _own_line(text: str, mark: str, end: str) -> bool:
    """Whether the mark stands in one line alone, with no nesting, that ends with `end`."""
    lines = text.splitlines()
    holding = [line for line in lines if mark in line]
    return (
        len(lines) > 1
        and len(holding) == 1
        and holding[0].rstrip().endswith(end)
        and not (set(holding[0]) & set("[]{}"))
        and text.index(mark) > text.find("\n")
        and holding[0] != lines[-1]
    )


def _drop_line(text: str, mark: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if mark not in line)


def _after_line(text: str, mark: str, more: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line + (more if mark in line else "") for line in lines)


def _before_last(text: str, more: str) -> str:
    at = text.rindex("}")
    return text[:at].rstrip() + more + text[at:]
