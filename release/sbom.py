# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A software bill of materials (CycloneDX 1.6, JSON) for each artifact: every file in it with its digest.

It says what an artifact has, not what it needs of the machine that runs it.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from source import Commit

SUFFIX = ".cdx.json"
SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
LICENSE = "GPL-3.0-or-later"


class Subject(NamedTuple):
    """What a bill is about."""

    name: str  # of the product: fleet.cdi
    version: str
    type: str  # of CycloneDX: application, container, library
    repository: str  # its URL
    artifact: bytes
    files: Mapping[str, bytes]  # by their path in the artifact
    packages: Iterable[Mapping[str, Any]] = ()  # components of CycloneDX from which some of the files are


def digests(content: bytes) -> list[dict[str, str]]:
    """Return the field `hashes` of a component."""
    return [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]


def time_of(commit: Commit) -> str:
    """Return the date of the commit in UTC, by RFC 3339."""
    return datetime.fromtimestamp(commit.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def bill(subject: Subject, commit: Commit) -> bytes:
    """Return the bill. It has no time of its own: the same artifact has the same bill."""
    (digest,) = digests(subject.artifact)
    component = {
        "bom-ref": subject.name,
        "type": subject.type,
        "name": subject.name,
        "version": subject.version,
        "hashes": [digest],
        "licenses": [{"license": {"id": LICENSE}}],
        "externalReferences": [{"type": "vcs", "url": f"{subject.repository}/tree/{commit.id}"}],
    }
    packages = list(subject.packages)
    files = [
        {"bom-ref": f"file:{name}", "type": "file", "name": name, "hashes": digests(content)}
        for name, content in sorted(subject.files.items())
    ]
    parts = [one["bom-ref"] for one in (*packages, *files)]
    document = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"{subject.repository}#{digest['content']}").urn,
        "version": 1,
        "metadata": {"timestamp": time_of(commit), "component": component},
        "components": [*packages, *files],
        "dependencies": [{"ref": subject.name, "dependsOn": parts}],
    }
    return (json.dumps(document, indent=1) + "\n").encode()
