# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module refresh_service_info: what it makes of what systemd says (recorded with 252 and 249), and of the manifest."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import refresh_service_info as module
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import Manifest

RAN = """\
ExecMainStartTimestamp=Sun 2026-11-22 23:00:00 UTC
ExecMainExitTimestamp=Sun 2026-11-22 23:00:01 UTC
ExecMainStatus=1
Result=exit-code
"""
NEVER = "ExecMainStartTimestamp=\nExecMainExitTimestamp=\nExecMainStatus=0\nResult=success\n"
TIMER = '[{"next":1795388700000000,"left":1,"last":0,"passed":0,"unit":"fleet-cdi-refresh.timer","activates":"x"}]'


def systemctl(show=NEVER, timers="[]", known="enabled", active="active"):
    """A systemctl that says this."""

    def run(command):
        verb = command[1]
        said = {"show": show, "list-timers": timers}
        units = command[2:]
        return 0, said.get(verb, "\n".join([known if verb == "is-enabled" else active] * len(units)) + "\n")

    return run


def test_a_host_with_the_service():
    wanted = {"entries": {}, "by": "cdi_host"}
    gone = {"pci:2": {"since": "2026-11-22 22:58:01 UTC", "boot_id": "x", "seconds": 1}}
    offered = {"pci:1": ["0", "a"], "pci:2": ["1", "b"]}
    memory = {"wanted": wanted, "directory": "/etc/cdi", "inventory": "", "offered": offered, "gone": gone}
    record = {"applied": ["x"], "kind": "", "by": "refresh", "prior": None}
    files = {"/etc/systemd/system/fleet-cdi-refresh.service": record}
    manifest = Manifest("/state", {"kinds": {"a.com/b": memory}, "files": files})
    found = module.state(manifest, systemctl(RAN, TIMER), True)
    assert found["installed"] and all(unit["enabled"] and unit["active"] for unit in found["units"])
    assert found["last_run"] == {
        "result": "exit-code",
        "exit_status": 1,
        "started": "2026-11-22T23:00:00Z",
        "finished": "2026-11-22T23:00:01Z",
    }
    assert found["next_run"] == "2026-11-22T23:05:00Z"
    assert found["kinds"] == [
        {
            "kind": "a.com/b",
            "spec_dir": "/etc/cdi",
            "managed_by": "cdi_host",
            "devices": 2,
            "missing": {"1": "2026-11-22 22:58:01 UTC"},
        }
    ]


@pytest.mark.parametrize("timers", ["[]", "", "0 timers listed.", '[{"next":0}]', '[{"next":null}]', "{}", "[1]"])
def test_a_host_without_a_run(timers):
    found = module.state(Manifest("/state", {}), systemctl(NEVER, timers, "not-found", "inactive"), True)
    assert not found["installed"] and not any(unit["enabled"] or unit["active"] for unit in found["units"])
    assert found["last_run"] == {"result": "", "exit_status": 0, "started": "", "finished": ""}
    assert found["next_run"] == "" and found["kinds"] == []


def test_an_image_where_systemd_does_not_run():
    found = module.state(Manifest("/state", {}), systemctl(RAN, TIMER), False)
    assert found["next_run"] == found["last_run"]["started"] == ""
    assert not any(unit["active"] for unit in found["units"])
