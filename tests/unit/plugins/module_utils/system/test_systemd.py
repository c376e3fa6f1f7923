# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemctl's words mean."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.system import systemd

UNITS = ["a.service", "b.path", "c.timer"]


@pytest.mark.parametrize(
    ("said", "enabled"),
    [
        ("enabled\ndisabled\nenabled\n", ("a.service", "c.timer")),
        ("enabled\nWarning: unit files have changed on disk\nstatic\nenabled\n", ("a.service", "c.timer")),
        ("enabled\nFailed to get unit file state for b.path: No such file or directory\nenabled\n", ()),
        ("", ()),
    ],
)
def test_which_are_enabled_is_told_by_their_order(said, enabled):
    assert systemd.enabled(lambda _command: (1, said), UNITS) == enabled


def test_which_are_active():
    assert systemd.active(lambda _command: (3, "active\nfailed\nactivating\n"), UNITS) == ("a.service",)


def test_a_failure_is_told_with_all_that_was_said():
    with pytest.raises(CdiError, match=r"`systemctl enable a` failed \(exit status 1\): no such unit a$"):
        systemd.do(lambda _command: (1, "no such\nunit a\n"), ["systemctl", "enable", "a"])
    assert systemd.run_on_host(["/nowhere/systemctl"]) == (127, "/nowhere/systemctl: No such file or directory")


@pytest.mark.parametrize("outdated", [[], ["b.path"], UNITS])
def test_units_are_read_anew_where_systemd_has_an_old_one(outdated):
    told = []

    def run(command):
        told.append(command[1])
        assert command[1] != "show" or command[-3:] == UNITS
        return 0, "\n".join(f"NeedDaemonReload={'yes' if one in outdated else 'no'}\nId={one}\n" for one in UNITS)

    systemd.reload(run, UNITS)
    assert told == (["show", "daemon-reload"] if outdated else ["show"])


def test_the_state_of_each_file():
    """systemd 252 says on stderr that there is none, later ones "not-found"."""
    said = {"a.service": "enabled\n", "b.path": "Failed to get unit file state for b.path: No such file\n"}
    answers = {**said, "c.timer": "not-found\n"}
    assert systemd.unit_files(lambda command: (1, answers[command[2]]), UNITS) == {
        "a.service": "enabled",
        "b.path": "",
        "c.timer": "not-found",
    }
