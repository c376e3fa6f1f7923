# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests write on a node stays on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from node import Node


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("place", ["etc", "opt", "usr/local/bin", "usr/local/share", "var/lib"])
@pytest.mark.parametrize("has_programs", [False, True])
def test_the_machine_does_not_get_it(tmp_path, place, has_programs):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "program").touch()
    node = Node(tmp_path / "node", programs if has_programs else "")
    written = Path("/", place, f"fleet-cdi-{tmp_path.name}")
    try:
        node.run("touch", written)
        assert node.path(written).exists() and not written.exists()
        assert not has_programs or node.path("/usr/local/bin/program").exists()
        assert os.listdir(programs) == ["program"]
    finally:
        node.close()
        written.unlink(missing_ok=True)
