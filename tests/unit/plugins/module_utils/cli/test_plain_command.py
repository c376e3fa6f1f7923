# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line without argparse: where it is read at all, argparse reads the same."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.cli import main as cli
from ansible_collections.fleet.cdi.plugins.module_utils.cli.plain_command import read_plain
from ansible_collections.fleet.cdi.plugins.module_utils.cli.start import words_of

DEFAULTS = {"state_dir": "/s", "inventory": "/i", "spec_dirs": ["/a", "/b"], "prefix": "/p"}
OPTIONS = sorted({word for verb in cli.VERBS.values() for word in (*verb.switches, *verb.options)})
ODD = ("--jso", "--near=0", "--spec-dir=/x", "--json=1", "--token=-1", "--from=/", "--help", "--version", "-h", "-x")
PLAIN = ("--state-dir", "--inventory", "--spec-dir", "add", "job-42", "gpu:1", "", "-", "--", "-1", "a b")
WORDS = st.sampled_from([*cli.VERBS, *OPTIONS, *ODD, *PLAIN])
TABLES = (cli.VERBS, cli.EVERYWHERE, cli.REPEATED)
PARSER = cli.make_parser("test", DEFAULTS)


def by_argparse(argv):
    """What argparse makes of a command; None if it ends the program."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            return vars(PARSER.parse_args(cli._operands_last(argv)))
        except SystemExit:
            return None


@given(st.lists(WORDS, max_size=2), st.sampled_from(sorted(cli.VERBS)), st.lists(WORDS, max_size=6))
def test_as_argparse(before, verb, after):
    argv = [*before, verb, *after]
    plain = read_plain(argv, *TABLES)
    assert plain is None or vars(plain) == by_argparse(argv)


@pytest.mark.parametrize(
    "argv",
    [
        "claim add job-42 gpu:1 tty:1 --json --near 0,1",
        "--spec-dir /a --spec-dir=/b claim del job-42 --token abc",
        "--state-dir /s devices --free --kind a/b",
        "transform --from /old spec.json --to=/new",
        "grants gc --force - --complete",
    ],
)
def test_usual_commands_need_no_argparse(argv):
    words = argv.split()
    assert vars(read_plain(words, *TABLES)) == by_argparse(words)


@pytest.mark.parametrize(
    ("argv", "verb"),
    [
        ("claim list", "claim"),
        ("--state-dir claim devices", "devices"),
        ("--state-dir=/x claim add", "claim"),
        ("device disable claim", "device"),
        ("--version", ""),
        ("", ""),
    ],
)
def test_the_verb_is_known_before_anything_is_imported(argv, verb):
    assert words_of(argv.split())[:1] == ([verb] if verb else [])
