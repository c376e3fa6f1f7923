# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bills of materials: what they name is what is on disk, and nothing else is."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ARTIFACTS = [("fleet-cdi-", ".tar.gz"), ("fleet-cdi-host-", ".zip")]
HOST = ARTIFACTS[1]


def bill_of(built, artifact):
    return json.loads(built.files[f"{built.named(*artifact)}.cdx.json"])


def listed(bill):
    """The files of a bill: name -> digest."""
    return {
        one["name"]: {digest["alg"]: digest["content"] for digest in one["hashes"]}["SHA-256"]
        for one in bill["components"]
        if one["type"] == "file"
    }


def on_disk(directory):
    """The files below a directory: name -> digest."""
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_bill_follows_the_schema(built, artifact):
    text = built.files[f"{built.named(*artifact)}.cdx.json"].decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.replace('"SHA-256"', '"sha256"')) is not None


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_bill_is_of_this_artifact_and_this_commit(built, commit, artifact):
    about = bill_of(built, artifact)["metadata"]["component"]
    content = built.files[built.named(*artifact)]
    assert about["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]
    assert about["externalReferences"] == [
        {"type": "vcs", "url": f"https://github.com/fleet-cdi/fleet.cdi/tree/{commit}"}
    ]


def test_the_collection_on_disk_is_the_one_of_the_bill(built, tmp_path):
    shutil.unpack_archive(built.out / built.named("fleet-cdi-", ".tar.gz"), tmp_path)
    assert on_disk(tmp_path) == listed(bill_of(built, ARTIFACTS[0]))


def test_the_release_on_disk_is_the_one_of_the_bill_and_of_the_list(built, tmp_path):
    with zipfile.ZipFile(io.BytesIO(built.files[built.named(*HOST)])) as archive:
        archive.extractall(tmp_path)
    found = on_disk(tmp_path)
    assert found == listed(bill_of(built, HOST))
    lines = built.files[built.named("fleet-cdi-host-", ".sha256")].decode().splitlines()
    assert found == dict(line.split("  ")[::-1] for line in lines)


def test_the_test_would_see_a_difference(built, tmp_path):
    shutil.unpack_archive(built.out / built.named("fleet-cdi-", ".tar.gz"), tmp_path)
    wanted = listed(bill_of(built, ARTIFACTS[0]))
    Path(tmp_path, "more").write_text("")
    assert on_disk(tmp_path) != wanted
    Path(tmp_path, "more").unlink()
    Path(tmp_path, "README.md").write_text("")
    assert on_disk(tmp_path) != wanted
    Path(tmp_path, "README.md").unlink()
    assert on_disk(tmp_path) != wanted
