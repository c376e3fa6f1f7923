# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of CDI: kinds, qualified device names (SPEC.md, "Kind" and "CDI Devices"), and files that may be specs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ..layout import SPEC_DIRS
from ..records import CdiError

# A vendor or a class. Of one letter alone, releases of the reference library up to 1.1.0 crash: we write none.
PART_PATTERN = "[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]"
DEVICE_PATTERN = "[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"
# For re.match, which compiles them at their first use: a claim needs none of them.
PART = rf"({PART_PATTERN}|[A-Za-z])\Z"  # what the reference library reads
DEVICE = DEVICE_PATTERN + r"\Z"
# What SPEC.md says of a vendor besides.
SUBDOMAIN = (
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z"
)

PART_RULE = "letters, digits, '-', '_' and '.', starting with a letter and ending with a letter or digit"
DEVICE_RULE = "letters, digits, '-', '_', '.' and ':', starting and ending with a letter or digit"

# Names that vendors give to all devices at once and to none (nvidia-container-toolkit and others).
AGGREGATES = frozenset({"all", "none"})


class QualifiedName(NamedTuple):
    """`vendor/class=device`, taken apart."""

    vendor: str
    class_: str
    device: str


def split_kind(kind: str) -> tuple[str, str]:
    """`vendor/class` as (vendor, class). Raises CdiError for anything that no runtime reads."""
    vendor, slash, class_ = kind.partition("/")
    if not slash:
        raise CdiError(f"kind {kind!r}: found no '/'; expected vendor/class, as in fleet.cdi/gpu")
    for what, part in (("vendor", vendor), ("class", class_)):
        if len(part) < 2 or not re.match(PART, part):
            raise CdiError(f"kind {kind!r}: found the {what} {part!r}; expected 2 or more {PART_RULE}")
    return vendor, class_


def split_qualified_name(name: str) -> QualifiedName:
    """`vendor/class=device` taken apart. Raises CdiError for anything else."""
    kind, equals, device = name.partition("=")
    if not equals:
        raise CdiError(f"device {name!r}: found no '='; expected vendor/class=device, as in fleet.cdi/gpu=0")
    vendor, class_ = split_kind(kind)
    if not re.match(DEVICE, device):
        raise CdiError(f"device {name!r}: found the device name {device!r}; expected {DEVICE_RULE}")
    return QualifiedName(vendor, class_, device)


def file_name(kind: str) -> str:
    """The file name that the reference library gives to the spec of a kind (specs.go, GenerateSpecName)."""
    return kind.replace("/", "-") + ".json"


OURS = "fleet.cdi"  # the vendor of our own claims, which are in the ledger as what they are
PREFIX = "k8s."  # drivers put it before their name to make a vendor of it

# A Kubernetes UID: what DRA drivers take as the id of a claim's transient spec, some with more behind it.
UID = r"(?<![0-9A-Za-z])[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9A-Za-z])"


def transient_id(path: str, kind: str) -> str:
    """The id in the file name of a transient spec, one that comes and goes with a container or a claim; "" for others.

    The reference library calls such a file vendor-class_id (spec.go, GenerateTransientSpecName).
    """
    stem = os.path.splitext(os.path.basename(path))[0]
    before = kind.replace("/", "-") + "_"
    return stem[len(before) :] if stem.startswith(before) else ""


def transient_file_name(kind: str, id_: str) -> str:
    """The file name of such a spec, by the same rule."""
    return f"{file_name(kind).removesuffix('.json')}_{id_.replace('/', '_')}.json"


def claim_uid(path: str, kind: str) -> str:
    """The UID of the claim that the transient spec of `kind` at `path` is for, "" if it is for none.

    Drivers keep transient specs without a claim: `common`, or `base` with all devices of the host.
    """
    found = re.match(UID, transient_id(path, kind))
    return found.group() if found else ""


def foreign_claim(path: str, kind: str) -> Optional[tuple[str, str]]:
    """(DRA driver, UID) of the claim that the transient spec at `path` is for; None if for none, or for one of ours."""
    vendor, uid = kind.partition("/")[0], claim_uid(path, kind)
    return (vendor.removeprefix(PREFIX), uid) if uid and vendor != OURS else None


def named_uid(path: str) -> str:
    """The same of a file whose kind can't be read: the UID that its name says, "" if it says none."""
    found = re.search(UID, os.path.basename(path))
    return found.group() if found else ""


ENDINGS = (".json", ".yaml")


class Listing(NamedTuple):
    """The files that may be specs, with the priority of their directories, and the directories that can't be listed."""

    paths: tuple[tuple[int, str], ...]
    errors: dict[str, str]


def list_specs(directories: Sequence[str] = SPEC_DIRS) -> Listing:
    """Return the files that count as specs by their names; a missing directory counts as empty.

    pkg/cdi/cache.go and spec-dirs.go: only *.json and *.yaml count, and nothing is searched in depth.
    """
    paths: list[tuple[int, str]] = []
    errors: dict[str, str] = {}
    for priority, directory in enumerate(map(str, directories)):
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:  # ValueError: no path at all
            reason = getattr(error, "strerror", None) or error
            errors[directory] = f"{directory}: can't list it: {reason}. Some runtimes read no directory after it."
        else:
            paths += [(priority, os.path.join(directory, name)) for name in names if name.endswith(ENDINGS)]
    return Listing(tuple(paths), errors)
