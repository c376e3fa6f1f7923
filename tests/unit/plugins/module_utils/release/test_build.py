# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive depends on nothing but the sources, and the id tells releases apart."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import build
from ansible_collections.fleet.cdi.plugins.module_utils.release.version import VERSION

MODULE_UTILS = Path(records.__file__).parent
CHECKOUT = MODULE_UTILS.resolve().parents[1]

BUILD = """
import os, sys
os.umask(int(sys.argv[2], 8))
from ansible_collections.fleet.cdi.plugins.module_utils.release import build
release = build.build(sys.argv[1])
sys.stdout.buffer.write(release.id.encode() + b" " + build.pack(release))
"""


def build_elsewhere(directory, seed, umask):
    """(id, archive) as another process makes them of `directory`."""
    path = str(MODULE_UTILS.parents[4])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", BUILD, str(directory), umask]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    return done.stdout.split(b" ", 1)


def test_checkout_and_installed_collection_give_the_same_bytes(tmp_path):
    installed = tmp_path / "collections/ansible_collections/fleet/cdi/plugins/module_utils"
    shutil.copytree(MODULE_UTILS, installed, ignore=shutil.ignore_patterns("__pycache__"))
    for count, path in enumerate(sorted(installed.rglob("*.py"))):
        os.utime(path, (count * 86400, count * 86400))
        path.chmod(0o600)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(installed)], check=True)
    (installed / ".editor.py").write_text("broken = ")
    (installed / "notes.txt").write_text("not code")
    (installed / "link.py").symlink_to("records.py")
    here = build_elsewhere(MODULE_UTILS, "0", "022")
    there = build_elsewhere(installed, "12345", "077")
    assert here == there
    assert here[0].decode() == build.build(str(MODULE_UTILS)).id


def test_archive_holds_every_module_and_nothing_else():
    release = build.build(str(MODULE_UTILS))
    with zipfile.ZipFile(io.BytesIO(build.pack(release))) as archive:
        assert archive.testzip() is None
        entries = archive.infolist()
    root = "ansible_collections/fleet/cdi/plugins"
    wanted = {
        f"{root}/{path.relative_to(CHECKOUT / 'plugins')}" for path in (CHECKOUT / "plugins/module_utils").rglob("*.py")
    }
    assert {entry.filename for entry in entries} - wanted == {
        "ansible_collections/__init__.py",
        "ansible_collections/fleet/__init__.py",
        "ansible_collections/fleet/cdi/__init__.py",
        f"{root}/__init__.py",
    }
    assert wanted <= {entry.filename for entry in entries}
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}


def test_version_is_that_of_the_collection():
    assert yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())["version"] == VERSION
    release = build.build(str(MODULE_UTILS))
    assert release.id.rpartition("-")[0] == VERSION


def test_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "records.py").write_text("")
    with pytest.raises(CdiError, match=r"release/version\.py.*not a release"):
        build.build(str(tmp_path))


def test_every_change_of_a_source_changes_the_id(target):
    one = target.release("1.0.0", extra="a = 1\n")
    ids = {
        one.id,
        target.release("1.0.1", extra="a = 1\n").id,
        target.release("1.0.0", extra="a = 2\n").id,
        target.release("1.0.0", other="a = 1\n").id,
        target.release("1.0.0").id,
    }
    assert len(ids) == 5
    assert target.release("1.0.0", extra="a = 1\n") == one


NAMES = st.sampled_from(["a", "b", "ab", "c/d", "c/e"])
EXTRA = st.dictionaries(NAMES.map("ansible_collections/{}.py".format), st.binary(max_size=3), max_size=4)


@given(EXTRA, EXTRA)
def test_id_is_a_function_of_names_and_contents_only(one, other):
    version = {f"{build.ROOT}/release/version.py": b'VERSION = "1.2.3"\n'}
    backwards = dict(reversed({**one, **version}.items()))
    assert build.identify({**version, **one}) == build.identify(backwards)
    assert (build.identify({**version, **one}) == build.identify({**version, **other})) == (one == other)
