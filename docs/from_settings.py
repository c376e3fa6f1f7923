# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that docs/generate.py makes from the variables of roles and playbooks, plugins/plugin_utils/settings.yml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.schema import ABSOLUTE, PATH, expectation
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings
from ansible_collections.fleet.cdi.plugins.plugin_utils.settings import Variable

HEAD = """\
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by docs/generate.py from plugins/plugin_utils/settings.yml: change that.
---
"""
AUTHOR = ["fleet.cdi contributors"]
TYPES = {
    "boolean": "bool",
    "integer": "int",
    "array": "list",
    "object": "dict",
    "string": "str",
}


class Dumper(yaml.SafeDumper):
    """Writes YAML as ansible-lint wants it: the items of a list are indented, and nothing is an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless and flow)

    def ignore_aliases(self, _data: Any) -> bool:
        return True


class Template(str):
    """A template, which is written in double quotes, or over several lines."""


class Choices(list[str]):
    """A list that is written in one line."""


Dumper.add_representer(
    Template,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if len(text) < 100 else ">"),
)
Dumper.add_representer(
    Choices, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)


def dumped(document: Any) -> str:
    """Return a document as YAML."""
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, width=100, allow_unicode=True)


def plain(text: str) -> str:
    """Return text in the markup of Ansible as Markdown."""
    text = re.sub(r"([A-Za-z0-9_.]+)#(module|role)", r"\1", text)
    text = re.sub(r"\b[CMOPV]\((?:main#)?([^()]*)\)", r"`\1`", text)
    return " ".join(text.split())


def described(variable: Variable) -> list[str]:
    """Return the description of a variable, in paragraphs."""
    new = variable.texts.get("renamed_to")
    if new:
        return [f"The old name of O({new}). It works until release 0.2.0, with a deprecation warning."]
    more = (
        [f"The default is C({variable.texts['same_as']}), where that is set."] if variable.texts.get("follows") else []
    )
    return [*variable.texts["description"], *more]


def of_role(role: str) -> dict[str, Variable]:
    """Return the variables of a role."""
    return {name: one for name, one in settings.all_variables().items() if name.startswith(f"{role}_")}


def ansible_type(variable: Variable) -> str:
    """Return the type of a variable in argument_specs."""
    pattern = variable.schema.get("pattern")
    paths = {one["pattern"] for one in (ABSOLUTE, PATH)}
    return "path" if pattern in paths else TYPES[variable.schema.get("type", "string")]


def option(variable: Variable, description: list[str]) -> dict[str, Any]:
    """Return a variable as an option of argument_specs."""
    kind = ansible_type(variable)
    found: dict[str, Any] = {"description": description, "type": kind}
    if kind == "list":
        found["elements"] = "str"
    if "enum" in variable.schema:
        found["choices"] = Choices(variable.schema["enum"])
    return found if variable.default is None else {**found, "default": variable.default}


def argument_specs(role: str) -> dict[str, Any]:
    """Return the argument_specs of a role: entry points `main` and `remove`."""
    variables = of_role(role)
    removal = {
        name: option(one, described(one) if one.texts["remove"] is True else one.texts["remove"])
        for name, one in variables.items()
        if one.texts.get("remove")
    }
    options = {"main": {name: option(one, described(one)) for name, one in variables.items()}, "remove": removal}
    return {
        entry: {
            "short_description": about["short_description"],
            "version_added": "0.1.0",
            "author": AUTHOR,
            "description": about["description"],
            "options": options[entry],
        }
        for entry, about in settings.texts().roles[role].items()
    }


def defaults(role: str) -> dict[str, Any]:
    """Return the defaults of a role: values, and templates for the old name or another variable that counts first.

    Those of role cdi_host are plain: its module knows the old names, and Ansible takes 0.1 s of CPU per host for a
    filter of a collection in a default.
    """
    old_names = {one.texts["renamed_to"]: name for name, one in of_role(role).items() if "renamed_to" in one.texts}
    if role == "cdi_host":
        old_names = {}
    found = {}
    for name, one in of_role(role).items():
        followed = one.texts["same_as"] if one.texts.get("follows") else ""
        if one.default is None:
            continue
        template = literal(one.default)
        if followed and name in old_names:
            old = followed.removesuffix("device_list") + "inventory"
            template = f"{old} | default({template})"
        if followed in settings.layered():
            template = f"lookup('fleet.cdi.setting', '{followed}', default={template})"
        elif followed:
            template = f"{followed} | default({template})"
        if name in old_names:
            old = old_names[name]
            template = f"{old} | fleet.cdi.renamed('{old}', '{name}') if {old} is defined else {template}"
        found[name] = Template(f"{{{{ {template} }}}}") if followed or name in old_names else one.default
    return found


def literal(value: Any) -> str:
    """Return a value as Jinja writes it."""
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema for editors: with the description of each variable."""
    schema = settings.schema()
    for name, one in settings.all_variables().items():
        schema["properties"][name]["description"] = " ".join(map(plain, described(one)))
    return schema


def survey() -> dict[str, Any]:
    """Return the survey of a job template of AWX: the variables that a person fills in for one run.

    An answer overrides the variables of the inventory, and so does a default that would be a valid answer. So only
    texts have a default here, for which an empty one is valid too: they are the variables of plays, which no inventory
    sets.
    """
    asked = {name: one for name, one in settings.all_variables().items() if "survey" in one.texts}
    return {
        "name": "fleet.cdi",
        "description": "What to set for one run of a playbook of fleet.cdi",
        "spec": [question(name, one) for name, one in asked.items()],
    }


def question(name: str, variable: Variable) -> dict[str, Any]:
    """Return the question of a survey for a variable."""
    schema = variable.schema
    choices = ["true", "false"] if schema.get("type") == "boolean" else list(schema.get("enum", []))
    whole = schema.get("type") == "integer"
    kind = "multiplechoice" if choices else "integer" if whole else "text"
    limits = {"min": schema["minimum"], "max": schema["maximum"]} if whole else {"min": None, "max": None}
    return {
        "question_name": variable.texts["survey"],
        "question_description": " ".join(map(plain, described(variable))),
        "required": False,
        "type": kind,
        "variable": name,
        **limits,
        "default": variable.default if kind == "text" else "",
        "choices": choices,
    }


def table(prefix: str) -> Iterator[str]:
    """Yield the lines of a table of the variables with a prefix."""
    yield from ("| variable | value | default | layers |", "|---|---|---|---|")
    for name, one in settings.all_variables().items():
        if name.startswith(prefix) and one.default is not None:
            layers = f"`{name}_…`" if name in settings.layered() else ""
            value = expectation(one.schema).replace("|", "\\|")
            yield f"| `{name}` | {value} | {default_text(one, prefix)} | {layers} |"


def default_text(variable: Variable, prefix: str) -> str:
    """Return the default of a variable for a table."""
    if variable.texts.get("follows"):
        return f"`{variable.texts['same_as']}`"
    if isinstance(variable.default, list) and len(variable.default) > 3:
        return f"{len(variable.default)} items, see the [README](../roles/{prefix.rstrip('_')}/README.md)"
    return (
        f"`{variable.default}`"
        if variable.default and isinstance(variable.default, str)
        else f"`{json.dumps(variable.default)}`"
    )


def with_tables(page: str) -> str:
    """Return a page with its tables of variables made anew: those after `<!-- variables: PREFIX -->`."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- variables: {found['prefix']} -->\n\n" + "\n".join(table(found["prefix"])) + "\n\n"

    return re.sub(r"<!-- variables: (?P<prefix>\w+) -->\n\n(?:\|.*\n)*\n*", made, page).rstrip() + "\n"
