# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may stand next on a command line. The shells themselves: tests/integration/test_completion.py."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.cli import complete as room
from ansible_collections.fleet.cdi.plugins.module_utils.cli import main as cli
from ansible_collections.fleet.cdi.plugins.module_utils.layout import USUAL

COLLECTIONS = Path(cli.__file__).parents[6]
DEFAULTS = {name: getattr(USUAL, name) for name in ("state_dir", "inventory", "spec_dirs", "prefix")}
PARSERS = next(
    action.choices
    for action in cli.make_parser("0.1.0", DEFAULTS)._actions
    if isinstance(action, argparse._SubParsersAction)
)
GPU = {"kind": "fleet.cdi/gpu", "qualified_names": ["fleet.cdi/gpu=0", "fleet.cdi/gpu=0000:3b:00.0"]}
TTY = {"kind": "fleet.cdi/tty", "qualified_names": ["fleet.cdi/tty=tty13"]}
DOCUMENTS = {
    "devices": {"devices": [TTY, GPU]},
    "claim list": {"claims": [{"id": "job-42"}, {"id": "web@1.service"}]},
    "specs": {"specs": [{"kind": "fleet.cdi/tty", "devices": ["tty13"]}]},
    "--state-dir /x claim list": {"claims": [{"id": "there"}]},
}

# The words after the command, the last one at the cursor -> what is offered: a list of words, or what the shell does.
CASES = yaml.safe_load("""
- {line: ["claim", ""], offers: [add, del, list]}
- {line: ["claim", "del", ""], is: [job-42, web@1.service]}
- {line: ["claim", "--json", "del", ""], is: [job-42, web@1.service]}
- {line: ["--state-dir", "/x", "claim", "del", ""], is: [there]}
- {line: ["claim", "del", "--state-dir", "/x", ""], is: [there]}
- {line: ["claim", "list", ""], is: []}
- {line: ["claim", "add", "--for", ""], shell: user}
- {line: ["claim", "add", "job-42", ""], is: []}
- {line: ["claim", "add", "-"], offers: [--near, --reuse, --json, --state-dir, --help], not: [--token]}
- {line: ["claim", "del", "-"], offers: [--token, --json], not: [--near, --reuse]}
- {line: ["claim", "-"], offers: [--near, --token]}
- {line: ["device", ""], is: [disable, enable]}
- {line: ["device", "disable", ""], is: [fleet.cdi/tty=tty13, fleet.cdi/gpu=0, "fleet.cdi/gpu=0000:3b:00.0"]}
- {line: ["device", "disable", "gpu0", ""], offers: [fleet.cdi/tty=tty13]}
- {line: ["device", "disable", "--reason", ""], is: []}
- {line: ["devices", "--kind", ""], is: [fleet.cdi/gpu, fleet.cdi/tty]}
- {line: ["devices", "--kind="], is: [--kind=fleet.cdi/gpu, --kind=fleet.cdi/tty]}
- {line: ["devices", "--kind=fleet.cdi/gpu", "--"], offers: [--free]}
- {line: ["devices", ""], is: []}
- {line: ["grants", "gc", ""], shell: file}
- {line: ["grants", "give", ""], is: [fleet.cdi/gpu, fleet.cdi/tty]}
- {line: ["inject", ""], shell: file}
- {line: ["inject", "config.json", ""], is: [fleet.cdi/tty=tty13]}
- {line: ["inject", "-", "fleet.cdi/tty=tty13", ""], is: [fleet.cdi/tty=tty13]}
- {line: ["transform", "--from", ""], shell: directory}
- {line: ["transform", "--relative-to", ""], is: [host, container]}
- {line: ["transform", "--relative-to="], is: [--relative-to=host, --relative-to=container]}
- {line: ["validate", ""], shell: file}
- {line: ["validate", "--", ""], shell: file}
- {line: ["--inventory", ""], shell: file}
- {line: ["--inventory="], shell: file}
- {line: ["--"], offers: [--version, --help, --spec-dir], not: [--json]}
- {line: ["nonsense", ""], offers: [claim, devices]}
- {line: [], offers: [claim, devices]}
""")


def ask(command):
    return DOCUMENTS.get(" ".join(command))


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case["line"]))
def test_offers(case):
    found = room.complete(case["line"], ask)
    words = [word for word, _help in found.words]
    assert found.kind == case.get("shell", "words")
    assert words == case.get("is", words)
    assert {*case.get("offers", ())} <= {*words} and not {*case.get("not", ())} & {*words}


def test_the_verbs_are_offered_with_their_help():
    assert room.complete([""], ask).words == tuple((name, verb.help) for name, verb in cli.VERBS.items())


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_option_of_the_parser_is_offered(verb):
    known = {name for action in PARSERS[verb]._actions for name in action.option_strings if name.startswith("--")}
    assert {word for word, _help in room.complete([verb, "-"], ask).words} == known


@pytest.mark.parametrize("verb", cli.VERBS)
def test_an_option_has_a_value_if_the_parser_says_so(verb):
    for action in PARSERS[verb]._actions:
        for name in action.option_strings:
            if name.startswith("--") and name not in ("--help",):
                follows = room.complete([verb, name, "-"], ask)
                options = follows.kind == "words" and any(word == "--help" for word, _help in follows.words)
                assert options == (action.nargs == 0), name


def test_a_host_that_can_t_tell_offers_nothing(capsys):
    for line in (["claim", "del", ""], ["devices", "--kind", ""], ["inject", "-", ""]):
        assert room.main(line, "0.1.0", {**DEFAULTS, "state_dir": "/none", "inventory": "/none", "spec_dirs": ()}) == 0
        assert capsys.readouterr() == ("words\n", "")


def test_a_word_that_a_shell_would_run_is_not_offered(monkeypatch, capsys):
    """Another user chose the names: bash would insert them without quotes, and root would press Return."""
    names = ["good", "$(reboot)", "a;reboot", "`reboot`", "a b", "a\nb", "*", "é", "~root", "a\tb", "\033[2J"]
    found = json.dumps({"claims": [{"id": name} for name in names]})
    monkeypatch.setattr(room, "fleet_cdi", lambda *_arguments: sys.stdout.write(found))
    assert room.main(["claim", "del", ""], "0.1.0", DEFAULTS) == 0
    assert capsys.readouterr() == ("words\ngood\t\n", "")


def test_it_imports_no_verb_and_no_parser():
    """A shell waits for it at each press of TAB."""
    code = f"""
import sys
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
main(["complete", "cl"], "0.1.0", {json.dumps(DEFAULTS)})
assert not {{"argparse", "subprocess", "ssl", "sqlite3"}} & {{*sys.modules}}, sorted(sys.modules)
rooms = {{name.split("module_utils.")[1] for name in sys.modules if "module_utils." in name}}
own = {{"cli.main", "cli.complete", "cli.plain_command", "cli.taken_options", "cli.terminal"}}
assert rooms <= {{"cli", "layout", "records", "safe_text", *own}}, sorted(rooms)
"""
    start = [sys.executable, "-IS", "-c", f"import sys; sys.path.insert(0, {str(COLLECTIONS)!r})\n{code}"]
    done = subprocess.run(start, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
