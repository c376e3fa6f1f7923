# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The executables of the proposal come and go with the release, and nobody else's do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import PROFILES as PLUGINS
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard


def plugins_there(target):
    return sorted(path.name for path in Path(target.prefix, "bin").iterdir() if path.exists())


def answer(target, plugin):
    command = [f"{target.prefix}/bin/{plugin}"]
    return json.loads(subprocess.check_output(command, env={"CDI_COMMAND": "version"}, stdin=subprocess.DEVNULL))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_plugins_come_and_go_with_the_release(target, plugin):
    target.install(target.release())
    assert os.readlink(f"{target.prefix}/bin/{plugin}") == f"../lib/current/bin/{plugin}"
    assert answer(target, plugin) == {"cdiVersion": "0.0.2", "supportedVersions": ["0.0.1", "0.0.2"]}
    Path(target.prefix, "bin", plugin).unlink()
    outcome = target.install(target.release(), archive=False)
    assert outcome.changed
    assert plugin in set(outcome.after["commands"]) - set(outcome.before["commands"])
    assert answer(target, plugin)
    target.remove()
    assert target.tree() == {}


def test_foreign_plugin_is_left_alone(target):
    target.install(target.release())
    other = Path(target.prefix, "bin/other-plugin")
    other.symlink_to("../lib/current/bin/drm")
    target.install(target.release("2.0.0"))
    target.rollback()
    target.remove()
    assert os.readlink(other) == "../lib/current/bin/drm"


def without(*names):
    return lambda launchers: {name: text for name, text in launchers.items() if name not in names}


@pytest.mark.parametrize("way", ["install", "rollback"])
def test_a_release_with_fewer_plugins_takes_theirs_away(target, way):
    one, two = target.release("1.0.0"), target.release("2.0.0")
    target.install(one, edit=without("sriov", "rule"))
    fewer = target.tree()
    assert plugins_there(target) == ["cdi-hook", "drm", "fleet-cdi", "generic-tty", "slurm-job"]
    target.install(two)
    assert plugins_there(target) == sorted(["cdi-hook", "fleet-cdi", "slurm-job", *PLUGINS])
    if way == "rollback":
        preview = target.rollback(check=True)
        assert target.rollback() == preview
        assert preview.after["commands"] == ["cdi-hook", "drm", "fleet-cdi", "generic-tty", "slurm-job"]
    else:
        target.install(one, archive=False, edit=without("sriov", "rule"))
    assert plugins_there(target) == ["cdi-hook", "drm", "fleet-cdi", "generic-tty", "slurm-job"]
    assert {path for path in target.tree() if "/bin/" in path and two.id not in path} == {
        path for path in fewer if "/bin/" in path
    }


def test_launchers_of_one_release_follow_what_is_asked_for(target):
    release = target.release()
    target.install(release)
    outcome = target.install(release, archive=False, edit=without("sriov"))
    assert outcome.changed
    assert not list(target.directory.rglob("sriov"))
    assert not target.install(release, archive=False, edit=without("sriov")).changed


def test_rollback_leaves_a_plugin_that_somebody_else_put_there(target):
    target.install(target.release("1.0.0"))
    target.install(target.release("2.0.0"), edit=without("drm"))
    path = Path(target.prefix, "bin/drm")
    path.write_text("mine")
    with pytest.raises(CdiError, match=f"^{re.escape(str(path))}: is there already and is not ours"):
        target.rollback()
    assert path.read_text() == "mine"
    assert guard.active(target.prefix).startswith("2.0.0-")


def test_release_whose_plugins_do_not_run_is_not_activated(target):
    good, bad = target.release("1.0.0"), target.release("2.0.0", **{"cdi_plugin/main": "import nothing_such\n"})
    target.install(good)
    before = target.tree()
    with pytest.raises(CdiError, match=r"CDI_COMMAND=VERSION failed \(exit status 1: .*nothing_such"):
        target.install(bad)
    assert target.tree() == before
