# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods that have claims: a file for each in the state directory. Their users are counted by these files.

A pod's file is written before its first claim is made, and removed after its last one has been given back. So the
claims of a pod are known, also after its manifest was edited, and a claim that several pods use ends with the last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ... import documents, files
from ...records import CdiError, as_document
from ..record import check_seal, sealed

DIRECTORY = "pods"
ENDING = ".json"
LOCK = ".lock"
VERSION = 1


class PodRecord(NamedTuple):
    """A pod and the claims of its containers."""

    pod: str  # <namespace>/<pod>
    containers: dict[str, tuple[str, ...]]  # container -> ids of its claims; only containers with claims

    @property
    def claims(self) -> frozenset[str]:
        """Return the ids of all its claims."""
        return frozenset(id_ for ids in self.containers.values() for id_ in ids)


class StoredPods(NamedTuple):
    """All pods by name, and the errors of files that can't be read, by path."""

    pods: dict[str, PodRecord]
    errors: dict[str, str]

    @property
    def claims(self) -> frozenset[str]:
        """Return the ids of the claims of all pods."""
        return frozenset(id_ for record in self.pods.values() for id_ in record.claims)


def read_pods(state_dir: str) -> dict[str, PodRecord]:
    """Return all pods by name. Raises CdiError for a damaged file, which may be of another user of a claim."""
    found = read_stored_pods(state_dir)
    for error in found.errors.values():
        raise CdiError(error)
    return found.pods


def read_stored_pods(state_dir: str) -> StoredPods:
    """Return all pods, and the faults of their files. Raises CdiError if the directory can't be listed."""
    directory = os.path.join(state_dir, DIRECTORY)
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise documents.failed("list", directory, error) from None
    pods, errors = {}, {}
    for path in [os.path.join(directory, name) for name in names if name.endswith(ENDING) and name[0] != "."]:
        try:
            record = _read(path)
            pods[record.pod] = record
        except CdiError as error:
            errors[path] = str(error)
    return StoredPods(pods, errors)


def write_pod(state_dir: str, record: PodRecord) -> None:
    """Write the pod durably; the caller has the lock. Raises CdiError."""
    files.replace(pod_path(state_dir, record.pod), sealed({"version": VERSION, **as_document(record)}), 0o600)


def remove_pod(state_dir: str, pod: str) -> None:
    """Remove the pod durably; the caller has the lock. Raises CdiError."""
    files.remove(pod_path(state_dir, pod))


@contextmanager
def alone_with_pods(state_dir: str) -> Iterator[None]:
    """Keep other processes away from all pods. Makes the directory. Raises CdiError."""
    directory = os.path.join(state_dir, DIRECTORY)
    files.make_directory(state_dir)
    files.make_directory(directory, 0o700)
    handle = files.lock(os.path.join(directory, LOCK))
    try:
        yield
    finally:
        os.close(handle)


def pod_path(state_dir: str, pod: str) -> str:
    """Return the path of a pod's file."""
    return os.path.join(state_dir, DIRECTORY, pod.replace("/", "_") + ENDING)  # neither name has a "_"


def _read(path: str) -> PodRecord:
    live = files.read(path)
    document = documents.parse(live.content if live else b"", path)
    try:
        if document["version"] != VERSION:
            raise documents.other_version(path, document["version"], VERSION)
        check_seal(document)
        containers = {name: tuple(ids) for name, ids in document["containers"].items()}
        if not all(isinstance(id_, str) for ids in containers.values() for id_ in ids):
            raise ValueError("an id is not a text")
        if os.path.basename(path) != os.path.basename(pod_path("", document["pod"])):
            raise ValueError(f"it is of pod {document['pod']!r}")
        return PodRecord(document["pod"], containers)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CdiError(
            f"{path}: is damaged ({documents.misfit(error)}); expected the pod that fleet-cdi wrote. Restore it, or "
            "move it away and give back its claims (fleet-cdi claim list)."
        ) from None
