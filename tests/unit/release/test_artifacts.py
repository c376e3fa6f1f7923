# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The artifacts of a release follow from a commit alone, and are what ansible-galaxy and a controller would make."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import built_release
import pytest
import yaml
from collection_archive import with_full_links
from deterministic import Member

NOBODY = 65534
LIMIT_OF_GALAXY = 20 * 1000 * 1000  # bytes of a collection's archive


def of_another_user(place):
    """Options of a build for another user, who gets `place`: a Python that everybody may run. Only root can do that."""
    python = "/usr/bin/python3"
    able = subprocess.run([python, "-I", "-c", "import yaml"], check=False, capture_output=True).returncode == 0
    if os.geteuid() != 0 or not able:
        return {}
    for path in (place, *place.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return {"user": NOBODY, "python": python, "PATH": "/usr/bin:/bin"}


def test_a_build_elsewhere_gives_the_same_bytes(repository, built):
    """Another path, umask, time zone, locale, order of hashes, configuration of git, time of files; another user."""
    with tempfile.TemporaryDirectory(suffix=" é") as name:
        place = Path(name)
        clone, home = place / "a much longer path/clone", place / "home"
        built_release.git(place, "clone", "--quiet", "--no-local", repository, clone)
        home.mkdir()
        (home / ".gitconfig").write_text("[core]\nautocrlf = true\n[tar]\numask = 0077\n")
        for count, path in enumerate(sorted(clone.rglob("*"))):
            os.utime(path, (count * 3600, count * 3600), follow_symlinks=False)
        (clone / "plugins/uncommitted.py").write_text("")
        other = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7", "HOME": str(home)}
        made = built_release.build(
            clone, place / "out", "--no-image", umask=0o077, **{**other, **of_another_user(place)}
        )
        assert made.files == built.files


def test_galaxy_takes_the_archive_though_nothing_in_it_is_compressed(built):
    assert (built.out / built.named("fleet-cdi-", ".tar.gz")).stat().st_size < LIMIT_OF_GALAXY


def readme(built):
    """The README in the collection's archive."""
    with tarfile.open(built.out / built.named("fleet-cdi-", ".tar.gz")) as archive:
        return archive.extractfile("README.md").read()


def test_the_links_of_the_readme_are_urls_of_the_commit(repository, built, commit):
    """Galaxy shows it without the files beside it. It differs from that of the checkout in the links alone."""
    place = yaml.safe_load((repository / "galaxy.yml").read_text())["repository"]
    page = readme(built).decode()
    assert not re.findall(r"\]\((?!https://|#)[^)]*\)", page)
    kinds = {"blob": Path.is_file, "raw": Path.is_file, "tree": Path.is_dir}
    ours = re.findall(rf"\]\({re.escape(place)}/(\w+)/{commit}/([^)#]+)", page)
    assert {kind for kind, _path in ours} == set(kinds)
    for kind, path in ours:
        assert kinds[kind](repository / path), path
    assert re.sub(rf"{re.escape(place)}/\w+/{commit}/", "", page) == (repository / "README.md").read_text()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("[a](docs/a.md#one) [b](#two) <https://c>", "[a](R/blob/C/docs/a.md#one) [b](#two) <https://c>"),
        ("[![d](docs/d.png)](docs) [e](https://e/f)", "[![d](R/raw/C/docs/d.png)](R/tree/C/docs) [e](https://e/f)"),
        ("`[a](docs/a.md)`\n```\n[a](docs/a.md)\n```\n", "`[a](docs/a.md)`\n```\n[a](docs/a.md)\n```\n"),
        ("[a](docs/lost.md)", "link to docs/lost.md: found no such file; expected one of the commit"),
    ],
)
def test_full_links(page, expected):
    files = {name: Member(name) for name in ("docs/a.md", "docs/d.png")}
    try:
        found = with_full_links(page, files, "R", "C")
    except ValueError as error:
        found = str(error)
    assert found == expected


def test_the_collection_is_what_ansible_galaxy_builds(repository, built, tmp_path):
    """The same files with the same digests and modes, and the same description, once both have the same README."""
    galaxy = [Path(sys.executable).parent / "ansible-galaxy", "collection"]
    tree = tmp_path / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "-C", repository, "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
    (tree / "README.md").write_bytes(readme(built))
    subprocess.run([*galaxy, "build", tree, "--output-path", tmp_path], check=True, capture_output=True)
    (theirs,) = tmp_path.glob("*.tar.gz")
    ours = built.out / theirs.name
    found = []
    for path in (theirs, ours):
        with tarfile.open(path) as one:
            files = json.load(one.extractfile("FILES.json"))
            manifest = json.load(one.extractfile("MANIFEST.json"))
            modes = {member.name: (member.mode, member.type) for member in one}
        manifest["file_manifest_file"].pop("chksum_sha256")
        found.append((sorted(files.pop("files"), key=lambda entry: entry["name"]), files, manifest, modes))
    assert found[0] == found[1]


def test_ansible_galaxy_installs_it_and_finds_it_whole(built, tmp_path):
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    galaxy = [Path(sys.executable).parent / "ansible-galaxy", "collection"]
    archive = built.out / "fleet-cdi-0.1.0.tar.gz"
    install = [*galaxy, "install", "--offline", "--no-deps", archive]
    subprocess.run(install, check=True, capture_output=True, env=environment)
    verify = [*galaxy, "verify", "--offline", "fleet.cdi"]
    said = subprocess.run(verify, check=True, capture_output=True, text=True, env=environment).stdout
    assert "Successfully verified" in said


def test_an_installed_collection_gives_hosts_the_release_of_the_archive(built, tmp_path):
    """What a controller sends is, byte by byte, what was released; and it names its commit."""
    installed = tmp_path / "ansible_collections/fleet/cdi"
    installed.mkdir(parents=True)
    shutil.unpack_archive(built.out / "fleet-cdi-0.1.0.tar.gz", installed)
    code = "import sys; from ansible_collections.fleet.cdi.plugins.module_utils.release import build\n"
    code += "made = build.build(sys.argv[1]); sys.stdout.buffer.write(made.id.encode() + b' ' + build.pack(made))"
    command = [sys.executable, "-c", code, installed / "plugins/module_utils"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    sent = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
    release, archive = sent.split(b" ", 1)
    assert built.files[f"fleet-cdi-host-{release.decode()}.zip"] == archive


def test_the_sums_are_those_of_all_other_files(built):
    lines = built.files["SHA256SUMS"].decode().splitlines()
    found = dict(line.split("  ")[::-1] for line in lines)
    assert found == {
        name: hashlib.sha256(content).hexdigest() for name, content in built.files.items() if name != "SHA256SUMS"
    }


def test_a_directory_of_somebody_else_is_refused(repository, tmp_path):
    (tmp_path / "letter").write_text("Dear")
    with pytest.raises(subprocess.CalledProcessError):
        built_release.build(repository, tmp_path)
    assert (tmp_path / "letter").read_text() == "Dear"
