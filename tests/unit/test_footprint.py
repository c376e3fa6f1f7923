# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the harness sees of a host that tests must leave as it was. Who left something: test_parts.py."""

from __future__ import annotations

import os

import footprint  # tests/harness
import pytest

CHANGES = {
    "a new file": (lambda root: (root / "etc/cdi/new.json").write_text("{}"), "etc/cdi/new.json: is new"),
    "a file that is gone": (lambda root: (root / "etc/cdi/theirs.json").unlink(), "etc/cdi/theirs.json: is gone"),
    "other content": (lambda root: (root / "etc/docker/daemon.json").write_text("[]"), "daemon.json: was changed"),
    "another mode": (lambda root: (root / "etc/docker/daemon.json").chmod(0o600), "daemon.json: was changed"),
    "another target": (lambda root: _link(root, "elsewhere"), "run/cdi: was changed"),
    "a file below": (lambda root: _write(root / "etc/cdi/tty.d/mine.conf"), "etc/cdi/tty.d/mine.conf: is new"),
}


def _link(root, target):
    (root / "run/cdi").unlink(missing_ok=True)
    (root / "run/cdi").symlink_to(target)


def _write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


@pytest.fixture
def root(tmp_path):
    """A host with things of somebody else's."""
    for path in ("etc/cdi/theirs.json", "etc/docker/daemon.json"):
        _write(tmp_path / path)
    (tmp_path / "run").mkdir()
    _link(tmp_path, "somewhere")
    return tmp_path


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_named(root, change):
    before = footprint.look(str(root))
    do, line = CHANGES[change]
    do(root)
    (found,) = footprint.changes(before, footprint.look(str(root)))
    assert found.endswith(line)


def test_what_does_not_count(root):
    before = footprint.look(str(root))
    (root / "opt/cdi").mkdir(parents=True)  # the place of a mount
    _write(root / "home/user/file")
    os.utime(root / "etc/cdi/theirs.json")
    assert footprint.changes(before, footprint.look(str(root))) == []
