# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make release`: which commits it refuses to release. tests/integration/test_release.py makes one."""

from __future__ import annotations

import built_release
import procedure
import pytest


@pytest.fixture
def checkout(repository, tmp_path):
    """A clone that can become release 0.1.0."""
    place = tmp_path / "clone"
    built_release.git(tmp_path, "clone", "--quiet", repository, place)
    return place


def refusal(checkout, version="0.1.0"):
    with pytest.raises(procedure.Refused) as refused:
        procedure.check(checkout, version)
    return str(refused.value)


def test_a_clean_commit_with_the_right_version_is_accepted(checkout):
    procedure.check(checkout, "0.1.0")


def test_changes_that_are_not_committed_are_refused(checkout):
    (checkout / "plugins/more.py").write_text("")
    assert "changes that are not committed, as ?? plugins/more.py" in refusal(checkout)


def test_a_tag_that_exists_is_refused(checkout):
    built_release.git(checkout, "tag", "0.1.0")
    assert "tag 0.1.0 exists" in refusal(checkout)


def test_each_place_with_another_version_is_named(checkout):
    said = refusal(checkout, "0.2.0")
    for place in ("galaxy.yml", "plugins/module_utils/release/version.py", "examples/kubernetes/daemonset.yaml"):
        assert f"{place}: has version 0.1.0; expected 0.2.0" in said


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "01.2.3", "1.2.3 "])
def test_what_galaxy_does_not_take_for_a_version_is_refused(checkout, version):
    assert "expected a version as 1.2.3" in refusal(checkout, version)


@pytest.mark.parametrize(
    ("branch", "version", "said"),
    [
        ("main", "0.1.1", ""),
        ("main", "1.2.0", ""),
        ("stable-1.2", "1.2.1", ""),
        ("main", "1.2.1", "branch main: has the next minor release; expected stable-1.2 for 1.2.1"),
        ("stable-1.1", "1.2.1", "branch stable-1.1: has the next minor release; expected stable-1.2 for 1.2.1"),
        ("stable-1.2", "1.3.0", "branch stable-1.2: has fixes alone; expected main for 1.3.0"),
        ("main", "2.0.0-rc.1", ""),
        ("stable-1.2", "2.0.0-rc.1", "branch stable-1.2: has fixes alone; expected main for 2.0.0-rc.1"),
        ("", "1.2.1", "branch (none): has the next minor release; expected stable-1.2 for 1.2.1"),
    ],
)
def test_a_version_comes_from_its_branch(checkout, branch, version, said):
    built_release.git(checkout, "checkout", "--quiet", *(["-B", branch] if branch else ["--detach"]))
    assert procedure.wrong_branch(checkout, version) == said
    assert not said or said in refusal(checkout, version)


def test_a_minor_release_from_1_0_on_opens_a_branch_for_its_fixes(checkout):
    head = built_release.git(checkout, "rev-parse", "HEAD")
    for version, opened in (("0.1.0", []), ("1.2.0-rc.1", []), ("1.2.0", ["stable-1.2"]), ("1.2.1", [])):
        built_release.git(checkout, "tag", version)
        assert procedure.open_branch(checkout, version) == opened
    assert built_release.git(checkout, "rev-parse", "stable-1.2") == head


def test_a_release_without_a_change_for_users_is_refused(checkout):
    for path in (checkout / "changelogs/fragments").glob("*.yml"):
        path.unlink()
    built_release.git(checkout, "commit", "--quiet", "--all", "--message", "No fragments")
    assert "changelogs/fragments: is empty" in refusal(checkout)


def test_a_version_that_the_changelog_has_is_refused(checkout):
    (checkout / "changelogs/changelog.yaml").write_text("---\nancestor: null\nreleases:\n  0.1.0: {}\n")
    built_release.git(checkout, "commit", "--quiet", "--all", "--message", "Changelog")
    assert "changelog.yaml: has 0.1.0 already" in refusal(checkout)


def test_without_a_list_of_signers_nothing_is_released(checkout, tmp_path):
    with pytest.raises(procedure.Refused, match="release/signers: is missing"):
        procedure.release(checkout, "0.1.0", tmp_path / "key")
    assert built_release.git(checkout, "tag") == "" and not (checkout / "build").exists()
