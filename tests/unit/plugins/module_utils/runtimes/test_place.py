# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a runtime's configuration: those that it reads, and nothing that is no file."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import crio
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import InstalledRuntime, Source


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_one_error_and_is_not_opened(tmp_path, make):
    path = str(tmp_path / "daemon.json")
    make(path)
    with pytest.raises(CdiError, match=r"daemon.json: is not a regular file \([dpc]"):
        Source().read(path)


def test_a_directory_above_it_that_is_a_file_is_one_error(tmp_path):
    (tmp_path / "docker").write_text("")
    with pytest.raises(CdiError, match="daemon.json: can't read it: Not a directory"):
        Source().read(str(tmp_path / "docker/daemon.json"))


def test_a_pattern_matches_names_with_a_dot_in_front_as_in_go(tmp_path):
    for name in (".hidden.toml", "a.toml", "b.conf"):
        (tmp_path / name).write_text("")
    assert Source().glob(f"{tmp_path}/*.toml") == [f"{tmp_path}/.hidden.toml", f"{tmp_path}/a.toml"]
    assert Source().glob(f"{tmp_path.parent}/*/a.toml") == [f"{tmp_path}/a.toml"]


class TestCrio:
    """pkg/config/config.go, UpdateFromPath: every file of the directory and of those below it, by filepath.Walk."""

    def place(self, tmp_path, *arguments):
        return InstalledRuntime(
            "cri-o", "system", "1.31.0", (1, 31, 0), "0.8.0", "crio", str(tmp_path / "crio.conf"), arguments=arguments
        )

    def drop_in(self, path, directory):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'[crio.runtime]\ncdi_spec_dirs = ["{directory}"]\n')

    @pytest.mark.parametrize("name", ["zz.conf", ".zz", "zz.conf.bak", "zz/a.conf", "zz/.a"])
    def test_every_file_counts(self, tmp_path, name):
        self.drop_in(tmp_path / "crio.conf.d/a.conf", "/first")
        self.drop_in(tmp_path / "crio.conf.d" / name, "/last")
        last = "/first" if name.startswith(".") else "/last"  # "." comes before "a"
        reading = crio.read(self.place(tmp_path), Source())
        assert reading.spec_dirs == (last,) and f"{tmp_path}/crio.conf.d/{name}" in reading.files

    def test_the_directory_that_the_command_line_names(self, tmp_path):
        self.drop_in(tmp_path / "crio.conf.d/a.conf", "/usual")
        self.drop_in(tmp_path / "other/a.conf", "/other")
        place = self.place(tmp_path, "--config-dir", str(tmp_path / "other"))
        assert crio.read(place, Source()).spec_dirs == ("/other",)
