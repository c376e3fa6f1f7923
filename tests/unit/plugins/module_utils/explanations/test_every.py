# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every message of the code has one explanation, and every explanation a message.

tests/harness/messages.py reads the messages from the source. It sees the text of an exception, of a warning and of
`complain`, also through variables and functions of other files, and the tasks `fail` and `assert` of roles and
playbooks.
It does not see a text that comes out of a field of a record: tests/harness/said.py does, when a unit test makes it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.cli import main as cli
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES as DOCTOR_RULES
from ansible_collections.fleet.cdi.plugins.module_utils.explanations import (
    doctor_rules,
    protocol_codes,
    report_rules,
    spec_rules,
)
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.every import EVERY, SUBJECTS, explanation_for
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.explanation import match
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors
from ansible_collections.fleet.cdi.plugins.module_utils.report.device_truth import DISAGREEMENTS
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import RULES as SPEC_RULES
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings
from ansible_collections.fleet.cdi.plugins.plugin_utils.report import cross_check, verdict

messages = pytest.importorskip("messages")  # tests/harness; it reads templates with jinja2

IDS = yaml.safe_load(Path(__file__).with_name("ids.yml").read_text(encoding="utf-8"))
RETIRED = "retired"
PARSER = cli.make_parser("", {"state_dir": "", "inventory": "", "spec_dirs": (), "prefix": ""})
MAKERS = ("Finding", "Malformed", "json_subset.Malformed", "self.add")  # of findings; the first argument is the rule
MODULE_UTILS = Path(cli.__file__).parents[1]
# Programs that a host has by its distribution, or that the page is about.
SYSTEM = {
    *(
        "ansible",
        "ansible-doc",
        "ansible-inventory",
        "ansible-playbook",
        "apt-get",
        "cat",
        "df",
        "dmesg",
        "findmnt",
        "fuser",
    ),
    *("getfacl", "journalctl", "ldconfig", "ls", "lspci", "namei", "nvidia-smi", "podman", "python3", "realpath"),
    *("runc", "scontrol", "slurmd", "squeue", "ss", "systemctl", "timedatectl"),
}
PLACES = ("plugins/modules/{}.py", "plugins/lookup/{}.py", "roles/{}", "playbooks/{}.yml")
MADE = {"[Errno *] *", "Allocate: *", "PreStartContainer: *"}  # phrases by Python, and by calls of the kubelet
OURS = {"/opt/cdi/bin/cdi-hook"}


def test_every_message_of_the_code_has_a_page():
    own = [one for one in messages.messages() if not one.passes_on]
    assert len(own) > 450  # it reads the code
    lacking = [f"{one.path}:{one.line}: {one.text}" for one in own if explanation_for(one.text) is None]
    assert lacking == [], "write an explanation (plugins/module_utils/explanations/messages) for each of these"


@pytest.mark.parametrize(
    ("text", "passes_on"),
    [
        ("claim {}: {}", True),
        ("pod {}: container {}: {}", True),
        ("{}: is gone", False),
        ("{}: can't be read: {}", False),
        ("{}: found the {}", False),
        ("a b c d: {}", False),
    ],
)
def test_what_only_passes_on_another_message(text, passes_on):
    assert messages.Message("", 0, text.replace("{}", messages.VARIES)).passes_on is passes_on


def test_every_phrase_is_in_the_code():
    texts = messages.every_text()
    unused = [
        f"{one.id}: {phrase}"
        for subject, explanations in SUBJECTS.items()
        for one in explanations
        for phrase in one.messages
        if one.id < "FC2000" and phrase not in MADE and not any(match(phrase, text) for text in texts)
    ]
    assert unused == []


def test_a_phrase_is_enough_to_tell_a_message():
    """A phrase of a word or two would be in the messages of others."""
    short = [(one.id, phrase) for one in EVERY for phrase in one.messages if len(phrase.replace("*", "").strip()) < 5]
    assert short == []
    twice = [phrase for one in EVERY for phrase in one.messages]
    assert sorted(twice) == sorted(set(twice))


def test_an_id_is_given_once_and_for_all():
    assert {one.id: one.title for one in EVERY} == {id_: title for id_, title in IDS.items() if title != RETIRED}
    assert len({one.id for one in EVERY}) == len(EVERY)
    assert list(IDS) == sorted(IDS)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_ids_of_a_subject_are_in_order_and_apart(subject):
    ids = [int(one.id[2:]) for one in SUBJECTS[subject]]
    assert ids == sorted(ids)
    if ids[0] < 2000:
        assert {number // 50 for number in ids} == {ids[0] // 50}


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.id)
def test_a_page_is_complete(one):
    for text in (one.title, one.means, one.why, *([one.do] if one.do else [])):
        assert text == " ".join(text.split()) and text, one
    for text in (one.means, one.why, *([one.do] if one.do else [])):
        assert re.fullmatch(r"['`A-Zf].*[.`]", text), text  # sentences; fleet.cdi has a small f
    assert one.messages or one.rules
    assert bool(one.do) != (one in doctor_rules.EXPLANATIONS)


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.id)
def test_its_command_is_one(one):
    words = shlex.split(one.more)
    if words[0] == "fleet-cdi":
        parses(words[1:])
    else:
        assert words[0] in SYSTEM | OURS


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.id)
def test_its_texts_name_only_what_there_is(one):
    """Commands of ours, variables of the roles, modules, roles and playbooks, and pages of the docs."""
    text = f"{one.means} {one.why} {one.do}"
    for command in re.findall(r"`fleet-cdi ([^`|]+)", text):
        parses(shlex.split(command))
    for name in re.findall(r"\b(?:cdi_host|cdi_device_plugin|cdi_runtime_hooks)_\w+", text):
        assert name in settings.all_variables(), name
    for name in re.findall(r"\bfleet\.cdi\.(\w+)", text):
        assert any((messages.CHECKOUT / place.format(name)).exists() for place in PLACES), name
    for page in re.findall(r"\bdocs/[\w-]+\.md", text):
        assert (messages.CHECKOUT / page).exists(), page


def parses(words):
    """Let the parser of the command line read `words`; it ends the process with 0 for --help and --version."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            PARSER.parse_args(words)
    except SystemExit as end:
        assert end.code == 0, said.getvalue()


def test_an_advised_command_names_its_operand():
    """Run without one, `grants gc`, for one, is refused. The parser does not know which actions need an operand."""
    texts = [text for text in messages.every_text() if "\n" not in text]  # the others are documentation
    texts += [text for one in EVERY for text in (one.do, *one.messages)]
    form = rf"fleet-cdi (?:grants (?:gc|release|give)|claim del)\b(?! (?!with\b)-*[\w{{<{messages.VARIES}]| ?$)"
    assert sorted({text for text in texts if re.search(form, text)}) == []


def test_every_rule_of_doctor_has_one_page():
    rules = [rule for one in doctor_rules.EXPLANATIONS for rule in one.rules]
    assert sorted(rules) == sorted({rule.name for rule in DOCTOR_RULES})


def test_every_rule_of_reports_has_one_page():
    """Those of devices, of the controller, and of playbook verify: the second argument of HostProblem there."""
    tree = ast.parse(Path(verdict.__file__).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "HostProblem"]
    verdicts = {node.args[1].value for node in calls if isinstance(node.args[1], ast.Constant)}
    rules = [rule for one in report_rules.EXPLANATIONS for rule in one.rules]
    assert len(verdicts) == 4  # it reads the code
    assert sorted(rules) == sorted({*(rule.name for rule in DISAGREEMENTS), *cross_check.RULES, *verdicts})


def test_a_playbook_shows_the_id_of_its_message():
    """No code adds it there: it stands at the end of the text."""
    found = [one for one in messages.messages() if one.path.endswith(".yml") and not one.passes_on]
    wrong = {
        f"{one.path}:{one.line}: {explanation_for(one.text).id}"
        for one in found
        if not one.text.endswith(f"[{explanation_for(one.text).id}]")
    }
    assert len(found) > 12
    assert wrong == set()


def test_every_rule_of_specs_has_one_page():
    """Also the names without a row in a table: calls of MAKERS have them as text."""
    named = set(SPEC_RULES)
    for path in [*MODULE_UTILS.glob("spec/**/*.py"), MODULE_UTILS / "cli/validate.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS:
                named |= {
                    part.value
                    for argument in node.args[:1]
                    for part in ast.walk(argument)
                    if isinstance(part, ast.Constant) and re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", str(part.value))
                }
    rules = [rule for one in spec_rules.EXPLANATIONS for rule in one.rules]
    assert sorted(rules) == sorted(named)


def test_every_code_of_the_protocol_has_one_page():
    assert {one.id: one.title for one in protocol_codes.EXPLANATIONS} == {
        f"FC{2000 + code}": text for code, text in errors.MESSAGES.items()
    }
    for code in errors.MESSAGES:
        assert explanation_for(str(errors.ProtocolError(code))).id == f"FC{2000 + code}"


def test_a_long_hostile_text_takes_no_time():
    """Each phrase is looked for in one pass: a text of its own pieces makes it no longer."""
    hostile = ": found ; expected is a symlink to ; can't it: " * 20_000
    assert explanation_for(hostile) is not None


def test_the_docs_have_a_page_for_each_subject():
    """Their text is that of docs/generate.py (test_settings.py)."""
    names = {f"{subject.lower().replace(' ', '-')}.md" for subject in SUBJECTS}
    assert {path.name for path in (messages.CHECKOUT / "docs/errors").iterdir()} == {"README.md", *names}


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("/a/lock: can't lock it: Read-only file system. Make the file system writable", "FC1004"),  # nobody holds it
        ("/a/lock: another process has held this lock for 5 s; expected it to be done by then", "FC1005"),
    ],
)
def test_a_lock_has_the_page_of_its_cause(text, id_):
    assert explanation_for(text).id == id_
