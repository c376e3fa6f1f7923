# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the generated texts: what docs/from_settings.py makes from the variables of roles, their READMEs, the pages of
stricter rules and of messages, the documentation of the option devices of module device_info from the tables of the
profiles, and README's tables of tested versions from what `make matrix` wrote (docs/tested.py).

python3 docs/generate.py            write them (needs PyYAML, as in build/venv)
python3 docs/generate.py --check    exit code 1, with their names, if some are not current
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "build/pythonpath"))  # for the imports below

import from_settings
import tested
from from_settings import HEAD, dumped, plain

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import next_steps
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.every import SUBJECTS
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.explanation import VARIES, Explanation
from ansible_collections.fleet.cdi.plugins.module_utils.schema import expectation
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import RULES
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings

LICENCE = """\
<!--
Copyright (c) 2026, fleet.cdi contributors
GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
Made by docs/generate.py from {}: change that.
-->
"""

# What else to say of a role.
MORE = {
    "fleet.cdi.cdi_host": (
        "The playbooks `fleet.cdi.provision` and `fleet.cdi.remove` call it, the former after a check of all settings",
        "([docs/settings.md](../../docs/settings.md)).\n",
    ),
    "fleet.cdi.cdi_device_plugin": (
        "How it works, and each setting: [docs/device-plugin.md](../../docs/device-plugin.md). To take it back:\n",
        "```yaml\n- name: Remove\n  hosts: all\n  become: true\n  gather_facts: false\n  tasks:",
        "    - name: Take the device plugin back\n      ansible.builtin.import_role:",
        "        name: fleet.cdi.cdi_device_plugin\n        tasks_from: remove\n```\n",
    ),
}


def generated() -> dict[Path, str]:
    """Every generated file with what it should hold."""
    found = {
        CHECKOUT / "docs/settings.schema.json": json.dumps(from_settings.json_schema(), indent=1) + "\n",
        CHECKOUT / "examples/awx/survey.json": json.dumps(from_settings.survey(), indent=2) + "\n",
    }
    readme_page = CHECKOUT / "README.md"
    found[readme_page] = tested.with_tables(readme_page.read_text(encoding="utf-8"))
    page = CHECKOUT / "docs/settings.md"
    found[page] = from_settings.with_tables(page.read_text(encoding="utf-8"))
    rules = yaml.safe_load((CHECKOUT / "tests/conformance/rules.yml").read_text(encoding="utf-8"))
    found[CHECKOUT / "docs/stricter-rules.md"] = "\n".join(stricter_rules(rules)) + "\n"
    for subject, explanations in SUBJECTS.items():
        found[CHECKOUT / "docs/errors" / page_name(subject)] = "\n".join(errors_page(subject, explanations)) + "\n"
    found[CHECKOUT / "docs/errors/README.md"] = "\n".join(errors_index()) + "\n"
    module = CHECKOUT / "plugins/modules/device_info.py"
    found[module] = with_profiles(module.read_text(encoding="utf-8"))
    for role in settings.ROLES:
        specs = from_settings.argument_specs(role)
        folder = CHECKOUT / "roles" / role
        found[folder / "meta/argument_specs.yml"] = HEAD + dumped({"argument_specs": specs})
        found[folder / "defaults/main.yml"] = HEAD + dumped(from_settings.defaults(role))
        found[folder / "README.md"] = "\n".join(readme(f"fleet.cdi.{role}", specs))
    return found


def readme(role: str, specs: dict[str, Any]) -> Iterator[str]:
    """The lines of a role's README: its entry points, the main one first, and their variables."""
    yield LICENCE.format("plugins/plugin_utils/settings.yml")
    yield f"# Role {role}\n"
    for name, entry in sorted(specs.items(), key=lambda item: (item[0] != "main", item[0])):
        yield f"## {entry['short_description']} (entry point `{name}`)\n"
        for paragraph in entry["description"]:
            yield plain(paragraph) + "\n"
        yield from ("| variable | type | default | what it is for |", "|---|---|---|---|")
        for variable, option in entry["options"].items():
            default = f"`{json.dumps(option['default']).strip(chr(34)) or chr(34) * 2}`" if "default" in option else ""
            yield f"| `{variable}` | {option['type']} | {default} | {' '.join(map(plain, option['description']))} |"
        yield ""
    yield "## Example\n"
    yield "```yaml"
    yield f"- name: Provision\n  hosts: all\n  become: true\n  gather_facts: false\n  roles:\n    - role: {role}"
    yield "```\n"
    yield from MORE.get(role, ("Entry point `remove` takes it back: `import_role` with `tasks_from: remove`.\n",))


EXPLANATIONS = "plugins/module_utils/explanations"
ABOUT_ERRORS = """\
# Messages

A message of fleet.cdi names the file or field, the value found, the value expected and the next step. At its end it has
an id, such as `[FC1001]`. Here is a page for each subject: what a message means, why fleet.cdi refuses something, what
to do, and a command that shows more. On a host, without a network, the same is there:

```console
$ fleet-cdi explain FC1001
FC1001  The path is not a regular file
...
```

`fleet-cdi explain` also takes the name of a rule of `doctor`, `report` or `validate`, an error code of an executable,
or a whole message in quotes. An id keeps its meaning for ever: search for it in logs and in tickets.

A message that passes on another one has the id of the last one that is known. Replies of executables have the error
code of the protocol instead: code 101 is FC2101. A word in capitals in a command (`FILE`, `PATH`) stands for what the
message names.
"""


def page_name(subject: str) -> str:
    """Return the file name of a page about messages."""
    return subject.lower().replace(" ", "-") + ".md"


def errors_index() -> Iterator[str]:
    """The lines of the page that lists all messages with a page."""
    yield LICENCE.format(EXPLANATIONS)
    yield ABOUT_ERRORS
    for subject, explanations in SUBJECTS.items():
        yield f"## [{subject}]({page_name(subject)})\n"
        yield from (f"- [{one.id}]({page_name(subject)}#{one.id.lower()}): {one.title}" for one in explanations)
        yield ""


def errors_page(subject: str, explanations: tuple[Explanation, ...]) -> Iterator[str]:
    """The lines of a page about messages."""
    yield LICENCE.format(EXPLANATIONS)
    yield f"# {subject}\n"
    yield "[All messages](README.md)"
    for one in explanations:
        yield f"\n## {one.id}\n"
        yield f"**{one.title}.** {one.means}\n"
        yield f"Why: {one.why}\n"
        if one.do:
            yield f"Do: {one.do}\n"
        yield f"More: `{one.more}`\n"
        if one.rules:
            steps = next_steps(one.rules)
            yield "Rules:\n"
            yield from (f"- `{rule}`" + (f": {steps[rule]}" if not one.do else "") for rule in one.rules)
        else:
            yield "Messages:\n"
            yield from (f"- `{phrase.replace(VARIES, '...').replace('`', chr(39))}`" for phrase in one.messages)


# Of the page of stricter rules: what comes before the rules of each section of rules.yml.
ABOUT_RULES = """\
# Rules of specs that are stricter than the reference library

`fleet-cdi validate`, `specs` and `doctor`, and the modules `fleet.cdi.spec` and `fleet.cdi.spec_info`, report each
problem of a spec with the name of its rule in brackets. Most rules are those of the
[reference library](https://github.com/cncf-tags/container-device-interface): {same}.
Runtimes refuse a file that breaks one of these too. Only `version`, `field-since`, `field-until` and `root-class` are
not rules of each release: another one may read the file all the same. `seen_by` of `fleet-cdi specs --json` lists
those that do.

This page lists the other rules. They are tested against two releases of the library: 0.8.1, for specs that declare a
version below 1.1.0, and 1.1.1 for those that declare 1.1.0. Every example below is a test.
"""
SECTIONS = {
    "stricter": """\
## Errors where a runtime may accept

At least one release of the library accepts the file, or crashes. fleet.cdi never writes such a file. If another tool
wrote it, it may work with the runtimes of a host.
""",
    "warnings": """\
## Warnings

The specification or a runtime forbids it, and at least one of the two releases accepts it. fleet.cdi warns and does
not refuse.
""",
}


def stricter_rules(rules: dict[str, Any]) -> Iterator[str]:
    """The lines of the page of the rules that refuse, or warn of, more than the reference library does."""
    yield LICENCE.format("tests/conformance/rules.yml")
    yield ABOUT_RULES.format(same=", ".join(f"`{rule}`" for rule in rules["same"]))
    for section, text in SECTIONS.items():
        yield text
        for rule, row in rules[section].items():
            yield f"### {rule}\n"
            if rule in RULES:
                yield f"Expected: {RULES[rule].expected}.\n"
            yield f"Why: {row['reason']}.\n"
            yield from ("```yaml", example(row["examples"][0]), "```\n")
    yield "Made from `tests/conformance/rules.yml`; `tests/conformance/test_differential.py` checks each rule."


def example(row: dict[str, Any]) -> str:
    """Return an example of a rule as text, with escapes for characters that can't be printed."""
    if "spec" in row:
        return yaml.safe_dump(row["spec"], sort_keys=False, allow_unicode=False, width=1000).strip()
    text = next(row[key] for key in ("json", "yaml", "utf-16") if key in row)
    if "repeated" in row:
        text += f"{row['repeated'].format(0)}# and so on, {row['times']} times"
    return "".join(one if one.isprintable() or one == "\n" else f"\\x{ord(one):02x}" for one in str(text).strip(" \n"))


INDENTED = {"initial_indent": " " * 8, "subsequent_indent": " " * 8}


def with_profiles(source: str) -> str:
    """The source of module device_info, with the options of the profiles between the two markers in it."""
    begin, end = "      # Made by docs/generate.py from here ...\n", "      # ... to here.\n"
    before, rest = source.split(begin)
    after = rest.split(end)[1]
    made = []
    for paragraph in profiles():
        made += ["      - >-", *textwrap.wrap(paragraph, 120, break_on_hyphens=False, **INDENTED)]
    return "".join([before, begin, *(f"{line}\n" for line in made), end, after])


def profiles() -> Iterator[str]:
    """A paragraph on the options of every profile, and one on each profile."""
    texts = yaml.safe_load((CHECKOUT / "docs/profiles.yml").read_text(encoding="utf-8"))
    known = {
        "common": entry_options.COMMON,
        **{name: profile.options for name, profile in entry_options.PROFILES.items()},
    }
    told = {"common": texts["common"], **{name: one.get("options", {}) for name, one in texts["profiles"].items()}}
    assert {name: set(one) for name, one in known.items()} == {name: set(one) for name, one in told.items()}, (
        "docs/profiles.yml has to have a text for each option of each profile, and no other"
    )
    yield f"Options of every profile. {described(entry_options.COMMON, texts['common'])}"
    for name, profile in sorted(entry_options.PROFILES.items()):
        kind, sorts = (
            profile.kind or "fleet.cdi/<name of the entry>",
            ", ".join(f"V({sort})" for sort in profile.name_by),
        )
        usual = "".join(f", C({option}) is V({str(value).lower()})" for option, value in profile.defaults.items())
        own = f" {described(profile.options, told[name])}" if profile.options else ""
        devices = texts["profiles"][name]["devices"]
        yield f"Profile V({name}) - {devices}. By default C(kind) is V({kind}), C(name_by) is [{sorts}]{usual}.{own}"


def described(schemas: dict[str, Any], texts: dict[str, str]) -> str:
    """A sentence for each option: name, expected value and meaning."""
    return " ".join(f"C({name}) ({valued(schema)}) - {texts[name]}." for name, schema in schemas.items())


def valued(schema: dict[str, Any]) -> str:
    """The values that an option takes."""
    items = schema.get("items", {})
    if schema.get("type") == "array" and "enum" in items and "description" not in schema:
        return "a list of " + ", ".join(f"V({value})" for value in items["enum"])
    if schema.get("type") == "array" and "description" not in schema:
        return "a list, each item " + re.sub(r"[()]", "", expectation(items))
    if "enum" in schema:
        return " or ".join(f"V({value})" for value in schema["enum"])
    return re.sub(r"[()]", "", expectation(schema))


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    stale = [
        path for path, text in generated().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if "--check" in arguments:
            sys.stdout.write(f"{path.relative_to(CHECKOUT)} is not current: run python3 docs/generate.py\n")
        else:
            path.write_text(generated()[path], encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
