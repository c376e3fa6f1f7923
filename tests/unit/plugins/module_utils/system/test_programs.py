# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may change a program: paths and links; what happens then is in claims/test_calls_of_bad_executables.py."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.system import programs


@pytest.mark.parametrize("link", ["bin/program", "../{}/bin/program", "{}/./bin//program", "other/../bin/program"])
def test_links_lead_to_it(tmp_path, link):
    for name in ("bin", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin/program").touch(0o755)
    (tmp_path / "link").symlink_to(link.format(tmp_path.name if link.startswith("..") else tmp_path))
    (tmp_path / "other/next").symlink_to("../link")
    programs.check(str(tmp_path / "other/next"))


@pytest.mark.parametrize(
    ("path", "says"),
    [("/", "is not a regular file (d"), ("/dev/null", "is not a regular file (c"), ("/dev/null/x", "Not a directory")],
)
def test_what_is_no_program(path, says):
    with pytest.raises(CdiError) as caught:
        programs.check(path)
    assert says in str(caught.value)
