# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths below a root directory are what a process whose root it is would see."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import elf
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.profiles import nvidia_hooks
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.profiles.nvidia_driver import Files
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.root import Root


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
