# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever an image holds, and whoever changes it meanwhile: nothing outside of the container's root is touched."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.hooks import container_root
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.container_root import ContainerRoot
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError

from .conftest import tree

NAMES = st.sampled_from(["a", "b", "c", "etc", "proc"])
PATHS = st.lists(st.one_of(NAMES, st.just(".."), st.just(".")), min_size=1, max_size=5).map("/".join)
# OUT stands for the directory beside the root directory, by its absolute path.
OUTSIDE = ("OUT", "OUT/a", "../out", "../../../out/a", "/../OUT")
TARGETS = st.one_of(PATHS, PATHS.map("/{}".format), st.sampled_from(OUTSIDE))
PLACES = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
IMAGES = st.dictionaries(PLACES, st.one_of(TARGETS, st.none()), max_size=8)


def fill(root, out, image):
    """An image with these symlinks, and directories where it says None."""
    for name, target in image.items():
        path = root / name
        try:
            if not path.parent.resolve().is_relative_to(root):
                continue  # the kernel would follow a link out of it, while it is made
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if target is None else path.symlink_to(target.replace("OUT", str(out)))
        except (OSError, RuntimeError):  # it has one of that name, or a circle
            continue


def attempt(action, *arguments):
    try:
        return action(*arguments)
    except (HookError, OSError):
        return None


@settings(max_examples=100, deadline=None)
@given(IMAGES, PATHS.map("/{}".format))
@example({"a": "OUT"}, "/a/a")
@example({"a": "../../out"}, "/a/a")
@example({"a": "b", "b": "OUT/a"}, "/a")
@example({"a/b": "/c", "c": "../../../OUT"}, "/a/b/a")
def test_no_path_leads_out(image, path):
    directory = Path(tempfile.mkdtemp())
    try:
        root, out = directory / "root", directory / "out"
        root.mkdir()
        (out / "a").mkdir(parents=True)
        (out / "a/file").write_text("of the host")
        fill(root, out, image)
        before = tree(out)
        inside = ContainerRoot(os.fsencode(root))
        attempt(inside.link, "target", path)
        attempt(inside.write, path, "text")
        assert attempt(inside.read, path) != "of the host"
        assert "file" not in (attempt(inside.names, path) or ())
        attempt(inside.link, "target", f"{path}/more")
        attempt(inside.write, f"{path}/file", "text")
        found = attempt(inside.find, path)
        if found:
            assert Path(os.readlink(f"/proc/self/fd/{found[0]}")).is_relative_to(root)
        os.close(inside.root)
        assert tree(out) == before and sorted(os.listdir(directory)) == ["out", "root"]
    finally:
        shutil.rmtree(directory)


@given(st.lists(NAMES.filter(lambda name: name != "proc"), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_without_links_it_is_just_the_path(names):
    with tempfile.TemporaryDirectory() as directory:
        inside = ContainerRoot(os.fsencode(directory))
        inside.link("target", "/" + "/".join(names))
        assert os.readlink(os.path.join(directory, *names)) == "target"
        inside.link("other", "/" + "/".join(names))
        assert os.readlink(os.path.join(directory, *names)) == "other"
        os.close(inside.root)


def test_a_part_that_becomes_a_symlink_while_it_is_walked(tmp_path):
    """Another container shares the volume, and swaps a directory of it for a link to the host, again and again."""
    root, out = tmp_path / "root", tmp_path / "out"
    (root / "volume/real").mkdir(parents=True)
    out.mkdir()
    (root / "link").symlink_to(out)
    swap, over = root / "volume/swap", threading.Event()

    def change():
        while not over.is_set():
            for target in (str(out), "real", f"../../{out.name}"):
                attempt(os.symlink, target, swap)
                attempt(os.unlink, swap)
                attempt(os.mkdir, swap)
                shutil.rmtree(swap, ignore_errors=True)

    other = threading.Thread(target=change)
    other.start()
    inside = ContainerRoot(os.fsencode(root))
    done = 0
    try:
        for number in range(2000):
            try:
                inside.link("target", f"/volume/swap/{number}")
                done += 1
            except OSError:
                continue
    finally:
        over.set()
        other.join()
    assert done and not os.listdir(out)


def test_descriptors_are_given_back(tmp_path):
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep/../deep/er")
    (tmp_path / "file").write_text("text")
    inside = ContainerRoot(os.fsencode(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        inside.link(str(number), "/link/a")
        inside.write("/link/b", str(number))
        assert (inside.read("/file"), inside.names("/link"), inside.has("/no")) == ("text", ["a", "b"], False)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("method", "arguments", "outcome"),
    [
        ("read", ["/deep/er/no"], ""),  # as a file that ld.so.conf includes: there may be a thousand of them
        ("read", ["/deep/no/no"], ""),
        ("read", ["/file/no"], ""),
        ("names", ["/deep/no"], []),
        ("has", ["/deep/er/no"], False),
        ("find", ["/deep/no/no"], FileNotFoundError),
        ("read", ["/deep/../proc/a"], HookError),
        ("read", ["/circle"], HookError),
        ("link", ["text", "/more" * 300], HookError),
        ("link", ["text", "/deep/er"], IsADirectoryError),
        ("write", ["/deep/er", "text"], IsADirectoryError),
        ("link", ["text", "/deep/taken"], FileExistsError),
        ("write", ["/deep/taken", "text"], FileExistsError),
    ],
)
def test_descriptors_are_given_back_by_what_fails(tmp_path, monkeypatch, method, arguments, outcome):
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    inside = ContainerRoot(os.fsencode(tmp_path))
    if outcome is FileExistsError:
        monkeypatch.setattr(container_root, "_temporary", lambda: "er")
    before = os.listdir("/proc/self/fd")
    if isinstance(outcome, type):
        with pytest.raises(outcome):
            getattr(inside, method)(*arguments)
    else:
        assert getattr(inside, method)(*arguments) == outcome
    assert os.listdir("/proc/self/fd") == before
    os.close(inside.root)


def test_only_files_and_directories_are_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(HookError, match="/fifo: is not a file of the container"):
        ContainerRoot(os.fsencode(tmp_path)).read("/fifo")


def test_forty_links_lead_to_a_file_and_no_more(tmp_path):
    (tmp_path / "0").write_text("text")
    for number in range(1, 42):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    inside = ContainerRoot(os.fsencode(tmp_path))
    assert inside.read("/40") == "text"
    with pytest.raises(HookError, match="/41: more than 40 symlinks lead to it, perhaps in a circle"):
        inside.read("/41")


def test_what_another_one_put_at_the_name_of_the_new_file_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(container_root, "_temporary", lambda: "new")
    (tmp_path / "new").write_text("theirs")
    with pytest.raises(FileExistsError):
        ContainerRoot(os.fsencode(tmp_path)).write("/file", "ours")
    assert (tmp_path / "new").read_text() == "theirs"


def test_a_link_does_not_lead_as_deep_as_it_likes(tmp_path):
    (tmp_path / "link").symlink_to("a/" * 2000)
    with pytest.raises(HookError, match="/link/b: leads more than 256 directories deep in the image"):
        ContainerRoot(os.fsencode(tmp_path)).link("target", "/link/b")
    deep = "/".join("a" * 255)
    ContainerRoot(os.fsencode(tmp_path)).link("target", f"/{deep}/b")
    assert os.readlink(f"{tmp_path}/{deep}/b") == "target"
