# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manual page: all that --help shows, in roff that man, groff and mandoc read without a warning."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import main as cli
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import Operand
from ansible_collections.fleet.cdi.plugins.module_utils.cli.man import page, text, usage
from ansible_collections.fleet.cdi.plugins.module_utils.layout import USUAL


def shown(command):
    """The page as a program shows it: its words, without its line breaks."""
    environment = {**os.environ, "MANWIDTH": "500", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    done = subprocess.run(command, input=page(USUAL), capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return " ".join(re.sub(".\b|\x1b\\[[0-9;]*m", "", done.stdout).split())


def has_everything(words):
    for name, verb in cli.VERBS.items():
        options = {name: option.help for name, option in verb.options.items()}
        operands = {operand.metavar: operand.help for operand in verb.operands.values()}
        for term, described in {**verb.switches, **options, **operands, name: verb.help}.items():
            assert " ".join(term.split()) in words and " ".join(described.split()) in words, (name, term)
    for option in (*cli.EVERYWHERE, "--version", "--help"):
        assert option in words
    return True


@pytest.mark.counterpart("man-db")
def test_man_shows_all_verbs_and_options():
    assert has_everything(shown(["man", "--warnings=w", "--no-hyphenation", "--no-justification", "-l", "-"]))


@pytest.mark.counterpart("mandoc")
def test_mandoc_shows_the_same():
    assert has_everything(shown(["mandoc", "-T", "utf8", "-O", "width=500"]))


@pytest.mark.counterpart("mandoc")
def test_mandoc_has_no_complaint():
    done = subprocess.run(["mandoc", "-T", "lint"], input=page(USUAL), capture_output=True, text=True, check=False)
    known = ("longer than 80 bytes", "missing date")  # the page is as its release, which has no date
    assert [line for line in done.stdout.splitlines() if not any(part in line for part in known)] == []


def test_it_has_the_paths_of_the_host():
    found = page(USUAL._replace(state_dir="/srv/cdi", spec_dirs=("/srv/specs",)))
    assert "/srv/cdi" in found and "/srv/specs" in found and "/var/lib/cdi" not in found


@pytest.mark.parametrize(
    ("plain", "roff"),
    [
        ("--json", "\\-\\-json"),
        (".TH", "\\&.TH"),
        ("'x", "\\&'x"),
        ('say "x"', "say \\(dqx\\(dq"),
        ("a\\nb", "a\\enb"),
        ("", "\\&"),
    ],
)
def test_text(plain, roff):
    assert text(plain) == roff


@pytest.mark.parametrize(("nargs", "shows"), [(None, "X"), ("?", "[X]"), ("*", "[X ...]"), ("+", "X ...")])
def test_usage(nargs, shows):
    assert usage(Operand("X", nargs, "help")) == shows
