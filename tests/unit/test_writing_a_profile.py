# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of docs/writing-a-profile.md, typed in a copy of this checkout."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import mirror  # tests/harness
import page
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.mark.skipif(not shutil.which("antsibull-changelog", path=PATH), reason="antsibull-changelog is not installed")
def test_every_command_of_the_page(tmp_path):
    copy = tmp_path / "checkout"
    mirror.mirror(CHECKOUT, copy)
    link = copy / "build/pythonpath/ansible_collections/fleet/cdi"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../../..")
    environment = {"PATH": PATH, "HOME": str(tmp_path)}
    assert page.run(CHECKOUT / "docs/writing-a-profile.md", copy, environment, seconds=600.0) == 8
    assert (copy / "plugins/module_utils/discovery/profiles/watchdog.py").is_file()
    assert "watchdog" in (copy / "plugins/modules/device_info.py").read_text(encoding="utf-8")
