# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installation on a real file system with a real interpreter, roll-back and removal: what is there afterwards."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import PROFILES as PLUGINS
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, guard, install, sums

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


def test_where_selinux_is_on_the_policy_labels_what_is_new(target, tmp_path, monkeypatch):
    """restorecon is asked once the links are made, and before the release is active; it may be missing."""
    said = tmp_path / "said"
    program = tmp_path / "restorecon"
    program.write_text(f'#!/bin/sh\necho "$@" $(ls {target.lib}) >> {said}\nexit 1\n', encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setattr(install.files, "RESTORECON", str(program))
    first, second, third = (target.release(version) for version in ("1.0.0", "2.0.0", "3.0.0"))
    target.install(first)
    assert not said.exists()
    monkeypatch.setattr(install.files, "ENFORCE", str(program))
    target.install(second)
    target.install(second)
    (line,) = said.read_text(encoding="ascii").splitlines()
    assert line.startswith(f"-R {target.prefix} ") and second.id in line
    program.unlink()
    assert target.install(third).changed and target.says() == third.id


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


@pytest.mark.parametrize("inherits", [False, pytest.param(True, marks=pytest.mark.counterpart("acl"))])
def test_nobody_else_may_write_a_file_while_it_is_made_whatever_the_umask(target, run, inherits):
    """Who opens one then keeps the descriptor, and can change later what root runs."""
    writable = set()
    if inherits:  # what is made below is open to a user, whom the umask does not limit
        subprocess.run(["setfacl", "-d", "-m", "u:1000:rwx", target.directory], check=True)

    def watched(command):
        done = run(command)
        made = [path for path in Path(target.prefix).rglob("*") if not path.is_symlink()]
        writable.update(f"{path.name} after {command[-1]}" for path in made if path.stat().st_mode & 0o022)
        return done

    before = os.umask(0)
    try:
        target.install(target.release(), run=watched)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert not writable


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


def test_other_paths_only_rewrite_the_launchers_and_the_manual_page(target):
    release = target.release()
    target.install(release)
    before = target.tree()
    outcome = target.install(release, archive=False, inventory="/srv/inventory.json")
    assert outcome.changed
    assert {path for path, entry in target.tree().items() if before.get(path) != entry} == {
        f"opt/cdi/lib/{release.id}/{name}"
        for name in (
            "SHA256SUMS",
            "share/fleet-cdi.8",
            "bin/fleet-cdi",
            "bin/slurm-job",
            *(f"bin/{one}" for one in PLUGINS),
        )
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
    (target.lib / release.id / sums.SUMS).write_bytes(sums.render(str(target.lib / release.id)))
    outcome = target.install(release, archive=False)
    assert outcome.changed
    assert outcome.before["byte_code"] == ["cpython-30"]
    assert outcome.after["byte_code"] == sorted(["cpython-30", target.python.tag])
    assert not target.install(release, archive=False).changed


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
    launcher.write_text(text.replace("import os\n", "raise SystemExit(3)\n", 1))
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


def test_a_prefix_may_have_any_character_in_its_name(target):
    """The record of the directories counted as damaged, so a removal left them."""
    target.prefix = f"{target.directory}/o\npt"
    target.install(target.release())
    assert target.remove().changed and not os.path.lexists(target.prefix)


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
