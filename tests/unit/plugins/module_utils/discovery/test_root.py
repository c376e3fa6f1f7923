# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths below a root directory are what a process whose root it is would see."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import nvidia_nodes
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import elf, snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.profiles import nvidia_hooks
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.profiles.nvidia_driver import Files
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.root import Root
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.file import from_file
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


@pytest.mark.parametrize(
    "target",
    ["../../opt/file", "../../../../opt/file", "/opt/file", "/opt/../opt/file", "//opt//file", "../.././../opt/./file"],
)
def test_links_that_climb_to_the_root_and_down_again(tmp_path, target):
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/file").write_text("text")
    (tmp_path / "usr/lib/link").symlink_to(target)
    root = Root(str(tmp_path))
    resolved = root.resolve("/usr/lib/link")
    assert resolved == "/opt/file"
    assert root.read(resolved) == b"text"
    assert root.resolve("/usr/lib/../../..") == ""


def hostile_chain(directory, last, links=6):
    """chain0 -> chain1/a/../a/.. ... -> and so on to `last`, each link with about as many parts as it may have."""
    for number in range(links):
        target = f"chain{number + 1}" if number + 1 < links else last
        (directory / f"chain{number}").symlink_to(target + "/a/.." * 98)


class TestLinksThatAreMany:
    """Who fills a driver's root or made a dump chooses its links: the same as what the kernel makes of them."""

    def test_a_chain_that_leads_to_a_directory(self, tmp_path):
        hostile_chain(tmp_path, "top")
        (tmp_path / "top/a").mkdir(parents=True)
        assert os.path.samefile(tmp_path / "chain0", tmp_path / "top")
        assert Root(str(tmp_path)).resolve("/chain0/a") == "/top/a"

    def test_a_chain_in_a_circle(self, tmp_path):
        hostile_chain(tmp_path, "chain0")
        for look in (Root(str(tmp_path)).stat, lambda path: os.stat(f"{tmp_path}{path}")):
            with pytest.raises(OSError, match="[Tt]oo many levels of symbolic links") as caught:
                look("/chain0")
            assert caught.value.errno == errno.ELOOP

    def test_a_chain_that_leads_nowhere(self, tmp_path):
        hostile_chain(tmp_path, "none")
        for path in ("/chain0", "/chain0/file"):
            with pytest.raises(FileNotFoundError):
                Root(str(tmp_path)).resolve(path)
        assert Root(str(tmp_path)).names("/chain0") == []

    @pytest.mark.parametrize(("links", "opens"), [(40, True), (41, False)])
    def test_forty_links_are_followed_as_by_the_kernel(self, tmp_path, links, opens):
        """However many of them the root remembers."""
        for number in range(links):
            (tmp_path / f"l{number}").symlink_to(f"l{number + 1}")
        (tmp_path / f"l{links}").touch()
        root = Root(str(tmp_path))
        assert root.resolve("/l30") == f"/l{links}"
        for path in ("/l0", "/l0"):
            if opens:
                assert root.resolve(path) == f"/l{links}"
                os.stat(tmp_path / "l0")
                continue
            with pytest.raises(OSError, match="levels of symbolic links"):
                root.resolve(path)
            with pytest.raises(OSError, match="levels of symbolic links"):
                os.stat(tmp_path / "l0")

    def test_a_path_with_thousands_of_parts(self, tmp_path):
        (tmp_path / "a").mkdir()
        assert Root(str(tmp_path)).resolve("/a/../." * 2000 + "/a") == "/a"

    def test_a_link_is_read_once(self, tmp_path, monkeypatch):
        (tmp_path / "real/below").mkdir(parents=True)
        (tmp_path / "link").symlink_to("real")
        real, read = os.readlink, []
        monkeypatch.setattr(os, "readlink", lambda path: (read.append(path), real(path))[1])
        root = Root(str(tmp_path))
        for path in ("/link/below", "/link", "/real/below", "/link/below", "/link/../link/below"):
            root.resolve(path)
        assert sorted(read) == [f"{tmp_path}/{name}" for name in ("link", "real", "real/below")]

    def test_of_the_files_of_a_driver(self, tmp_path):
        hostile_chain(tmp_path, "none")
        assert Files(Root(str(tmp_path)), "/").find(["/", "/chain0"], "chain0") == []
        assert Files(Root(str(tmp_path)), "/chain0").find(["/"], "lib*") == []

    def test_of_a_dump(self, tmp_path):
        (tmp_path / "sys/class").mkdir(parents=True)
        (tmp_path / "sys/bus").mkdir()
        hostile_chain(tmp_path / "sys/class", "none")
        (tmp_path / "sys/class/drm").symlink_to("chain0")
        assert list(snapshot.take(str(tmp_path)).members("drm")) == []


@pytest.mark.parametrize("text", ["\0", "\ud800"])
class TestTextThatIsNoPath:
    """NUL, and half of a surrogate pair, which JSON can hold: the kernel has no file of such a name."""

    def test_as_the_root(self, tmp_path, text):
        with pytest.raises(CdiError, match="found no sys/class and no sys/bus below it"):
            snapshot.take(f"{tmp_path}/{text}")
        assert nvidia_nodes.missing_nodes(f"{tmp_path}/{text}") == ()

    @pytest.mark.parametrize("path", ["/{}", "/{}/file"])
    def test_below_the_root(self, tmp_path, text, path):
        root, path = Root(str(tmp_path)), path.format(text)
        for look in (root.resolve, root.read, root.stat, root.lstat):
            with pytest.raises(FileNotFoundError):
                look(path)
        assert root.readlink(path) == "" and root.names(path) == []
        assert root.table(path) == []

    def test_as_the_root_of_a_driver(self, tmp_path, text):
        assert Files(Root(str(tmp_path)), f"/{text}").find(["/"], "lib") == []

    def test_as_the_topology_file(self, tmp_path, text):
        with pytest.raises(CdiError, match="can't be read .no file can have this name.; expected a topology file"):
            from_file(f"/{text}", Root(str(tmp_path)))


def test_a_file_that_the_kernel_gives_in_pieces_is_read_to_its_end(tmp_path, monkeypatch):
    """A table of /proc comes by the page; 4311f5b8 saw 64 of 83 mounts, and the disks of the others as free."""
    real = os.read
    monkeypatch.setattr(os, "read", lambda handle, most: real(handle, min(most, 4096)))
    (tmp_path / "table").write_bytes(b"x" * 10_000)
    root = Root(str(tmp_path))
    assert root.read("/table") == root.read("/table", 10_000) == b"x" * 10_000
    with pytest.raises(OSError, match="larger than such a file can be"):
        root.read("/table", 9_999)


def test_a_table_has_fields_between_blanks_and_tabs_alone(tmp_path):
    (tmp_path / "table").write_bytes("a  b\tc\n\n d\v-\u2028e\x85\xa0f \r\nlast".encode())
    root = Root(str(tmp_path))
    assert root.table("/table") == [["a", "b", "c"], ["d\v-\u2028e\x85\xa0f", "\r"], ["last"]]
    assert root.table("/none") == root.table("/table/none") == []
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        root.table("/folder")


READERS = {
    "an attribute": lambda root: root.read("/sys/odd"),
    "a library": lambda root: elf.soname(f"{root.prefix}/sys/odd"),
    "a driver's library": lambda root: nvidia_hooks._named_in(Files(root, ""), "/sys/odd", ["name"]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFCHR])
def test_what_is_no_file_is_not_opened(tmp_path, monkeypatch, reader, kind):
    """A dump or an image is foreign: to open a device starts a watchdog, winds a tape."""
    if kind == stat.S_IFCHR and os.geteuid() != 0:
        pytest.skip("only root makes device nodes")
    (tmp_path / "sys").mkdir()
    os.mknod(tmp_path / "sys/odd", 0o600 | kind, os.makedev(1, 5))
    real, opened = os.open, []
    monkeypatch.setattr(os, "open", lambda path, *more, **at: (opened.append(path), real(path, *more, **at))[1])
    with suppress(OSError):
        assert not READERS[reader](Root(str(tmp_path)))
    assert opened == []
