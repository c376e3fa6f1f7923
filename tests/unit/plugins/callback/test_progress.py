# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback in real runs of ansible-playbook: in a pipe, and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

PLAYBOOK = """
- name: Work of a night
  hosts: all
  gather_facts: false
  serial: 4
  tasks:
    - name: Try
      block:
        - name: Fail for a moment
          ansible.builtin.fail: {msg: rescued}
          when: inventory_hostname in ['good2', 'bad1']
      rescue:
        - name: Mend
          ansible.builtin.debug: {msg: mended}
    - name: Check
      ansible.builtin.fail: {msg: "\\e[31m {{ inventory_hostname }} has no driver"}
      when: inventory_hostname is match('^bad')
    - name: Speak for all hosts
      ansible.builtin.debug: {msg: ["{{ ansible_play_batch | length }} hosts", "\\e[31m red"]}
      run_once: true
    - name: Change
      ansible.builtin.debug: {msg: changed}
      changed_when: inventory_hostname == 'good1'
"""
HOSTS = ["good1", "good2", "bad1", "bad2", "bad3", "bad4", "good3", "good4"]
ERASE, BACK = "\r\x1b[J", "\r\x1b[3A"


@pytest.fixture
def command(tmp_path, monkeypatch):
    (tmp_path / "site.yml").write_text(PLAYBOOK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "fleet.cdi.progress")
    monkeypatch.setenv("ANSIBLE_NOCOLOR", "1")
    monkeypatch.setenv("FLEET_CDI_PROGRESS_INTERVAL", "0")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    return [program, "-i", ",".join(HOSTS), "-c", "local", "site.yml"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr == "", done.stderr
    return done.stdout


def end(said):
    """The end of what a run said, with its time left out."""
    return re.sub(r", in \d\d:\d\d", "", said[said.index("\n8 hosts") :]).strip().splitlines()


CAUSE = ["", r"4 hosts: \x1b[31m HOST has no driver", "  task: Check"]
COUNTS = "8 hosts, 3 as wanted, 1 changed, 4 failed"


def test_a_run_says_how_far_it_is_and_ends_with_causes(command):
    said = run([*command, "--check", "-v"])
    lines = said.splitlines()
    assert "Work of a night: 8 hosts, check mode: nothing is changed" in lines
    assert [line for line in lines if line.startswith("changed:")] == ["changed: good1: Change"]
    assert r"\x1b[31m red" in said and "2 hosts" in lines  # of a debug task that runs once
    assert re.search(r"^\[\d\d:\d\d\] Check: [1-4] of 8 hosts, .*[4-7] pending$", said, re.MULTILINE)
    assert re.search(
        r"^\[\d\d:\d\d\] Check: [4-8] of 8 hosts, 1 changed, [1-4] failed, [0-4] pending", said, re.MULTILINE
    )
    # The fourth host with one cause is only counted.
    assert len(re.findall(r"^failed: bad\d: Check", said, re.MULTILINE)) == 3
    assert "\x1b" not in said
    assert end(said) == [COUNTS, *CAUSE, "  --limit bad1,bad2,bad3,bad4"]


def test_hosts_of_a_cause_are_written_to_a_file(command, monkeypatch, tmp_path):
    monkeypatch.setenv("FLEET_CDI_PROGRESS_LIMITS", str(tmp_path / "causes"))
    path = tmp_path / "causes/cause-1.limit"
    path.parent.mkdir()
    for name in ("cause-1.limit", "cause-2.limit", "cause-12.limit", "cause-mine.limit"):  # an earlier run had more
        (path.parent / name).write_text("good1\n")
    assert end(run(command)) == [COUNTS, *CAUSE, f"  --limit @{path}"]
    assert path.read_text().split() == ["bad1", "bad2", "bad3", "bad4"]
    assert sorted(one.name for one in path.parent.iterdir()) == ["cause-1.limit", "cause-mine.limit"]


def test_a_task_that_runs_once_fails_for_all_hosts_and_names_none(command, monkeypatch, tmp_path):
    """Ansible runs it on the first host: the check of all settings named that host as the one with the mistake."""
    (tmp_path / "causes").mkdir()
    (tmp_path / "causes/cause-1.limit").write_text("good1\n")
    monkeypatch.setenv("FLEET_CDI_PROGRESS_LIMITS", str(tmp_path / "causes"))
    tasks = [{"name": "Check all", "ansible.builtin.fail": {"msg": "good2: no entry"}, "run_once": True}]
    (tmp_path / "site.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    said = run(command)
    assert "failed: Check all: good2: no entry" in said.splitlines() and "--limit" not in said
    assert said.splitlines()[-3:] == ["", "all hosts: good2: no entry", "  task: Check all"]
    assert not [*(tmp_path / "causes").iterdir()]


@pytest.mark.parametrize("make", [lambda path, mine: path.symlink_to(mine), lambda path, _mine: os.mkfifo(path)])
def test_what_another_user_puts_in_place_of_the_file_is_replaced(command, monkeypatch, tmp_path, make):
    """The directory may be one of another user, as below /tmp."""
    mine, path = tmp_path / "mine", tmp_path / "causes/cause-1.limit"
    mine.write_text("precious")
    path.parent.mkdir()
    make(path, mine)
    monkeypatch.setenv("FLEET_CDI_PROGRESS_LIMITS", str(path.parent))
    assert f"  --limit @{path}" in end(run(command))
    assert mine.read_text() == "precious" and stat.S_ISREG(path.lstat().st_mode)
    assert path.read_text().split() == ["bad1", "bad2", "bad3", "bad4"] and len([*path.parent.iterdir()]) == 1


def test_a_diff_of_a_host_drives_no_terminal(command, tmp_path):
    tasks = [{"ansible.builtin.copy": {"content": "\x1b]0;title\x07\n\tnext\u202e\n", "dest": str(tmp_path / "made")}}]
    python = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    play = {"hosts": "good1", "gather_facts": False, "vars": python, "tasks": tasks}
    (tmp_path / "site.yml").write_text(json.dumps([play]))
    done = subprocess.run([*command, "--diff"], capture_output=True, text=True, check=True)
    assert "+\\x1b]0;title\\x07\n+\tnext\\u202e\n" in done.stdout


LOST = """
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase


class Connection(ConnectionBase):
    transport, has_pipelining = "lost", False

    def _connect(self, *_any, **_more):
        raise AnsibleConnectionFailure("no route")

    exec_command = put_file = fetch_file = close = _connect
"""


def test_a_host_that_can_not_be_reached_is_told_and_counted(command, monkeypatch, tmp_path):
    (tmp_path / "lost.py").write_text(LOST)
    monkeypatch.setenv("ANSIBLE_CONNECTION_PLUGINS", str(tmp_path))
    (tmp_path / "site.yml").write_text(
        "- {hosts: all, gather_facts: false, tasks: [{name: Look, ansible.builtin.stat: {path: /}}]}"
    )
    here = f"here ansible_connection=local ansible_python_interpreter={sys.executable}"
    (tmp_path / "inventory").write_text(f"{here}\naway ansible_connection=lost\n")
    done = subprocess.run([command[0], "-i", "inventory", "site.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert re.search(r"^unreachable: away: Look: .*no route", done.stdout, re.MULTILINE)
    assert re.search(r"2 hosts, 1 as wanted, 1 unreachable, in", done.stdout)
    assert done.stdout.splitlines()[-1] == "  --limit away"


def test_a_terminal_has_a_table_that_stays_in_its_place(command, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    said = b""
    with suppress(OSError):  # EIO: the run has ended
        while found := os.read(terminal, 65536):
            said += found
    os.waitpid(pid, 0)
    text = said.decode().replace("\r\n", "\n")
    tables = re.findall(re.escape(ERASE) + r"\n(.*?)" + re.escape(BACK), text, re.DOTALL)
    assert all(len(table.split("\n")) == 3 and max(map(len, table.split("\n"))) < 60 for table in tables) and tables
    # Each table is erased before anything else is printed, and by the end of the run.
    rest = re.sub(re.escape(ERASE) + r"\n.*?" + re.escape(BACK), "", text, flags=re.DOTALL).replace(ERASE, "")
    assert end(rest) == [COUNTS, *CAUSE, "  --limit bad1,bad2,bad3,bad4"]
