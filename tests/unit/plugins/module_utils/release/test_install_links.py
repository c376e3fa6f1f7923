# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links of an installation: the command on the PATH, the manual page and the completion of shells."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import install, integrity, tree


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


@pytest.mark.parametrize("check", [True, False])
def test_where_no_link_can_be_made_nothing_is(target, on_path, monkeypatch, check):
    """A read-only /usr, as of image-based systems."""
    release = target.release()
    before = target.tree()
    check_directory = files.check_directory

    def read_only(path):
        if path == str(on_path.parent):
            raise CdiError(f"{path}: can't write into it: Read-only file system")
        check_directory(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "check_directory", read_only)
        with pytest.raises(CdiError, match=f"{on_path.parent}: can't write into it"):
            target.install(release, check=check)
        assert target.tree() == before
    target.install(release)
    monkeypatch.setattr(files, "check_directory", read_only)
    installed = target.tree()
    with pytest.raises(CdiError, match=f"{on_path.parent}: can't write into it"):
        target.remove(check=check)
    assert target.tree() == installed


@pytest.mark.counterpart("acl")
@pytest.mark.usefixtures("on_path")
def test_nobody_else_may_write_into_the_directories_of_the_links(target, tmp_path):
    """Root's shell runs what lies in that of completions."""
    subprocess.run(["setfacl", "-d", "-m", "u:1000:rwx", tmp_path], check=True)
    target.install(target.release())
    made = [path for path in (tmp_path / "usr").rglob("*") if path.is_dir() and not path.is_symlink()]
    assert len(made) > 5 and [path for path in made if path.stat().st_mode & 0o022] == []


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
