# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change that users see needs a fragment: the check, in small repositories."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import changelog
import pytest

CHANGES = {
    # name: (files that the branch writes, or removes if the content is None; what is missing)
    "nothing": ({}, []),
    "a page": ({"docs/a.md": "x"}, []),
    "code without a fragment": ({"plugins/modules/m.py": "x"}, ["plugins/modules/m.py"]),
    "code with a fragment": ({"plugins/modules/m.py": "x", "changelogs/fragments/m.yml": "bugfixes: [x]"}, []),
    "code with a changed fragment": ({"plugins/modules/m.py": "x", "changelogs/fragments/old.yml": "changed"}, []),
    "code that is removed": ({"roles/r/tasks/main.yml": None}, ["roles/r/tasks/main.yml"]),
    "a fragment that is removed": (
        {"changelogs/fragments/old.yml": None, "playbooks/p.yml": "x"},
        ["playbooks/p.yml"],
    ),
    "a release": (
        {"changelogs/fragments/old.yml": None, "changelogs/changelog.yaml": "x", "meta/runtime.yml": "x"},
        [],
    ),
}


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., None]:
    """A repository with some files on main, and a branch of it: git(words)."""

    def git(*words: str) -> None:
        user = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", "-C", str(tmp_path), *user, *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for name in ("roles/r/tasks/main.yml", "changelogs/fragments/old.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("was")
    git("add", "-A")
    git("commit", "-qm", "was")
    git("branch", "work")
    # main goes on, which is not a change of the branch.
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/other.py").write_text("x")
    git("add", "-A")
    git("commit", "-qm", "other")
    git("checkout", "-q", "work")
    return git


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_what_users_see_needs_a_fragment(
    name: str, is_committed: bool, repository: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, missing = CHANGES[name]
    for path, content in files.items():
        if content is None:
            (tmp_path / path).unlink()
        else:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content)
    if is_committed:
        repository("add", "-A")
        repository("commit", "-q", "--allow-empty", "-m", "change")
    assert changelog.main("main", str(tmp_path)) == int(bool(missing))
    said = capsys.readouterr().out
    assert all(path in said for path in missing) and "plugins/other.py" not in said
