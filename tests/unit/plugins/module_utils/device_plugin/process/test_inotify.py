# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel is asked to watch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import inotify


@pytest.fixture
def watch() -> Iterator[inotify.Inotify]:
    made = inotify.Inotify()
    yield made
    made.close()


def test_only_a_directory_is_watched(watch: inotify.Inotify, tmp_path: Path) -> None:
    """Somebody may have put a file, or a FIFO, in its place."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        watch.add(str(tmp_path / "file"), inotify.CREATE)


def test_who_watches_a_directory_too_takes_nothing_from_the_others(watch: inotify.Inotify, tmp_path: Path) -> None:
    assert watch.add(str(tmp_path), inotify.CREATE) == watch.add(str(tmp_path), inotify.DELETE)
    (tmp_path / "file").write_text("")
    (tmp_path / "file").unlink()
    assert [mask for _descriptor, mask in watch.read()] == [inotify.CREATE, inotify.DELETE]
