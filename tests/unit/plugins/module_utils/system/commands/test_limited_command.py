# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last step before a command with some devices: it does not start unless the kernel refuses the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import id_of
from ansible_collections.fleet.cdi.plugins.module_utils.system.commands import limited_command

REFUSED = "/dev/refused"
# Stands for a control group that refuses one device, also to root; a real one is in molecule's scenario runtimes.
REFUSE = f"""
import os, runpy, sys
opened = os.open
def refuse(path, *arguments):
    if path == {REFUSED!r}:
        raise PermissionError(1, "Operation not permitted", path)
    return opened(path, *arguments)
os.open = refuse
runpy.run_path({limited_command.__file__!r}, run_name="__main__")
"""


def run(probe, *command):
    """Run it: (exit status, stdout, stderr)."""
    words = [sys.executable, "-I", "-S", "-c", REFUSE, probe, *command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_it_becomes_the_command():
    assert run(REFUSED, "sh", "-c", 'echo "$0 $1"; exit 7', "a b", "--") == (7, "a b --\n", "")


def test_python_leaves_no_signals_ignored_that_were_not():
    look = ["grep", "SigIgn", "/proc/self/status"]
    directly = subprocess.run(look, capture_output=True, text=True, check=True).stdout
    assert run(REFUSED, *look) == (0, directly, "")


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ("/dev/null", "/dev/null can be opened, so the kernel does not keep the command from devices"),
        ("/dev/nonexistent", "/dev/nonexistent: No such file or directory; expected that the kernel refuses it"),
    ],
)
def test_without_a_limit_nothing_runs(probe, why):
    status, out, err = run(probe, "echo", "runs")
    assert (status, out) == (125, "") and err.startswith(f"fleet-cdi: {why}") and f"[{id_of(err)}]" in err


@pytest.mark.parametrize(
    ("command", "status", "why"),
    [("no\nsuch", 127, "no\\nsuch: is not a program of this host"), ("/etc/passwd", 126, "Permission denied")],
)
def test_a_command_that_can_not_start(command, status, why):
    found, out, err = run(REFUSED, command)
    assert (found, out) == (status, "") and why in err and f"[{id_of(err)}]" in err
