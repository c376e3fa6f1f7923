# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools of the executables: the devices that each configuration may grant.

Every `<directory>/<resource-type>.d/<name>.conf` (CDI proposal 2017, "Configuration") selects devices by an entry. The
devices found go into a file of their own, which the executable reads (protocol/pools.py).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Optional

from ... import files
from ...discovery import inventory
from ...discovery.discover import Enricher, discover
from ...discovery.out_of_service import Disabled
from ...discovery.snapshot import Snapshot
from ...manifest import Manifest
from ...protocol import pools
from ...protocol.configurations import find, may_be_of
from ...protocol.messages import Config
from ...records import CdiError
from ..change import Change, plan_file

# The end of a path of pools.pool_path.
_POOL = re.compile(r"\.d/[A-Za-z][A-Za-z0-9]*\.[A-Za-z0-9][A-Za-z0-9_-]*\.[0-9a-f]{8}\.json\Z")


class Pools(NamedTuple):
    """The pools of all configurations of a host."""

    documents: dict[str, bytes]  # path -> content
    users: Mapping[str, list[str]]  # path -> the configurations whose pool it is
    failed: tuple[str, ...]  # why a configuration has no pool, one line for each
    broken: frozenset[str] = frozenset()  # the paths of configurations without a pool, or of their directories


def discover_pools(
    config_dirs: Iterable[str],
    listing: str,
    boot_id: str,
    snapshot: Snapshot,
    enricher: Optional[Enricher],
    disabled: Mapping[str, Disabled],
    planned: Optional[Mapping[str, Optional[bytes]]] = None,
) -> Pools:
    """Discover the devices of every configuration and its delegates. A broken configuration hides no other.

    `planned`: contents of configurations by path, for a preview (see `configurations.find`).
    """
    documents: dict[str, bytes] = {}
    users: dict[str, list[str]] = {}
    there = [find(config_dir, planned=planned) for config_dir in config_dirs]
    failed: dict[str, CdiError] = {path: error for one in there for path, error in one.errors.items()}
    for path, _content, first in [configuration for one in there for configuration in one.configurations]:
        try:
            for config in pools.chain(first):
                entry = pools.entry_of(config)
                place = files.canonical(pools.pool_path(listing, config.type, config.plugin, config.args))
                if entry is None:
                    continue
                users.setdefault(place, []).append(path)
                if place in documents:
                    continue
                found = discover({config.type: entry}, snapshot, enricher, disabled)
                devices = tuple(device._replace(properties={}) for device in found.devices)
                document = inventory.render(inventory.Inventory(devices, found.kinds, found.links), boot_id, True)
                args = {key: value for key, value in config.args.items() if key not in pools.OWN}
                head = json.dumps({"args": args}, sort_keys=True)[:-1].encode("ascii")
                documents[place] = head + b",\n" + document[1:]
        except CdiError as error:
            failed[path] = _named_by_arg(first, error)
    lines = tuple(f"{path}: {error}" for path, error in failed.items())
    return Pools(documents, users, lines, frozenset(failed))


def _named_by_arg(first: Config, error: CdiError) -> CdiError:
    """Return the error of a discovery with the name of the wrong arg: the configuration has no devices entry."""
    from ..plugin_configuration import wrong_chain  # for a rare error, and each refresh would pay for the import

    with suppress(CdiError):
        for wrong in wrong_chain(first):
            return CdiError(str(wrong))
    return error


def plan_pools(found: Pools, listing: str, manifest: Manifest) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Return (the changes that make `found` the pools beside the inventory `listing`, why a configuration gets none).

    Pools of removed configurations go, and those beside an inventory that the host had before. While a configuration of
    a resource-type is broken, all pools of that type stay, because one of them may belong to it. Raises CdiError for an
    old pool that can't be read.
    """
    changes: list[Change] = []
    failed: list[str] = []
    for path, content in found.documents.items():
        try:
            changes += plan_file(path, content, manifest, has_our_form=inventory.is_rendered)
        except CdiError as error:  # a file that is not ours
            failed += [f"{user}: {error}" for user in found.users[path]]
    here = _folder(listing)
    used = {_folder(str(entry["inventory"])) for entry in manifest.kinds.values()} - {here}
    for path in sorted(manifest.files):
        directory, name = os.path.split(path)
        old = directory != here and directory not in used and _is_pool(path, manifest)
        type_ = name.partition(".")[0]
        unused = (
            directory == here and path not in found.documents and not any(may_be_of(type_, one) for one in found.broken)
        )
        if (old or unused) and manifest.may_drop(path):
            changes += plan_file(path, None, manifest)
    return tuple(changes), tuple(failed)


def _folder(listing: str) -> str:
    """Return the directory of the pools beside the inventory `listing`."""
    return os.path.dirname(files.canonical(pools.pool_path(listing, "", "", {})))


def _is_pool(path: str, manifest: Manifest) -> bool:
    """Return True if the file of the manifest is a pool, beside whichever inventory."""
    record = manifest.files[path]
    return not (record["kind"] or record["by"]) and has_pool_name(path)


def has_pool_name(path: str) -> bool:
    """Return True if pools have paths of this form."""
    return bool(_POOL.search(path))
