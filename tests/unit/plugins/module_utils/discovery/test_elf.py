# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DT_SONAME of libraries, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.discovery.elf import soname
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia


@pytest.mark.parametrize("name", ["libcuda.so.1", "", "lib\u00e9.so"])
def test_soname(name, tmp_path):
    library = tmp_path / "library"
    library.write_bytes(nvidia.elf(name))
    assert soname(str(library)) == name


def test_soname_of_real_libraries():
    pairs = {path.name: soname(str(path)) for path in Path("/lib/x86_64-linux-gnu").glob("lib[cmz].so.[0-9]")}
    if not pairs:
        pytest.skip("no library in /lib/x86_64-linux-gnu")
    assert pairs == {name: name for name in pairs}


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"GROUP ( libcuda.so.1 )", b"\x7fELF\x02\x01" + b"\xff" * 80])
def test_what_is_no_library_has_no_soname(content, tmp_path):
    (tmp_path / "library").write_bytes(content)
    assert not soname(str(tmp_path / "library"))
    assert soname(str(tmp_path)) is None
    assert soname(str(tmp_path / "missing")) is None


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=8), st.integers(0, 1300))
def test_a_damaged_library_is_no_harm(tmp_path_factory, changes, length):
    content = bytearray(nvidia.elf("libcuda.so.1"))
    for place, value in changes:
        content[place] = value
    library = tmp_path_factory.getbasetemp() / "damaged"
    library.write_bytes(content[:length])
    assert soname(str(library)) is None or len(soname(str(library))) <= 256
