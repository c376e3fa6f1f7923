# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims on disk: one file for each in `<state_dir>/claims`, which only root can read.

The file of a claim is written before the first plugin is asked, and removed after the last one has taken its devices
back. So no process can be killed at a point where devices are held and no file tells of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Optional

from .. import files
from ..records import CdiError
from .device_name import claim_id, device_name, request_id
from .record import ClaimRecord, parse_claim, render_claim

if TYPE_CHECKING:  # a refresh asks for claims, and calls no plugin on a host without them
    from .calls import Caller

DIRECTORY = "claims"
ENDING = ".json"
WAIT = 120.0  # seconds for another call for the same claim


class StoredClaims(NamedTuple):
    """All claims, and the errors of files that can't be read, by path."""

    claims: tuple[ClaimRecord, ...]
    errors: dict[str, str]


def has_claims(state_dir: str) -> bool:
    """Tell if this host may have claims. False before the first one."""
    return os.path.lexists(os.path.join(state_dir, DIRECTORY))


def claim_path(state_dir: str, id_: str) -> str:
    """Return the path of a claim's file. Raises CdiError for an id that has no device name."""
    return os.path.join(state_dir, DIRECTORY, device_name(id_) + ENDING)


def read_claim(state_dir: str, id_: str) -> Optional[ClaimRecord]:
    """Return the claim; None without one. Raises CdiError if its file is damaged, or that of another claim."""
    path = claim_path(state_dir, id_)
    live = files.read(path)
    claim = parse_claim(live.content, path) if live else None
    if claim and claim.id != id_:  # a copy: to give it back would free the devices of the other claim
        raise CdiError(
            f"{path}: is damaged (it is of claim {claim.id!r}); expected the claim that fleet-cdi wrote. Move it away."
        )
    return claim


def read_claims(state_dir: str) -> StoredClaims:
    """Return all claims, sorted by id. Raises CdiError if the directory is not safe."""
    directory = os.path.join(state_dir, DIRECTORY)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise CdiError(f"{directory}: can't be listed: {error.strerror}") from None
    found, errors = [], {}
    for name in sorted(names):
        if not name.endswith(ENDING) or name.startswith("."):
            continue
        try:
            claim = read_claim(state_dir, claim_id(name[: -len(ENDING)]))
        except (CdiError, UnicodeError) as error:
            errors[os.path.join(directory, name)] = str(error)
            continue
        if claim:
            found.append(claim)
    return StoredClaims(tuple(sorted(found, key=lambda claim: claim.id)), errors)


def claimed_requests(state_dir: str) -> frozenset[str]:
    """Return the request-ids of all claims, also of those whose files are damaged. Raises CdiError."""
    stored = read_claims(state_dir)
    damaged = (claim_id(os.path.basename(path)[: -len(ENDING)]) for path in stored.errors if path.isascii())
    return frozenset(map(request_id, [*(claim.id for claim in stored.claims), *damaged]))


def write_claim(state_dir: str, claim: ClaimRecord) -> None:
    """Write the claim durably; the caller holds it (`alone`). Raises CdiError."""
    files.replace(claim_path(state_dir, claim.id), render_claim(claim), 0o600)


def remove_claim(state_dir: str, id_: str) -> None:
    """Remove the claim durably; the caller holds it (`alone`). Raises CdiError."""
    files.remove(claim_path(state_dir, id_))


@contextmanager
def alone(state_dir: str, id_: str, caller: Caller) -> Iterator[Caller]:
    """Keep other processes away from one claim. Makes the directory. Gives the caller for calls of plugins.

    The kernel lets go when this process has ended, and each plugin that it called: the plugin of a killed process may
    grant devices later, and the process that undoes the claim has to wait for that. Raises CdiError, also after WAIT.
    """
    path = claim_path(state_dir, id_)
    if not has_claims(state_dir):  # else the lock looks at each directory on the way
        files.make_directory(state_dir)
        files.make_directory(os.path.dirname(path), 0o700)
    lock = path[: -len(ENDING)] + ".lock"
    handle = files.lock(lock, WAIT)
    try:
        yield caller._replace(keep=(handle,))
    finally:
        if not os.path.lexists(path):
            with suppress(CdiError):  # the error of the caller says more
                files.remove(lock)  # who waits for it sees that, and makes a new one
        os.close(handle)
