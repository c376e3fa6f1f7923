# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installation on a real file system with a real interpreter: what is there afterwards, whatever went wrong."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import PROFILES as PLUGINS
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, guard, install, integrity, sums, tree

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


# --- the command on the PATH


@pytest.fixture
def on_path(target, tmp_path, monkeypatch):
    """The link, below the test's directory; the target's prefix is the usual one."""
    path = tmp_path / "usr/local/bin/fleet-cdi"
    for module in (tree, install, integrity):
        monkeypatch.setattr(module, "ON_PATH", str(path))
    for link, page in list(tree.SHARED.items()):
        monkeypatch.delitem(tree.SHARED, link)
        monkeypatch.setitem(tree.SHARED, f"{tmp_path}{link}", page)
    monkeypatch.setattr(install, "USUAL", Layout(prefix=target.prefix))
    return path


def test_the_command_is_on_the_path_until_it_is_removed(target, on_path):
    release = target.release()
    preview = target.install(release, check=True)
    assert (preview.after["on_path"], on_path.exists()) == (str(on_path), False)
    target.install(release)
    command = f"{target.prefix}/bin/fleet-cdi"
    assert os.readlink(on_path) == command
    assert not target.install(release).changed
    assert integrity.of_links(target.prefix) == ()
    on_path.unlink()
    assert integrity.of_links(target.prefix) == (
        (str(on_path), f"is gone, so that {command} is not on the PATH", True),
    )
    on_path.write_text("theirs")
    ((_path, problem, _gone),) = integrity.of_links(target.prefix)
    assert problem == f"was changed: it was installed as a link to {command}"
    assert integrity.faults(target.prefix) == ()  # the release itself is whole
    on_path.unlink()
    assert target.install(release).changed and on_path.is_symlink()
    target.remove()
    assert not os.path.lexists(on_path)


def test_it_can_be_done_without_and_stays_so(target, on_path):
    release = target.release()
    target.install(release)
    assert target.install(release, on_path=False).changed
    assert not os.path.lexists(on_path)
    assert not target.install(release).changed  # another role, which says nothing of it
    assert not target.install(release, on_path=False).changed
    assert target.install(release, on_path=True).changed and on_path.is_symlink()


def test_what_others_have_there_is_refused_and_stays(target, on_path):
    on_path.parent.mkdir(parents=True)
    on_path.write_text("theirs")
    with pytest.raises(CdiError, match=r"fleet-cdi: is there already and is not ours; .* command_link: false"):
        target.install(target.release())
    assert target.install(target.release(), on_path=False).changed
    target.remove()
    assert on_path.read_text() == "theirs"


def test_a_link_that_others_made_does_and_stays(target, on_path):
    on_path.parent.mkdir(parents=True)
    on_path.symlink_to(f"{target.prefix}/bin/fleet-cdi")
    target.install(target.release())
    assert not target.install(target.release()).changed
    on_path.unlink()  # then it is not there, and nobody said that it shall not be
    assert target.install(target.release()).changed and on_path.is_symlink()
    target.remove()
    assert not os.path.lexists(on_path)


def test_a_removal_leaves_the_link_of_others(target, on_path):
    on_path.parent.mkdir(parents=True)
    on_path.symlink_to(f"{target.prefix}/bin/fleet-cdi")
    target.install(target.release())
    target.remove()
    assert on_path.is_symlink()


def test_under_another_prefix_there_is_none(target, on_path, monkeypatch):
    monkeypatch.setattr(install, "USUAL", Layout())
    target.install(target.release(), on_path=True)
    assert not os.path.lexists(on_path)


# --- the manual page, and the completion of shells


def pages():
    """The links that exist: link -> the first line of the page behind it."""
    return {link: Path(link).read_text().splitlines()[0] for link in tree.SHARED if os.path.lexists(link)}


@pytest.mark.usefixtures("on_path")
def test_man_and_shells_find_the_pages_until_the_removal(target, tmp_path):
    release = target.release()
    preview = target.install(release, check=True)
    assert preview.after["shared"] == sorted(tree.SHARED) and not pages()
    (tmp_path / "usr/local/share/man").mkdir(parents=True)
    assert target.install(release).after["shared"] == sorted(tree.SHARED)
    first = {tree.SHARED[link]: line for link, line in pages().items()}
    assert first["fleet-cdi.8"].startswith(".TH FLEET") and first["fleet-cdi.zsh"] == "#compdef fleet-cdi"
    assert "bash completion" in first["fleet-cdi.bash"]
    assert not target.install(release).changed
    assert integrity.of_links(target.prefix) == () and integrity.faults(target.prefix) == ()
    for mode in ({os.stat(link).st_mode & 0o777} for link in tree.SHARED):
        assert mode == {0o644}
    target.install(target.release("2.0.0"))
    assert len(pages()) == 3
    target.remove()
    assert not pages() and os.listdir(tmp_path / "usr/local/share") == ["man"]


@pytest.mark.usefixtures("on_path")
def test_users_find_the_pages_for_any_umask_of_root(target):
    before = os.umask(0o077)
    try:
        target.install(target.release())
    finally:
        os.umask(before)
    for link in tree.SHARED:
        assert os.stat(os.path.dirname(link)).st_mode & 0o777 == 0o755
        assert os.stat(link).st_mode & 0o777 == 0o644


@pytest.mark.usefixtures("on_path")
def test_a_page_that_others_have_there_stays(target):
    theirs, gone, changed = map(Path, sorted(tree.SHARED))
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs\n")
    release = target.release()
    target.install(release)
    assert pages()[str(theirs)] == "theirs" and not target.install(release).changed
    gone.unlink()
    changed.unlink()
    changed.write_text("changed\n")
    found = {fault.path: fault.gone for fault in integrity.of_links(target.prefix)}
    assert found == {str(gone): True, str(changed): False}
    assert target.install(release).changed and gone.is_symlink() and not target.install(release).changed
    assert integrity.of_links(target.prefix) == ()
    target.remove()
    assert pages() == {str(theirs): "theirs", str(changed): "changed"}


@pytest.mark.usefixtures("on_path")
def test_without_the_command_on_the_path_there_are_no_pages(target):
    release = target.release()
    target.install(release)
    assert target.install(release, on_path=False).changed
    assert not pages()
    assert not target.install(release).changed and not pages()
    assert target.install(release, on_path=True).changed and len(pages()) == 3


@pytest.mark.usefixtures("on_path")
def test_a_damaged_page_is_found_and_made_again(target):
    release = target.release()
    target.install(release)
    page = target.lib / release.id / "share/fleet-cdi.8"
    page.write_text("")
    assert str(page) in {fault.path for fault in integrity.faults(target.prefix)}
    assert target.install(release).changed and page.read_text()


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
    assert not list(target.lib.glob(f"*{release.id.rpartition('-')[2]}*"))


def test_archive_can_not_write_elsewhere(target):
    release = target.release()
    evil = release._replace(sources={**release.sources, "../../../evil.py": b""})
    with pytest.raises(CdiError, match=r"evil\.py: is not a source file of a release"):
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


@pytest.mark.parametrize("lost", ["mode of a launcher", "record"])
def test_damage_that_the_doctor_finds_is_repaired(target, lost):
    """Without the archive: the sources are whole."""
    release = target.release()
    target.install(release)
    if lost == "record":
        (target.lib / ".fleet-cdi.json").unlink()
    else:
        os.chmod(target.lib / release.id / "bin/cdi-hook", 0o644)
    assert integrity.faults(target.prefix)
    assert target.install(release, check=True).changed
    outcome = target.install(release, archive=False)
    assert (outcome.changed, outcome.needs_archive) == (True, False)
    assert integrity.faults(target.prefix) == ()
    assert not target.install(release, archive=False).changed
