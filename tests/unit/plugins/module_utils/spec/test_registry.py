# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry: which file provides a name, by the reference library's rules (pkg/cdi/cache.go)."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry


@pytest.fixture
def directories(tmp_path):
    """/etc/cdi and /var/run/cdi, lowest priority first, with a function that puts a spec into one of them."""
    etc, run = tmp_path / "etc", tmp_path / "run"
    etc.mkdir()
    run.mkdir()

    def put(directory, name, kind, *devices):
        spec = {
            "cdiVersion": "0.5.0",
            "kind": kind,
            "devices": [{"name": device, "containerEdits": {"env": ["A=1"]}} for device in devices],
        }
        (directory / name).write_text(json.dumps(spec))
        return str(directory / name)

    return etc, run, put


def test_every_spec_of_every_directory_counts(directories):
    etc, run, put = directories
    one, two = put(etc, "a.json", "a.com/gpu", "0", "1"), put(run, "b.yaml", "b.com/nic", "x")
    found = registry.load([etc, run])
    assert found.devices == {"a.com/gpu=0": one, "a.com/gpu=1": one, "b.com/nic=x": two}
    assert not found.errors and not found.conflicts and not found.shadowed


def test_a_later_directory_wins(directories):
    etc, run, put = directories
    low, high = put(etc, "a.json", "a.com/gpu", "0"), put(run, "z.json", "a.com/gpu", "0")
    found = registry.load([etc, run])
    assert found.devices == {"a.com/gpu=0": high}
    assert found.shadowed == {"a.com/gpu=0": (low,)}
    assert registry.load([run, etc]).devices == {"a.com/gpu=0": low}


def test_two_files_of_one_directory_conflict(directories):
    etc, run, put = directories
    one, two = put(etc, "a.json", "a.com/gpu", "0", "1"), put(etc, "b.json", "a.com/gpu", "0")
    found = registry.load([etc, run])
    assert found.conflicts == {"a.com/gpu=0": (one, two)}
    assert found.devices == {"a.com/gpu=1": one}


def test_a_conflict_below_also_takes_the_definition_above_away(directories):
    etc, run, put = directories
    put(etc, "a.json", "a.com/gpu", "0")
    put(etc, "b.json", "a.com/gpu", "0")
    put(run, "c.json", "a.com/gpu", "0")
    assert registry.load([etc, run]).devices == {}


def test_a_symlink_to_a_sibling_is_a_second_definition(directories):
    etc, run, put = directories
    put(etc, "a.json", "a.com/gpu", "0")
    (etc / "b.json").symlink_to("a.json")
    assert list(registry.load([etc, run]).conflicts) == ["a.com/gpu=0"]


def test_a_bad_file_never_hides_the_good_ones(directories):
    etc, run, put = directories
    good = put(etc, "m.json", "a.com/gpu", "0")
    (etc / "a.json").write_text("{")
    (etc / "b.json").mkdir()
    (etc / "c.json").symlink_to("nowhere")
    os.mkfifo(etc / "d.json")
    (etc / "e.yml").write_text("{")  # not an ending that counts
    found = registry.load([etc, run, etc / "m.json", run / "missing"])
    assert found.devices == {"a.com/gpu=0": good}
    assert sorted(os.path.basename(path) for path in found.errors) == ["a.json", "b.json", "c.json", "d.json", "m.json"]
    assert all(text.startswith(str(path)) for path, text in found.errors.items())
