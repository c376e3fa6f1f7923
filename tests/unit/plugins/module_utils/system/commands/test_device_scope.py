# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words for a scope with some devices. A real systemd limits commands in molecule's scenario runtimes."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Node
from ansible_collections.fleet.cdi.plugins.module_utils.system import systemd
from ansible_collections.fleet.cdi.plugins.module_utils.system.commands import device_scope


@pytest.fixture
def probes(monkeypatch):
    """Take these files for devices by which a limit is seen: probes(name, ...) -> their paths."""

    def use(*paths):
        monkeypatch.setattr(device_scope, "PROBES", paths)
        return paths

    return use


def test_devices_go_by_their_numbers(probes):
    probes("/dev/null")
    allowed = [(Node("/dev/tty61", "c", 4, 61), "rw"), (Node("/dev/loop1", "b", 7, 1), "rwm")]
    words = device_scope.scope_words("a.scope", allowed, ["ls", "--", "-x"])
    end = words.index("--")
    assert words[end + 1 :] == [sys.executable, "-I", "-S", words[end + 4], "/dev/null", "ls", "--", "-x"]
    assert os.path.basename(words[end + 4]) == "limited_command.py" and os.path.exists(words[end + 4])
    given = {word.partition("=")[2] for word in words[:end] if word.startswith("--property=")}
    assert given == {
        "DevicePolicy=closed",
        "TimeoutStopSec=10",
        "DeviceAllow=/dev/char/4:61 rw",
        "DeviceAllow=/dev/block/7:1 rwm",
    }
    assert {"--scope", "--unit=a.scope"} <= {*words[:end]}


def test_a_probe_is_a_device_that_opens_and_is_not_allowed(probes, tmp_path):
    file = tmp_path / "file"
    file.touch()
    null = os.stat("/dev/null").st_rdev
    probes("/nonexistent", str(file), "/dev/null", "/dev/zero")
    node = Node("/dev/x", "c", os.major(null), os.minor(null))
    assert "/dev/zero" in device_scope.scope_words("a.scope", [(node, "rw")], ["true"])
    probes("/nonexistent", str(file), "/dev/null")
    with pytest.raises(CdiError, match="it can't be seen that other devices are refused"):
        device_scope.scope_words("a.scope", [(node, "rw")], ["true"])


def test_the_real_probes_are_devices():
    found = [os.stat(path).st_mode for path in device_scope.PROBES if os.path.exists(path)]
    assert all(map(stat.S_ISCHR, found))


def test_without_systemd(monkeypatch):
    monkeypatch.setattr(systemd, "booted", lambda: False)
    device_scope.stop_scope("a.scope")  # it runs nothing
    with pytest.raises(CdiError, match="systemd does not run this host.*Run it in a container"):
        device_scope.check_scopes()


@pytest.mark.parametrize(("status", "failed"), [(0, False), (5, False), (1, True)])
def test_the_end_of_a_scope(monkeypatch, status, failed):
    """5: the scope is not loaded, so it has ended."""
    ran = []
    monkeypatch.setattr(systemd, "booted", lambda: True)
    monkeypatch.setattr(systemd, "run_on_host", lambda words: ran.append(words) or (status, "it\nhangs"))
    if failed:
        with pytest.raises(CdiError, match="a.scope: its processes can't be ended .exit status 1.: it hangs"):
            device_scope.stop_scope("a.scope")
    else:
        device_scope.stop_scope("a.scope")
    assert ran == [["systemctl", "stop", "a.scope"]]
