# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect what the tasks `fail` and `assert` of roles and playbooks say, as the templates of messages.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import yaml
from jinja2 import nodes

FOLDERS = ("roles/*/tasks/*.yml", "playbooks/*.yml", "playbooks/tasks/*.yml")
SAYS = {"ansible.builtin.fail": "msg", "ansible.builtin.assert": "fail_msg"}  # module -> the option with its message
ENVIRONMENT = jinja2.Environment(autoescape=True)


def spoken(checkout: Path, varies: str) -> Iterator[tuple[str, int, str]]:
    """Yield (path, line, template) for each message; the line is that of the task."""
    for path in sorted(path for folder in FOLDERS for path in checkout.glob(folder)):
        document = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        for line, message in _messages(document):
            for text in templates(message, varies):
                if text.replace(varies, "").strip():
                    yield str(path.relative_to(checkout)), line, text


def _messages(node: Any) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each message below a node of YAML."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _messages(item)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            option = SAYS.get(key.value)
            if option:
                yield from ((key.start_mark.line + 1, one.value) for name, one in value.value if name.value == option)
            else:
                yield from _messages(value)


def templates(text: str, varies: str) -> list[str]:
    """Return what a text with `{{ }}` can be, with `varies` for unknown parts."""
    (output,) = [*ENVIRONMENT.parse(text).find_all(nodes.Output)] or [nodes.Output([])]
    pieces = [_texts(one, varies) for one in output.nodes]
    return list(dict.fromkeys("".join(one).strip() for one in itertools.product(*pieces)))


def _texts(node: nodes.Node, varies: str) -> list[str]:
    """Return what an expression can be: texts, text joined by ~, both branches of a condition, and a default."""
    if isinstance(node, nodes.TemplateData):
        return [node.data]
    if isinstance(node, nodes.Const):
        return [str(node.value)]
    if isinstance(node, nodes.Concat):
        return ["".join(one) for one in itertools.product(*(_texts(part, varies) for part in node.nodes))]
    if isinstance(node, nodes.CondExpr):
        return [*_texts(node.expr1, varies), *(_texts(node.expr2, varies) if node.expr2 else [])]
    if isinstance(node, nodes.Filter) and node.name == "default" and node.args:
        return [varies, *_texts(node.args[0], varies)]
    return [varies]
