# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A spec written into an image: its paths are those inside, and no symlink leads out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can enter another root directory")

COLLECTIONS = Path(records.__file__).parents[5]  # the directory of `ansible_collections`
CALL = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.fleet.cdi.plugins.module_utils.cli import call
sys.exit(call.main("spec"))
"""
OPTIONS = {
    "kind": "fleet.cdi/gpu",
    "state": "present",
    "devices": {"gpus": {"profile": "drm"}},
    "content": None,
    "on_unsupported": "drop",
    "on_foreign_kind": "use",
    "on_held": "keep",
    "runtime_versions": {"podman": "4.9.3"},
    "spec_dir": "/etc/cdi",
    "device_list": "/run/cdi-inventory.json",
    "state_dir": "/var/lib/cdi",
    "force": False,
    "managed_by": "",
    "prefix": "/none",
    "release": "",
}


def spec(root, check=False, **options):
    """What module spec answers, from a process of its own."""
    request = json.dumps({"options": {**OPTIONS, "root": str(root), **options}, "check": check})
    command = [sys.executable, "-I", "-c", CALL, str(COLLECTIONS)]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def image(tmp_path):
    return Path(render(gpus(count=2), tmp_path / "image"))


def test_written_once_with_paths_of_the_inside(image):
    assert spec(image, check=True)["result"]["changed"]
    assert not (image / "etc").exists()
    answer = spec(image)
    assert answer["result"]["path"] == "/etc/cdi/fleet.cdi-gpu.json"
    written = json.loads((image / "etc/cdi/fleet.cdi-gpu.json").read_text())
    assert [device["name"] for device in written["devices"]] == ["0", "1"]
    assert list(json.loads((image / "var/lib/cdi/manifest.json").read_text())["files"]) == [
        "/etc/cdi/fleet.cdi-gpu.json"
    ]
    assert not (image / "run").exists()
    assert not spec(image)["result"]["changed"]
    assert spec(image, state="absent", devices=None)["result"]["changed"]
    assert not (image / "etc").exists()


def test_no_symlink_leads_out(image, tmp_path):
    (tmp_path / "outside").mkdir()
    (image / "etc").symlink_to(tmp_path / "outside")
    spec(image)
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize(("root", "words"), [("/none", "expected the absolute path of a directory"), ("x", "expected")])
def test_refused(root, words):
    assert words in spec(root)["error"]


def test_what_is_wrong_is_told_in_words(image):
    answer = spec(image, devices={"gpus": {"profile": "dmr"}})
    assert "did you mean 'drm'?" in answer["error"]
    assert "error" in spec(image, devices={"none": {"profile": "tty", "required": True}})


def test_its_runtimes_are_asked_from_inside(image):
    """What asks them is imported before: there is nothing to import it from."""
    program = image / "usr/bin/podman"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/no/interpreter\n")
    program.chmod(0o755)
    answer = spec(image, runtime_versions={})
    assert [text for text in answer["warnings"] if "/usr/bin/podman: can't tell its version: " in text]
