# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damage to an installation is repaired, and an archive or release that is damaged is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, install, integrity


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


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            {"records": "raise SystemExit('I am broken')\n"},
            r"--version failed \(exit status 1: I am broken\); release 2\.0\.0-",
        ),
        ({"extra": "match = case:\n"}, r"can't byte-compile the release.*extra\.py"),
    ],
    ids=["does not run", "does not compile"],
)
def test_broken_release_is_not_activated(target, fault, says):
    good, bad = target.release("1.0.0"), target.release("2.0.0", **fault)
    target.install(good)
    before = target.tree()
    with pytest.raises(CdiError, match=says):
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
