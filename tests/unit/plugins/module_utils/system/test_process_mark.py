# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process is told from every other one; what can't be seen counts as running."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system import process_mark

PROGRAM = f"import sys; sys.path.insert(0, {os.path.dirname(process_mark.__file__)!r}); import process_mark; "
ASK = PROGRAM + "print(process_mark.runs(sys.argv[1] + chr(10)))"


def ask(mark, *start):
    """Whether the process with the mark runs, as another process sees it, which `start` starts."""
    words = [*start, sys.executable, "-c", ASK, mark.strip()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"not allowed here: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip() == "True"


def test_our_own():
    mark = process_mark.process_mark(os.getpid())
    assert process_mark.runs(mark) and ask(mark)
    boot, pid, start, space, _checksum = mark.split()
    assert mark == process_mark.mark(boot, int(pid), int(start), space)
    assert not process_mark.runs(process_mark.mark(boot, int(pid), int(start) + 1, space))
    assert not process_mark.runs(process_mark.mark("0" * 36, int(pid), int(start), space))


def test_a_line_that_was_changed_anywhere_counts_as_running():
    mark = process_mark.mark("0" * 36, 1, 1, "pid:[1]")
    assert process_mark.is_mark(mark) and not process_mark.runs(mark)
    changed = [f"{mark[:at]}{chr(ord(mark[at]) ^ 0x10)}{mark[at + 1 :]}" for at in range(len(mark))]
    for line in ["", *(mark[:at] for at in range(len(mark))), *changed, f"{mark}\n", f" {mark}", "\ufffd" * 99]:
        assert process_mark.runs(line) and not process_mark.is_mark(line), line


def test_one_that_has_ended():
    with subprocess.Popen(["sleep", "600"]) as process:
        mark = process_mark.process_mark(process.pid)
        process.kill()
    assert not process_mark.runs(mark) and not ask(mark)
    with pytest.raises(ProcessLookupError):
        process_mark.process_mark(process.pid)


def test_a_name_with_blanks_and_parentheses(tmp_path):
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as process:
        assert process_mark.runs(process_mark.process_mark(process.pid))
        process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces")
@pytest.mark.parametrize("ended", [False, True])
def test_what_can_not_be_seen_counts_as_running(ended):
    """In a container, and where /proc hides processes: nothing there tells whether the process has ended."""
    with subprocess.Popen(["sleep", "600"]) as process:
        mark = process_mark.process_mark(process.pid)
        if ended:
            process.kill()
            process.wait()
        assert ask(mark, "unshare", "--pid", "--fork", "--mount-proc")
        hidden = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'
        assert ask(mark, "unshare", "--mount", "sh", "-c", hidden, "-")
        process.kill()
