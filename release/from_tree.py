# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the artifacts of a release from the files of a commit: no network, no root, no time.

from_tree.py OUT COMMIT EPOCH [CACHE]     OUT: an empty directory. CACHE: the packages for the image; without it there
                                          is none. artifacts.py starts this file in the tree of the commit, so that a
                                          commit is always built by its own code.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import collection_archive
import debian_packages
import oci_image
import provenance
import sbom
from deterministic import Member
from source import Commit

TREE = Path(__file__).resolve().parents[1]
SUMS = "SHA256SUMS"


class OnHost(NamedTuple):
    """The release that hosts run: its id, its archive, its files by their path in the release's directory."""

    id: str
    archive: bytes
    sources: Mapping[str, bytes]

    @property
    def name(self) -> str:
        return f"fleet-cdi-host-{self.id}.zip"


def files_of(tree: Path) -> dict[str, Member]:
    """Return the files below a directory by name. Only the owner's right to run one counts of its mode."""
    found: dict[str, Member] = {}
    for path in tree.rglob("*"):
        if path.is_file():
            name = path.relative_to(tree).as_posix()
            found[name] = Member(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
    return found


def on_host(tree: Path) -> OnHost:
    """Return the release for hosts, made by the code of the tree itself. Raises OSError, CdiError."""
    from ansible_collections.fleet.cdi.plugins.module_utils.release import build

    made = build.build(str(tree / "plugins/module_utils"))
    return OnHost(made.id, build.pack(made), made.sources)


def sums(contents: Mapping[str, bytes]) -> bytes:
    """Return the digests of these files, in the format of sha256sum(1)."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(contents.items()))
    return "".join(lines).encode()


def artifacts(tree: Path, commit: Commit, cache: Path | None) -> dict[str, bytes]:
    """Return every file of a release: name -> content. `cache` has the packages for the image. Raises OSError."""
    collection = collection_archive.archive(files_of(tree), commit)
    host = on_host(tree)
    version, repository = collection.info["version"], collection.info["repository"]
    subjects = {
        collection.name: sbom.Subject(
            "fleet.cdi", version, "library", repository, collection.content, collection.files
        ),
        host.name: sbom.Subject(
            "fleet.cdi host release", host.id, "application", repository, host.archive, host.sources
        ),
    }
    made = {f"{host.name.removesuffix('.zip')}.sha256": sums(host.sources)}
    inputs: list[dict[str, Any]] = []
    if cache:
        packages = debian_packages.locked(tree / "release/debian.json")
        plugin = oci_image.built(tree, cache, host.archive, host.id, collection.info, commit)
        parts = oci_image.components(packages)
        about = sbom.Subject(oci_image.NAME, version, "container", repository, plugin.archive, plugin.files, parts)
        subjects[f"{oci_image.NAME}-{version}.oci.tar"] = about
        made[f"{oci_image.NAME}-{version}.yaml"] = oci_image.manifests(tree, version, plugin.digest)
        inputs = oci_image.inputs(packages)
    made.update({name: subject.artifact for name, subject in subjects.items()})
    made.update({f"{name}{sbom.SUFFIX}": sbom.bill(subject, commit) for name, subject in subjects.items()})
    made[provenance.NAME] = provenance.statement(made, repository, commit, inputs)
    return {**made, SUMS: sums(made)}


def main(out: Path, commit: Commit, cache: Path | None) -> None:
    """Write the artifacts to `out`."""
    for name, content in artifacts(TREE, commit, cache).items():
        (out / name).write_bytes(content)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    sys.path.insert(0, str(TREE.parents[2]))
    os.umask(0o022)
    main(Path(sys.argv[1]), Commit(sys.argv[2], int(sys.argv[3])), Path(sys.argv[4]) if sys.argv[4:] else None)
