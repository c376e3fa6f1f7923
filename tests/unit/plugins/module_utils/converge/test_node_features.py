# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The feature file for Node Feature Discovery: valid labels of any device, one file that undo removes."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as some
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge.node_features import feature_text, label_value
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Health

# Kubernetes, apimachinery/pkg/util/validation: a qualified name, and the value of a label.
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
LINE = re.compile(rf"feature\.node\.kubernetes\.io/([A-Za-z0-9][-A-Za-z0-9_.]*[A-Za-z0-9])=({VALUE.pattern})\n")
GPU = Device(
    "a", "nvidia", "nvidia.com/gpu", ("0",), (), vendor_id="0x10de", device_id="0x2330", health=Health("healthy")
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GH100 [H100 SXM5 80GB]", "GH100-H100-SXM5-80GB"),
        ("a=b\nc", "a-b-c"),
        ("..x..", "x"),
        ("x" * 80, "x" * 63),
        ("x" * 62 + ".y", "x" * 62),
        ("\x1b\u202e", ""),
    ],
)
def test_any_text_becomes_a_valid_value_or_none(text, expected):
    assert label_value(text) == expected


@given(some.lists(some.tuples(some.text(max_size=90), some.text(max_size=90), some.integers(0, 10**30)), max_size=5))
def test_whatever_the_firmware_says_each_line_is_a_label(found):
    devices = [
        GPU._replace(vendor_id=vendor, properties={"ID_MODEL_FROM_DATABASE": model}, capacity={"memory": memory})
        for vendor, model, memory in found
    ]
    lines = feature_text(devices).splitlines(True)
    for line in lines:
        name, value = LINE.fullmatch(line).group(1, 2)
        assert len(name) <= 63 and len(value) <= 63
    assert bool(lines) == bool(devices)


def labels(*devices):
    return {
        name.partition("fleet-cdi-")[2]: value
        for name, value in (line.split("=") for line in feature_text(devices).splitlines())
    }


def test_count_usable_memory_and_model():
    ill = GPU._replace(health=Health("unhealthy"), capacity={"memory": 81559})
    other = GPU._replace(device_id="0x1111")
    assert labels(GPU, ill) == {
        "nvidia.com-gpu.count": "2",
        "nvidia.com-gpu.usable": "1",
        "nvidia.com-gpu.model": "10de_2330",
    }
    assert labels(ill)["nvidia.com-gpu.memory"] == "81559"
    assert "nvidia.com-gpu.model" not in labels(GPU, other)
    assert feature_text([GPU._replace(kind="v" * 60 + ".com/x")]) == "" == feature_text([])
    assert len(feature_text([GPU._replace(kind=f"v{one}.com/gpu") for one in range(2000)])) <= 65536


@pytest.fixture
def host(tmp_path, capsys):
    """host(*words) -> (exit code, stdout, stderr); `host.offer(*devices)` writes the inventory."""

    class Host:
        path, state = tmp_path / "features.d/fleet-cdi", tmp_path / "state"

        def __call__(self, *words):
            defaults = {"state_dir": str(self.state), "inventory": str(tmp_path / "inventory.json")}
            status = main(["features", *words], "test", {**defaults, "spec_dirs": [str(tmp_path)], "prefix": ""})
            return (status, *capsys.readouterr())

        def offer(self, *devices):
            found = inventory.Inventory(devices)
            (tmp_path / "inventory.json").write_bytes(inventory.render(found, inventory.boot_id()))

    Host().offer(GPU)
    return Host()


def test_the_file_is_kept_moved_and_taken_back(host):
    path = str(host.path)
    assert host("--output", path, "--check") == (0, f"would be changed: {path}\n", "") and not host.path.exists()
    assert host("--output", path) == (0, f"changed: {path}\n", "")
    assert host.path.read_text() == feature_text([GPU])
    assert host("--output", path) == (0, "Nothing to change.\n", "")
    assert host("--output", f"{path}-2")[1] == f"removed: {path}\nchanged: {path}-2\n" and not host.path.exists()
    assert host("--output", path)[0] == 0
    host.offer()
    assert host("--output", path)[1] == f"removed: {path}\n"
    host.offer(GPU)
    assert host("--output", path)[0] == 0
    assert undo(layout_beside(host.state)).removed == (path,) and not host.path.parent.exists()


def test_without_a_path_ours_goes_and_a_file_of_others_stays(host):
    assert host("--output", str(host.path))[0] == 0
    assert host("--output", "")[1] == f"removed: {host.path}\n"
    host.path.parent.mkdir(exist_ok=True)
    host.path.write_text("theirs=1\n")
    status, _out, err = host("--output", str(host.path))
    assert status == 2 and str(host.path) in err and host.path.read_text() == "theirs=1\n"


def test_a_file_whose_record_was_lost_is_kept_on(host):
    assert host("--output", str(host.path))[0] == 0
    shutil.rmtree(host.state)
    host.offer(GPU, GPU._replace(id="pci:0000:04:00.0"))
    assert host("--output", str(host.path)) == (0, f"changed: {host.path}\n", "")
    assert undo(layout_beside(host.state)).removed == (str(host.path),)


def test_without_output_it_prints(host):
    assert host()[1] == feature_text([GPU])
    assert json.loads(host("--json")[1])["labels"]["feature.node.kubernetes.io/fleet-cdi-nvidia.com-gpu.count"] == "1"
    assert host("--check")[0] == 2
