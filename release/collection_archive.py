# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's archive for Ansible Galaxy, as `ansible-galaxy collection build` makes it, but bit for bit the same.

That command writes the files in the order of the directory, with their times, the time of the build, and zlib's bytes.
One file differs: the links of the README are full URLs, because Galaxy and Automation Hub show it without the files
beside it (docs.ansible.com, partner certification requirements, "README requirements").
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from deterministic import DIRECTORY, FILE, Member, gzip, tar
from source import Commit

# The target of a link or an image in Markdown that is a path, not a URL or a heading of this page. Code has no links.
TARGET = re.compile(r"(?P<code>^```.*?^```|`[^`\n]+`)|\]\((?P<path>[^):#\s]+)(?=[)#])", re.DOTALL | re.MULTILINE)
IMAGES = (".png", ".svg")

# What ansible-galaxy never takes, besides `build_ignore`.
NEVER = ("MANIFEST.json", "FILES.json", "galaxy.yml", "galaxy.yaml", ".git", "*.pyc", "*.retry", "tests/output")
DEFAULTS: dict[str, Any] = {
    "namespace": None,
    "name": None,
    "version": None,
    "authors": [],
    "readme": None,
    "tags": [],
    "description": None,
    "license": [],
    "license_file": None,
    "dependencies": {},
    "repository": None,
    "documentation": None,
    "homepage": None,
    "issues": None,
}


def taken(files: Mapping[str, Member], galaxy: Mapping[str, Any]) -> dict[str, Member]:
    """Return the files and directories that belong to the collection, by name and in order."""
    ignored = (*NEVER, f"{galaxy['namespace']}-{galaxy['name']}-*.tar.gz", *galaxy.get("build_ignore", ()))
    found: dict[str, Member] = {}
    for name, member in files.items():
        parts = name.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if any(fnmatch.fnmatchcase(path, pattern) for path in (*above, name) for pattern in ignored):
            continue
        found.update({path: Member(path, b"", 0o755, DIRECTORY) for path in above})
        found[name] = member
    return dict(sorted(found.items()))


def _entry(name: str, content: bytes | None) -> dict[str, Any]:
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    kind, algorithm = ("dir", None) if content is None else ("file", "sha256")
    return {"name": name, "ftype": kind, "chksum_type": algorithm, "chksum_sha256": digest, "format": 1}


def _document(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def with_full_links(page: str, files: Mapping[str, Member], repository: str, commit: str) -> str:
    """Return a page in Markdown whose links to `files` are URLs of these files in the commit, as forges have them.

    Raises ValueError for a link to what is not in the commit.
    """

    def full(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        path = found["path"].rstrip("/")
        if path in files:
            kind = "raw" if path.endswith(IMAGES) else "blob"
        elif any(name.startswith(f"{path}/") for name in files):
            kind = "tree"
        else:
            raise ValueError(f"link to {found['path']}: found no such file; expected one of the commit")
        return f"]({repository}/{kind}/{commit}/{path}"

    return TARGET.sub(full, page)


class CollectionArchive(NamedTuple):
    """The archive, and what it says of the collection."""

    name: str
    content: bytes
    files: Mapping[str, bytes]  # in it, by name
    info: Mapping[str, Any]  # of galaxy.yml


def archive(files: Mapping[str, Member], commit: Commit) -> CollectionArchive:
    """Return the archive. `files` are those of the commit, by name. Raises ValueError for a dead link of the README."""
    galaxy = yaml.safe_load(files["galaxy.yml"].content)
    readme = files[galaxy["readme"]]
    page = with_full_links(readme.content.decode(), files, galaxy["repository"], commit.id)
    files = {**files, readme.name: readme._replace(content=page.encode())}
    info = {key: galaxy.get(key, default) for key, default in DEFAULTS.items()}
    members = taken(files, galaxy)
    entries: Sequence[dict[str, Any]] = [
        _entry(".", None),
        *(_entry(name, None if one.type == DIRECTORY else one.content) for name, one in members.items()),
    ]
    listed = _document({"files": entries, "format": 1})
    manifest = {"collection_info": info, "file_manifest_file": _entry("FILES.json", listed), "format": 1}
    every = [Member("MANIFEST.json", _document(manifest)), Member("FILES.json", listed), *members.values()]
    contents = {member.name: member.content for member in every if member.type == FILE}
    name = f"{info['namespace']}-{info['name']}-{info['version']}.tar.gz"
    return CollectionArchive(name, gzip(tar(every, commit.epoch)), contents, info)
