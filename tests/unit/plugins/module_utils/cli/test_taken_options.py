# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that have no effect in a command are refused, before anything is read or changed."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import VERBS, main
from ansible_collections.fleet.cdi.plugins.module_utils.cli.taken_options import actions_of, is_taken


@pytest.fixture
def fleet_cdi(tmp_path, capsys):
    """Run a command on a directory that does not exist: (exit code, stderr)."""
    directory = str(tmp_path / "none")
    defaults = {"state_dir": directory, "inventory": directory, "spec_dirs": [directory], "prefix": directory}

    def run(line):
        status = main(line.split(), "test", defaults)
        assert not (tmp_path / "none").exists()
        return status, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("device enable tty62 --until 12h --reason x", "device enable: found --reason; expected it with disable alone"),
        ("device enable tty62 --until 12h", "device enable: found --until; expected it with disable alone"),
        ("claim list --near 0", "claim list: found --near; expected it with add or exec alone"),
        ("claim list --force", "claim list: found --force; expected it with del or pod del alone"),
        ("claim pod add x --force", "claim pod: found --force; expected it with del or pod del alone"),
        ("claim gc --release-on-stop", "claim gc: found --release-on-stop; expected it with add alone"),
        ("claim add k tty:1 --idle-for 5", "claim add: found --idle-for; expected it with gc alone"),
        ("claim add k tty:1 --token x", "claim add: found --token; expected it with del alone"),
        ("claim del j --keep", "claim del: found --keep; expected it with add alone"),
        ("claim add k tty:1 --check", "claim add: found --check; expected it with del or gc alone"),
        ("grants list --check", "grants list: found --check; expected it with gc alone"),
        ("claim restore --target podman", "claim restore: found --target; expected it with pod alone"),
        ("grants list --force", "grants list: found --force; expected it with gc alone"),
        ("grants gc x --open", "grants gc: found --open; expected it with list alone"),
        ("plugin status --instance a", "plugin status: found --instance; expected it with run alone"),
        ("refresh --drop --timeout 5", "refresh: found --timeout with --drop; expected one of them: give up devices"),
        ("refresh --grace 0 --drop", "refresh: found --grace with --drop; expected one of them: give up devices"),
    ],
)
def test_an_option_without_effect(fleet_cdi, line, said):
    status, err = fleet_cdi(line)
    assert status == 2 and err.startswith(f"fleet-cdi: {said}") and err.endswith(" [FC1151]\n"), err


def test_exec_has_an_exit_status_of_its_own(fleet_cdi):
    status, err = fleet_cdi("claim exec tty:1 --keep -- ls")
    assert (status, err) == (125, "fleet-cdi: claim exec: found --keep; expected it with add alone [FC1151]\n")


def test_each_action_in_a_help_is_one_of_the_verb():
    """A misspelt one would let all actions take the option."""
    for name, verb in VERBS.items():
        actions = verb.operands["action"].metavar.split("|") if "action" in verb.operands else []
        for option in (*verb.switches, *verb.options):
            text = verb.options[option].help if option in verb.options else verb.switches[option]
            head, colon, _rest = text.partition(": ")
            named = {one.split(" ")[0] for one in head.split(", ")} & set(actions) if colon else set()
            assert bool(named) == bool(actions_of(verb, option)), (name, option)


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ([], True),
        (["del"], True),
        (["pod"], True),
        (["pod", "del", "f"], True),
        (["pod", "add"], False),
        (["add"], False),
    ],
)
def test_an_option_of_an_action_with_another_word(words, taken):
    assert is_taken(VERBS["claim"], "--force", words) == taken
