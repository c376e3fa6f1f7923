# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi with standard handles that are closed, full, or read by nobody: no traceback, and no status of Python's."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.release import launcher

VERBS = ("--help", "--version", "claim --help", "claim list", "man", "claim check --json")
EBADF = "fleet-cdi: [Errno 9] Bad file descriptor"
ENOSPC = "fleet-cdi: [Errno 28] No space left on device"


@pytest.fixture
def fleet_cdi(tmp_path):
    """Run the command by bash, with redirections: (exit status, stdout, stderr)."""
    places = {"state_dir": "state", "inventory": "inventory.json", "prefix": "cdi"}
    defaults = {name: str(tmp_path / place) for name, place in places.items()}
    text = launcher.text(sys.executable, {**defaults, "spec_dirs": [str(tmp_path / "etc"), str(tmp_path / "run")]})
    root = next(path for path in sys.path if path.endswith("pythonpath"))
    command = tmp_path / "fleet-cdi"
    # the collection stands for a release
    command.write_text(text.replace("sys.path.insert(0, RELEASE)", f"sys.path.insert(0, {json.dumps(root)})"))

    def run(words, redirections="", stdout=subprocess.PIPE):
        script = f"exec {sys.executable} -IS {command} {words} {redirections}"
        done = subprocess.run(["bash", "-c", script], stdout=stdout, stderr=-1, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("words", VERBS)
def test_output_that_nobody_reads_is_no_error(fleet_cdi, words):
    """The reader has gone before the first byte, as in `| head -c0`. A verb with a long output sees that, and ends."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert fleet_cdi(words, stdout=writing) == (int(words == "man"), None, "")
    finally:
        os.close(writing)


@pytest.mark.parametrize("words", VERBS)
@pytest.mark.parametrize(("handle", "why"), [(">&-", EBADF), ("> /dev/full", ENOSPC)])
def test_output_that_gets_nowhere_is_one_line(fleet_cdi, words, handle, why):
    status, out, err = fleet_cdi(words, handle)
    assert (status, out) == (2, "") and err.startswith(why) and err.count("\n") == 1


@pytest.mark.parametrize("handle", ["2>&-", "2> /dev/full", "<&- 2>&-", "<&- >&- 2>&-"])
def test_errors_that_get_nowhere_change_no_status(fleet_cdi, handle):
    assert fleet_cdi("claim del", handle) == (2, "", "")
    assert fleet_cdi("devices --nonsense", handle) == (2, "", "")


def test_a_closed_input_is_not_read(fleet_cdi):
    status, out, err = fleet_cdi("validate -", "<&-")
    assert (status, err) == (1, "") and "Bad file descriptor" in out and "Traceback" not in out
