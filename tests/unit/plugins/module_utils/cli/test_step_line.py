# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line of a long command, on a real terminal (pty) and elsewhere."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli.step_line import ERASE, StepLine


class PseudoTerminal:
    """A terminal of 40 columns, and what was written to it."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        os.set_blocking(self.ours, False)

    def text(self) -> str:
        try:
            return os.read(self.ours, 65536).decode()
        except BlockingIOError:
            return ""

    def until(self, word: str) -> str:
        """Read until `word` was written."""
        found, deadline = "", time.monotonic() + 30
        while word not in found:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
            found += self.text()
        return found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[PseudoTerminal]:
    monkeypatch.setenv("TERM", "xterm")
    found = PseudoTerminal()
    yield found
    os.close(found.ours)
    os.close(found.theirs)


def test_a_short_command_says_nothing(terminal: PseudoTerminal) -> None:
    with StepLine("looks", terminal.theirs):
        pass
    assert terminal.text() == ""


def test_a_long_one_tells_its_step_and_leaves_nothing(terminal: PseudoTerminal) -> None:
    with StepLine("looks", terminal.theirs, patience=0.05) as line:
        assert terminal.until(" s)").startswith(f"{ERASE}looks (")
        line.step("waits for \x1b[2J" + "x" * 100)
        shown = terminal.until("waits").split(ERASE)  # maybe more than one line
        assert all("\x1b" not in one and len(one) < 40 for one in shown)
    assert terminal.text().endswith(ERASE)


def test_an_error_ends_the_line(terminal: PseudoTerminal) -> None:
    with pytest.raises(ValueError), StepLine("looks", terminal.theirs, patience=0.05):
        terminal.until("looks")
        raise ValueError
    assert terminal.text().endswith(ERASE)


def test_no_terminal_gets_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: PseudoTerminal) -> None:
    with open(tmp_path / "file", "w+", encoding="utf-8") as file:
        with StepLine("looks", file.fileno(), patience=0):
            time.sleep(0.1)
        assert file.seek(0, os.SEEK_END) == 0
    monkeypatch.setenv("TERM", "dumb")
    with StepLine("looks", terminal.theirs, patience=0):
        time.sleep(0.1)
    assert terminal.text() == ""


def test_a_refresh_that_waits_says_so(terminal: PseudoTerminal, tmp_path: Path) -> None:
    """The whole command: a device that it was told to offer is missing."""
    program = "import sys; from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main; "
    program += "sys.exit(main(sys.argv[1:], 'test', {'state_dir': '', 'inventory': '', 'spec_dirs': [], 'prefix': ''}))"
    entry = {"profile": "rule", "match": {"subsystem": "mem", "node": "/dev/absent"}}
    record = {
        "wanted": {"entries": {"one": entry}, "runtimes": {"podman": "5.4.0"}},
        "directory": str(tmp_path / "cdi"),
        "inventory": str(tmp_path / "inventory.json"),
        "offered": {"mem:absent": ["0"]},
        "gone": {},
    }
    (tmp_path / "state").mkdir(mode=0o755)
    manifest = {"version": 1, "files": {}, "directories": [], "kinds": {"v.com/mem": record}}
    (tmp_path / "state/manifest.json").write_text(json.dumps(manifest))
    paths = ["--state-dir", str(tmp_path / "state"), "--inventory", str(tmp_path / "inventory.json")]
    done = subprocess.Popen(
        [sys.executable, "-c", program, *paths, "refresh", "--timeout", "5"],
        stdout=subprocess.PIPE,
        stderr=terminal.theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    terminal.until("waits for devices that are missing")
    done.wait(timeout=60)
    assert done.stdout
    done.stdout.close()
