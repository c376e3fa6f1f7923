# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in the way of an installation is named, and left as it is."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import tree


def foreign_command(target):
    Path(target.prefix, "bin").mkdir(parents=True)
    path = Path(target.prefix, "bin/fleet-cdi")
    path.write_text("mine")
    return path


def foreign_plugin(target):
    path = foreign_command(target)
    return path.rename(path.with_name("drm"))


def foreign_command_link(target):
    path = foreign_command(target)
    path.unlink()
    path.symlink_to("/usr/bin/true")
    return path


def foreign_current(target):
    (target.lib / "current").mkdir(parents=True)
    return target.lib / "current"


def file_as_prefix(target):
    Path(target.prefix).parent.mkdir(parents=True)
    Path(target.prefix).write_text("mine")
    return Path(target.prefix)


def file_above_prefix(target):
    (target.directory / "opt").write_text("mine")
    return target.directory / "opt"


def link_as_lib(target):
    Path(target.prefix).mkdir(parents=True)
    (target.directory / "elsewhere").mkdir()
    target.lib.symlink_to(target.directory / "elsewhere")
    return target.lib


@pytest.mark.parametrize(
    "obstacle",
    [
        foreign_command,
        foreign_plugin,
        foreign_command_link,
        foreign_current,
        file_as_prefix,
        file_above_prefix,
        link_as_lib,
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_obstacle_is_named_and_left(target, obstacle, check):
    path = obstacle(target)
    before = target.tree()
    with pytest.raises(CdiError, match=f"^{re.escape(str(path))}: is "):
        target.install(target.release(), check=check)
    assert target.tree() == before


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "endless"])
def test_launcher_that_became_something_else_is_written_anew(target, make):
    release = target.release()
    target.install(release)
    launcher = target.lib / release.id / "bin/fleet-cdi"
    launcher.unlink()
    make(launcher)
    assert target.install(release).changed
    assert target.says() == release.id and not target.install(release).changed


@pytest.mark.parametrize("form", ["opt/cdi", "{}/", "/{}", "{}/../cdi"])
def test_prefix_that_is_not_absolute_or_not_in_its_shortest_form_is_refused(target, form):
    """Its own record of directories counted as damaged otherwise."""
    target.prefix = form.format(target.prefix)
    with pytest.raises(CdiError, match=f"^prefix: found '{target.prefix}'; expected an absolute path without '..'"):
        target.install(target.release())


def test_own_symlink_above_the_prefix_is_followed(target):
    (target.directory / "real").mkdir()
    (target.directory / "opt").symlink_to("real")
    release = target.release()
    target.install(release)
    assert target.says() == release.id


def test_processes_do_not_interleave(target, monkeypatch):
    monkeypatch.setattr(tree, "_PATIENCE", 600.0)  # the last of them waits for three others, on a slow disk too
    one, two = target.release("1.0.0"), target.release("2.0.0")
    children = []
    for release in (one, two, one, two):
        child = os.fork()
        if child == 0:
            try:
                target.install(release)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
    names = {path.name for path in target.lib.iterdir()}
    assert names == {".fleet-cdi.json", ".fleet-cdi.lock", one.id, two.id, "current", "previous"}
    assert {target.says(), os.readlink(target.lib / "previous")} == {one.id, two.id}
    assert json.loads((target.lib / ".fleet-cdi.json").read_text())["directories"] == [
        str(target.directory / "opt"),
        target.prefix,
        f"{target.prefix}/bin",
        f"{target.prefix}/lib",
    ]


def test_lock_that_is_never_given_back_is_named(target, monkeypatch):
    release = target.release()
    target.install(release)
    monkeypatch.setattr(tree, "_PATIENCE", 0.1)
    script = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True)"
    script += "; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(target.lib / ".fleet-cdi.lock")], stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(CdiError, match=r"\.fleet-cdi\.lock: another process has been changing the releases"):
            target.install(target.release("2.0.0"))
        other.kill()
    assert target.says() == release.id


def test_errors_name_the_path(target, monkeypatch):
    def fail(path, *_arguments, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    release = target.release()
    monkeypatch.setattr(os, "mkdir", fail)
    with pytest.raises(
        CdiError,
        match=r"opt: can't make it: Read-only file system\. Make the file system writable, or choose another place",
    ):
        target.install(release)
