# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fenced block of README, docs and the roles' READMEs is proved, as tests/blocks.yml says; and the proofs hold.

tests/integration/test_typed_blocks.py types the rows `here`.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import page  # tests/harness
import pytest
import typed  # tests/harness
import yaml

from ansible_collections.fleet.cdi.plugins.filter.check_settings import check_settings
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.request import parse
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import messages
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import validate

CHECKOUT = typed.CHECKOUT
TABLE = typed.table()
PROOFS = {"typed", "here", "settings", "play", "document", "make", "made", "prints", "picture", "elsewhere"}
MORE = {"starts", "words", "replace", "command", "by", "nightly"}
# The most blocks that no test types or checks: `picture` and `elsewhere`. Lower it; never raise it without a word why.
MOST = {"picture": 3, "elsewhere": 1}  # a registry with a cluster
PAGES = sorted(
    str(path.relative_to(CHECKOUT))
    for pattern in ("*.md", "docs/*.md", "docs/*/*.md", "roles/*/README.md", "examples/**/*.md")
    for path in CHECKOUT.glob(pattern)
)


class Shown(NamedTuple):
    """A block of a page, and its row of tests/blocks.yml."""

    name: str
    block: page.Block
    row: dict[str, Any]


def rows(proof):
    """The blocks with this proof."""
    return [
        pytest.param(Shown(name, block, row), id=f"{name}:{block.line}")
        for name, found in TABLE.items()
        for block, row in zip(typed.blocks_of(name), found)
        if proof in row
    ]


@pytest.mark.parametrize("name", PAGES)
def test_each_block_has_a_row_and_each_row_a_block(name):
    blocks = typed.blocks_of(name)
    found = TABLE.get(name, [])
    for block, row in zip(blocks, found):
        assert block.text.startswith(row["starts"]), f"{name}:{block.line}: the row has another block: {row}"
        assert len(PROOFS & set(row)) == 1 and set(row) <= PROOFS | MORE, f"{name}:{block.line}: {row}"
    assert len(blocks) == len(found), f"{name}: {len(blocks)} blocks, and {len(found)} rows in tests/blocks.yml"


def test_no_row_without_a_page():
    assert set(TABLE) <= set(PAGES)


def test_few_blocks_are_shown_only():
    assert {proof: len(rows(proof)) for proof in MOST} == MOST


@pytest.mark.parametrize("case", rows("typed"))
def test_what_types_a_page_names_it(case):
    text = (CHECKOUT / case.row["typed"]).read_text(encoding="utf-8")
    assert Path(case.name).name in text, f"{case.row['typed']} does not name {case.name}"
    assert case.row["starts"] or case.block.mark != "not run", f"{case.name}:{case.block.line}: not run: it needs a row"


@pytest.mark.parametrize(
    "case", [*rows("made"), *rows("elsewhere"), *(one for one in rows("prints") if "by" in one.values[0].row)]
)
def test_what_proves_a_block_is_there(case):
    assert (CHECKOUT / case.row.get("made", case.row.get("by"))).is_file()


@pytest.mark.parametrize("case", rows("settings"))
def test_settings_have_no_fault(case):
    document = yaml.safe_load(case.block.text)
    variables = {"cdi_host_devices": document} if case.row["settings"] == "entries" else document
    for other, known in zip(
        typed.blocks_of(case.name), TABLE[case.name]
    ):  # a layer completes what an earlier block has
        if other.line < case.block.line and known.get("settings") == "variables":
            variables = {**yaml.safe_load(other.text), **variables}
    assert check_settings({"host": variables}, ["host"]) == []


def test_the_fault_that_settings_shows_is_what_the_check_says():
    (text,) = [block.text for block in typed.blocks_of("docs/settings.md") if "requird" in block.text]
    variables = {"cdi_host_devices_rack7": {"gpus": {"profile": "drm", "requird": True}}}
    (found,) = check_settings(
        {f"gpu{number:02}": variables for number in range(1, 17)}, [f"gpu{n:02}" for n in range(1, 17)]
    )
    assert " ".join(text.partition(": ")[2].split()) == found


@pytest.mark.parametrize("case", rows("play"))
def test_plays_are_right(case, tmp_path):
    """Ansible accepts the syntax, and modules and roles of the collection know the options."""
    document = yaml.safe_load(case.block.text)
    plays = document if case.row["play"] == "plays" else [{"hosts": "all", "tasks": document}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "--syntax-check", str(tmp_path / "play.yml")]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath"), "HOME": str(tmp_path)}
    done = subprocess.run([*command, "-i", "here,"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for play in plays:
        assert check_settings({"host": play.get("vars", {})}, ["host"]) == []
        for task in play.get("tasks", ()):
            for module in (one for one in task if one.startswith("fleet.cdi.")):
                source = (CHECKOUT / f"plugins/modules/{module.rpartition('.')[2]}.py").read_text(encoding="utf-8")
                options = yaml.safe_load(source.partition('DOCUMENTATION = r"""')[2].partition('"""')[0])["options"]
                assert set(task[module] or {}) <= set(options), module


@pytest.mark.parametrize("case", rows("make"))
def test_targets_are_those_of_the_makefile(case):
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    targets = {word for line in re.findall(r"^\.PHONY: (.*)", makefile, re.MULTILINE) for word in line.split()}
    sources = makefile + "".join(
        path.read_text(encoding="utf-8")
        for folder in ("harness", "fault", "world", "integration", "fleet", "adversary", "machines")
        for path in (CHECKOUT / "tests" / folder).glob("*.py")
    )
    for step in page.steps(case.block, case.name):
        if "make" not in step.command:
            continue
        before, _make, after = step.command.partition("#")[0].partition("make ")
        words = shlex.split((before + after).replace("sudo", ""))
        for word in words:
            variable, equals, _value = word.partition("=")
            if equals:
                assert re.search(rf"\b{variable}\b", sources), f"{word}: nothing reads {variable}"
            else:
                assert word in targets, f"{word}: no target of the Makefile"


@pytest.mark.parametrize("case", rows("prints"))
def test_the_words_of_an_output_are_in_the_code_that_prints_it(case):
    where = CHECKOUT / case.row["prints"]
    files = [where] if where.is_file() else list(where.rglob("*.py"))
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    words = [word for word in case.row["words"] if word in case.block.text]
    assert words == case.row["words"], "the block has not all of them"
    assert [word for word in words if word.strip() not in code] == []


def is_a_configuration(text):
    """A configuration of an executable, as `protocol` reads it."""
    assert messages.config(messages.load(text.encode())).plugin


def is_a_reply(text):
    """What an executable replies, or what it picked."""
    document = messages.load(text.encode())
    assert messages.version_of(document) == "0.0.2" and document["devices"] and messages.error_in(document) is None


def is_an_error(text):
    found = messages.error_in(messages.load(text.encode()))
    assert found is not None and found.code == 106


def is_a_hook(text):
    """The hook stands in a valid spec, and cdi-hook knows its arguments."""
    hook = json.loads(text)
    device = {"name": "0", "containerEdits": {"hooks": [hook]}}
    spec = {"cdiVersion": "0.7.0", "kind": "example.com/card", "devices": [device]}
    assert validate(spec) == []
    assert parse(hook["args"][1:])


def is_a_manifest_of_pods(text):
    manifest = list(yaml.safe_load_all(text))
    assert pod_manifest.read(manifest, {"nvidia.com/gpu": "gpu"}).claims


def is_a_part_of_a_container(text):
    (amount,) = yaml.safe_load(text)["resources"]["limits"].values()
    assert amount == 1


def names_the_callback(text):
    found = configparser.ConfigParser()
    found.read_string(text)
    name = found["defaults"]["stdout_callback"]
    assert (CHECKOUT / f"plugins/callback/{name.removeprefix('fleet.cdi.')}.py").is_file()


def are_commands_of_molecule(text):
    """Its scenarios are there, and molecule knows the options: with --help it refuses others, and does nothing."""
    program = Path(sys.executable).with_name("molecule")
    if not program.exists():
        pytest.skip("molecule is not installed")
    commands = [shlex.split(line[2:], comments=True) for line in text.splitlines() if line.startswith("# molecule ")]
    assert commands
    for _molecule, *words in commands:
        done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for option, scenario in zip(words, words[1:]):
            assert option != "-s" or (CHECKOUT / "extensions/molecule" / scenario / "molecule.yml").is_file(), scenario


CHECKS = {
    "configuration": is_a_configuration,
    "reply": is_a_reply,
    "error": is_an_error,
    "hook": is_a_hook,
    "pods": is_a_manifest_of_pods,
    "limits": is_a_part_of_a_container,
    "molecule": are_commands_of_molecule,
    "progress": names_the_callback,
}


@pytest.mark.parametrize("case", rows("document"))
def test_documents_are_read_by_the_code_that_is_for_them(case):
    CHECKS[case.row["document"]](case.block.text)
