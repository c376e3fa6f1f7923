# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installation on a real file system with a real interpreter: what is there afterwards, whatever went wrong."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pool import PROFILES as PLUGINS
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, guard, install, tree

# --- the way it is meant to go


def test_a_bare_host_is_nothing_wherever_the_process_runs(target, monkeypatch):
    monkeypatch.chdir("/")  # where there is a directory bin, which is none of ours
    before = target.install(target.release(), check=True).before
    assert (before["launchers"], before["byte_code"], before["damaged"]) == ({}, [], False)


def test_fresh_installation(target):
    release = target.release()
    outcome = target.install(release)
    assert outcome.changed
    assert outcome.before["release"] is None
    assert (outcome.after["release"], outcome.after["previous"]) == (release.id, None)
    assert target.says() == release.id
    assert guard.active(target.prefix) == release.id
    assert os.readlink(f"{target.prefix}/bin/fleet-cdi") == "../lib/current/bin/fleet-cdi"
    assert os.readlink(target.lib / "current") == release.id
    assert sorted(os.listdir(target.lib)) == [".fleet-cdi.json", ".fleet-cdi.lock", release.id, "current"]


def test_repeating_changes_nothing_and_needs_no_archive(target):
    release = target.release()
    target.install(release)
    before = target.tree()
    outcome = target.install(release, archive=False)
    assert (outcome.changed, outcome.needs_archive) == (False, False)
    assert outcome.before == outcome.after
    assert target.tree() == before


@pytest.mark.parametrize("scenario", ["fresh", "upgrade", "launcher"])
def test_check_mode_previews_the_same_and_does_nothing(target, scenario):
    release = target.release()
    paths = {}
    if scenario != "fresh":
        target.install(release)
    if scenario == "upgrade":
        release = target.release("2.0.0")
    if scenario == "launcher":
        paths = {"state_dir": "/srv/cdi"}
    before = target.tree()
    preview = target.install(release, check=True, archive=False, **paths)
    assert target.tree() == before
    assert preview.changed
    assert not preview.needs_archive
    assert target.install(release, **paths) == preview


def test_archive_is_asked_for_before_anything_is_touched(target):
    outcome = target.install(target.release(), archive=False)
    assert outcome.needs_archive
    assert target.tree() == {}


def test_upgrade_keeps_two(target):
    releases = [target.release(version) for version in ("1.0.0", "2.0.0", "3.0.0")]
    for release in releases:
        target.install(release)
    assert target.says() == releases[2].id
    assert os.readlink(target.lib / "previous") == releases[1].id
    assert not (target.lib / releases[0].id).exists()
    assert {path.name for path in target.lib.iterdir()} == {
        ".fleet-cdi.json",
        ".fleet-cdi.lock",
        "current",
        "previous",
        releases[1].id,
        releases[2].id,
    }


def test_release_that_is_there_is_activated_without_archive(target):
    one, two = target.release("1.0.0"), target.release("2.0.0")
    target.install(one)
    target.install(two)
    outcome = target.install(one, archive=False)
    assert outcome.changed
    assert target.says() == one.id
    assert os.readlink(target.lib / "previous") == two.id


def test_everybody_may_run_it_whatever_the_umask(target):
    before = os.umask(0o077)
    try:
        target.install(target.release())
    finally:
        os.umask(before)
    for path, (mode, _content) in target.tree().items():
        kind, bits = stat.S_IFMT(int(mode, 8)), stat.S_IMODE(int(mode, 8))
        if path.endswith((".fleet-cdi.lock", "opt")) or kind == stat.S_IFLNK:
            continue
        executable = kind == stat.S_IFDIR or "/bin/" in path
        assert bits == (0o755 if executable else 0o644), path


def test_byte_code_is_complete_and_shows_final_paths(target):
    release = target.release()
    target.install(release)
    sources = list((target.lib / release.id / "ansible_collections").rglob("*.py"))
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.{target.python.tag}.pyc"
        assert compiled.exists()
        assert b".partial-" not in compiled.read_bytes()
        assert compiled.read_bytes()[4:8] == b"\x01\0\0\0"  # PEP 552: hash-based, unchecked
    assert len(sources) == len(release.sources)


def test_other_paths_only_rewrite_the_launchers(target):
    release = target.release()
    target.install(release)
    before = target.tree()
    outcome = target.install(release, archive=False, inventory="/srv/inventory.json")
    assert outcome.changed
    assert {path for path, entry in target.tree().items() if before.get(path) != entry} == {
        f"opt/cdi/lib/{release.id}/bin/{name}" for name in ("fleet-cdi", *PLUGINS)
    }
    assert "/srv/inventory.json" in (target.lib / release.id / "bin/fleet-cdi").read_text()
    differing = {key for key in outcome.before if outcome.before[key] != outcome.after[key]}
    assert differing == {"launchers"}


def test_byte_code_for_another_python_is_added(target):
    """An upgrade of the distribution replaces Python: nothing else on the prefix has changed then."""
    release = target.release()
    target.install(release)
    for cached in target.lib.rglob("*.pyc"):
        cached.rename(cached.with_name(cached.name.replace(target.python.tag, "cpython-30")))
    outcome = target.install(release, archive=False)
    assert outcome.changed
    assert outcome.before["byte_code"] == ["cpython-30"]
    assert outcome.after["byte_code"] == sorted(["cpython-30", target.python.tag])
    assert not target.install(release, archive=False).changed


# --- executables of the proposal


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
    assert plugins_there(target) == ["cdi-hook", "drm", "fleet-cdi", "generic-tty"]
    target.install(two)
    assert plugins_there(target) == sorted(["cdi-hook", "fleet-cdi", *PLUGINS])
    if way == "rollback":
        preview = target.rollback(check=True)
        assert target.rollback() == preview
        assert preview.after["commands"] == ["cdi-hook", "drm", "fleet-cdi", "generic-tty"]
    else:
        target.install(one, archive=False, edit=without("sriov", "rule"))
    assert plugins_there(target) == ["cdi-hook", "drm", "fleet-cdi", "generic-tty"]
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


# --- roll-back


def test_rollback_swaps_and_stays_when_repeated(target):
    one, two = target.release("1.0.0"), target.release("2.0.0")
    target.install(one, state_dir="/old")
    target.install(two, state_dir="/new")
    preview = target.rollback(check=True)
    assert target.says() == two.id
    outcome = target.rollback()
    assert outcome == preview
    assert (outcome.after["release"], outcome.after["previous"]) == (one.id, two.id)
    assert target.says() == one.id
    assert "/old" in (target.lib / "current/bin/fleet-cdi").read_text()
    before = target.tree()
    assert not target.rollback().changed
    assert target.tree() == before


def test_present_ends_a_rollback(target):
    one, two, three = (target.release(version) for version in ("1.0.0", "2.0.0", "3.0.0"))
    target.install(one)
    target.install(two)
    target.rollback()
    assert target.install(two, archive=False).changed
    assert target.says() == two.id
    target.install(three)
    assert target.rollback().changed  # to two: what was rolled back once counts no longer
    assert target.says() == two.id


def test_rollback_without_previous_is_refused(target):
    with pytest.raises(CdiError, match="no previous release to go back to, only none that is active"):
        target.rollback()
    release = target.release()
    target.install(release)
    with pytest.raises(CdiError, match=f"only {re.escape(release.id)} that is active"):
        target.rollback()


def test_rollback_to_what_was_changed_or_does_not_run_is_refused(target):
    one, two = target.release("1.0.0"), target.release("2.0.0")
    target.install(one)
    target.install(two)
    launcher = target.lib / one.id / "bin/fleet-cdi"
    text = launcher.read_text()
    launcher.write_text(text.replace("sys.exit(", "sys.exit(3) or ("))
    with pytest.raises(CdiError, match=r"--version failed \(exit status 3"):
        target.rollback()
    launcher.write_text(text)
    (target.lib / one.id / build.ROOT / "records.py").write_text("")
    with pytest.raises(CdiError, match=f"{one.id}: was changed since it was installed"):
        target.rollback()
    assert target.says() == two.id


# --- removal


def test_removal_leaves_nothing(target):
    target.install(target.release("1.0.0"))
    target.install(target.release("2.0.0"))
    preview = target.remove(check=True)
    assert target.says()
    outcome = target.remove()
    assert outcome == preview
    assert outcome.changed
    assert target.tree() == {}
    assert not (target.directory / "opt").exists()
    assert not target.remove().changed


def test_removal_keeps_what_is_not_ours(target):
    (target.directory / "opt/cdi").mkdir(parents=True)
    target.install(target.release())
    (target.lib / "notes.txt").write_text("mine")
    (target.lib / "1.0.0-0123456789ab").mkdir()
    other = Path(target.prefix, "bin/gpu-plugin")
    other.write_text("mine")
    target.remove()
    assert set(target.tree()) == {
        "opt/cdi",
        "opt/cdi/bin",
        "opt/cdi/bin/gpu-plugin",
        "opt/cdi/lib",
        "opt/cdi/lib/1.0.0-0123456789ab",
        "opt/cdi/lib/notes.txt",
    }
    assert not target.remove().changed


def test_directories_that_were_there_stay(target):
    Path(target.prefix, "bin").mkdir(parents=True)
    target.install(target.release())
    target.remove()
    assert set(target.tree()) == {"opt/cdi", "opt/cdi/bin"}


def test_removal_leaves_a_foreign_command(target):
    target.install(target.release())
    command = Path(target.prefix, "bin/fleet-cdi")
    command.unlink()
    command.write_text("mine")
    target.remove()
    assert set(target.tree()) == {"opt/cdi", "opt/cdi/bin", "opt/cdi/bin/fleet-cdi"}


# --- damage


@pytest.mark.parametrize("damage", ["changed", "removed", "added", "launcher", "command", "unreachable"])
def test_damage_is_seen_and_repaired(target, damage):
    release = target.release()
    target.install(release)
    whole = target.tree()
    code = target.lib / release.id / build.ROOT
    if damage == "changed":
        (code / "records.py").write_text("")
    elif damage == "removed":
        (code / "records.py").unlink()
    elif damage == "added":
        (code / "argparse.py").write_text("")
    elif damage == "launcher":
        (target.lib / release.id / "bin/fleet-cdi").unlink()
    elif damage == "command":
        Path(target.prefix, "bin/fleet-cdi").unlink()
    else:
        shutil.rmtree(target.lib / release.id)
    preview = target.install(release, check=True, archive=False)
    assert preview.changed
    assert preview.before != preview.after
    outcome = target.install(release, archive=False)
    assert outcome.changed
    assert outcome.needs_archive == (damage not in ("launcher", "command"))
    if outcome.needs_archive:
        target.install(release)
    assert target.tree() == whole
    assert target.says() == release.id


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (b"", "is damaged"),
        (b"PK\x03\x04 and no more", "is damaged"),
        ("truncated", "is damaged"),
        ("flipped", "is damaged|holds release"),
        ("other", "holds release 9.9.9-"),
    ],
)
def test_archive_that_is_not_the_release_is_refused(target, archive, message):
    release = target.release()
    good = build.pack(release)
    middle = good.index(b"class CdiError")
    archive = {
        "truncated": good[: len(good) // 2],
        "flipped": good[:middle] + b"X" + good[middle + 1 :],
        "other": build.pack(target.release("9.9.9")),
    }.get(archive, archive)
    with pytest.raises(CdiError, match=f"^archive: ({message})"):
        install.present(target.prefix, release.id, target.python, {}, None, archive or b"x")
    assert not list(target.lib.glob(f"*{release.digest}*"))


def test_archive_can_not_write_elsewhere(target):
    release = target.release()
    evil = release._replace(sources={**release.sources, "../../../evil.py": b""})
    with pytest.raises(CdiError, match=r"evil\.py: is no source of a release"):
        target.install(release, archive=build.pack(evil))
    assert not list(target.directory.rglob("evil.py"))


def test_release_that_does_not_run_is_not_activated(target):
    good, bad = target.release("1.0.0"), target.release("2.0.0", records="raise SystemExit('I am broken')\n")
    target.install(good)
    before = target.tree()
    with pytest.raises(CdiError, match=r"--version failed \(exit status 1: I am broken\); release 2\.0\.0-"):
        target.install(bad)
    assert target.tree() == before


def test_release_that_does_not_compile_is_not_activated(target):
    good, bad = target.release("1.0.0"), target.release("2.0.0", extra="match = case:\n")
    target.install(good)
    before = target.tree()
    with pytest.raises(CdiError, match=r"can't byte-compile the release.*extra\.py"):
        target.install(bad)
    assert target.tree() == before


# --- what stands in the way


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


def test_relative_prefix_is_refused(target):
    target.prefix = "opt/cdi"
    with pytest.raises(CdiError, match="^prefix: found 'opt/cdi'; expected an absolute path"):
        target.install(target.release())


def test_own_symlink_above_the_prefix_is_followed(target):
    (target.directory / "real").mkdir()
    (target.directory / "opt").symlink_to("real")
    release = target.release()
    target.install(release)
    assert target.says() == release.id


def test_processes_do_not_interleave(target):
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
    with pytest.raises(CdiError, match=r"opt: can't make it: Read-only file system\. Choose another place"):
        target.install(release)
