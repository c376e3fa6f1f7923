# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each playbook has an argument spec (ansible-core 2.20) of exactly the variables that it reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.fleet.cdi.plugins.plugin_utils import settings
from ansible_collections.fleet.cdi.plugins.plugin_utils.report import host_answer

FOLDER = Path(__file__).resolve().parents[2] / "playbooks"
PLAYBOOKS = sorted(path.stem for path in FOLDER.glob("*.yml") if not path.name.endswith(".meta.yml"))
REPORTS = re.compile(r"fleet\.cdi\.fleet_(report|verdict)\(")
VARIABLE = re.compile(r"(?<!_)\bfleet_cdi_\w+")
SURVEY = FOLDER.parent / "examples/awx/survey.json"
OF_PLAYS = ("hosts", "serial", "max_fail_percentage")  # keywords that Ansible reads before it knows a host


def spec(playbook: str) -> dict[str, Any]:
    """The options of a playbook's spec."""
    document = yaml.safe_load((FOLDER / f"{playbook}.meta.yml").read_text(encoding="utf-8"))
    (entry,) = document["argument_specs"]
    assert entry == playbook
    options: dict[str, Any] = document["argument_specs"][entry]["options"]
    return options


def variables(playbook: str) -> set[str]:
    """What a playbook, its files of tasks (tasks/PLAYBOOK_*.yml) and the filters that it uses read."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in (FOLDER / f"{playbook}.yml", *FOLDER.glob(f"tasks/{playbook}_*.yml"))
    ]
    read_by_filters = {host_answer.RACK} if any(REPORTS.search(text) for text in texts) else set()
    return {name for text in texts for name in VARIABLE.findall(text)} | read_by_filters


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_spec_has_the_variables_that_its_playbook_reads(playbook: str) -> None:
    assert set(spec(playbook)) == variables(playbook)


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_spec_takes_no_type_that_the_check_of_the_settings_refuses(playbook: str) -> None:
    known = {name: one.schema.get("type") for name, one in settings.all_variables().items()}
    types = {
        name: option["type"] for name, option in spec(playbook).items() if known.get(name) in ("integer", "boolean")
    }
    assert types == {name: {"integer": "int", "boolean": "bool"}[known[name]] for name in types}


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_defaults_of_a_spec_are_valid(playbook: str) -> None:
    validator = ArgumentSpecValidator({name: {**option} for name, option in spec(playbook).items()})
    assert not validator.validate({}).error_messages
    assert validator.validate({"fleet_cdi_unknown": 1}).error_messages


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_play_that_goes_on_for_all_hosts_together_has_a_strategy_of_its_own(playbook):
    """By the strategy `free` of a site's ansible.cfg, a verdict came before the answers."""
    for play in yaml.safe_load((FOLDER / f"{playbook}.yml").read_text(encoding="utf-8")):
        together = [
            task for task in play["tasks"] if task.get("run_once") and "validate_argument_spec" not in str(task)
        ]
        assert not together or play.get("strategy") == "ansible.builtin.linear", play["name"]


def play(folder: Path, playbook: str, *options: str) -> str:
    """Run a playbook that has to fail before any host is contacted: what it says."""
    program = Path(sys.executable).parent / "ansible-playbook"
    inventory = [] if "-i" in options else ["-i", "nowhere.invalid,"]
    command = [program, *inventory, f"fleet.cdi.{playbook}", *options]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert "UNREACHABLE" not in done.stdout
    return done.stdout


def test_an_upgrade_refuses_what_chooses_the_hosts_of_other_playbooks(tmp_path: Path) -> None:
    said = play(tmp_path, "upgrade", "-e", "fleet_cdi_serial=10%", "-e", "fleet_cdi_max_fail_percentage=5")
    assert "fleet_cdi_serial: found '10%' (a text); expected fleet_cdi_upgrade_serial, the sizes of the batches" in said
    assert "fleet_cdi_max_fail_percentage: found '5' (a text); expected none, because an upgrade stops after" in said


def test_an_upgrade_takes_the_answers_of_the_survey_to_questions_of_other_playbooks(tmp_path: Path) -> None:
    """AWX sends the default of a question without an answer."""
    given = ["-e", '{"fleet_cdi_serial": "100%", "fleet_cdi_max_fail_percentage": 100}']
    said = play(tmp_path, "upgrade", *given, "-e", "fleet_cdi_upgrade_serial=none")
    assert "fleet_cdi_upgrade_serial: found" in said
    assert "fleet_cdi_serial: found" not in said and "fleet_cdi_max_fail_percentage: found" not in said


@pytest.mark.parametrize(
    ("playbook", "options", "said"),
    [
        ("remove", ["--tags", "specs"], "--tags: found specs; expected no tag, because fleet.cdi.remove does all of"),
        ("remove", ["--skip-tags", "spec"], "--skip-tags: found spec; expected no tag, because fleet.cdi.remove"),
        ("upgrade", ["--tags", "spec"], "--tags: found spec; expected no tag, because fleet.cdi.upgrade does all of"),
        ("upgrade", ["--skip-tags", "specs"], "--skip-tags: found specs; expected no tag, because fleet.cdi.upgrade"),
        ("provision", ["--tags", "spces"], "--tags: found spces; expected settings, driver, specs, runtimes"),
        ("provision", ["--skip-tags", "settings,driver"], "--skip-tags: found settings; expected driver, specs,"),
    ],
)
def test_a_playbook_refuses_tags_that_it_does_not_take(
    tmp_path: Path, playbook: str, options: list[str], said: str
) -> None:
    """With --tags it did nothing and ended green; with --skip-tags it removed also what it was told to leave."""
    assert said in play(tmp_path, playbook, *options)


def sent(question: dict[str, Any]) -> bool:
    """Whether a job without an answer gets the default, which then counts more than the inventory's value.

    AWX 24, awx/main/models/mixins.py: SurveyJobTemplateMixin takes each default that would be a valid answer.
    """
    if question["choices"]:
        return question["default"] in question["choices"]
    return isinstance(question["default"], {"text": str, "integer": int}[question["type"]])


def test_a_question_without_an_answer_leaves_the_value_of_the_inventory():
    documents = (yaml.safe_load((FOLDER / f"{playbook}.yml").read_text(encoding="utf-8")) for playbook in PLAYBOOKS)
    keywords = [str(play.get(name)) for plays in documents for play in plays for name in OF_PLAYS]
    questions = json.loads(SURVEY.read_text(encoding="utf-8"))["spec"]
    assert {one["variable"] for one in questions if sent(one)} <= set(VARIABLE.findall(" ".join(keywords)))


@pytest.mark.parametrize("playbook", PLAYBOOKS)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["-i", "gpu01,", "-e", "fleet_cdi_hosts=rakc7"],
            "fleet_cdi_hosts: found rakc7, which matches no host of the inv",
        ),
        (
            ["-i", "gpu01,", "--limit", "gpu01", "-e", "fleet_cdi_hosts=rakc7"],
            "fleet_cdi_hosts: found rakc7, which matches",
        ),
        (
            ["-e", '{"fleet_cdi_hosts": ["a", "b"]}'],
            "fleet_cdi_hosts: found a,b, which matches no host of the inventory",
        ),
        (["-i", "/dev/null"], "fleet_cdi_hosts: found all, which matches no host of the inventory"),
    ],
    ids=["misspelt", "limited", "list", "empty"],
)
def test_a_pattern_that_matches_no_host_is_an_error(
    tmp_path: Path, playbook: str, options: list[str], said: str
) -> None:
    """Ansible skips such a play, and ends with status 0: a verdict on no host was good."""
    assert said in play(tmp_path, playbook, *options)
