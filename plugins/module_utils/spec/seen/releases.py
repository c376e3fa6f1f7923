# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases of the CDI reference library, and where they read the same file or directory in different ways, as data.

Source: the library's code at each tag (pkg/cdi/{spec,spec-dirs,cache,container-edits}.go, pkg/parser, specs-go), and
tests/conformance/test_seen.py, which asks the real releases. Rows 0.3.0 and 0.4.0 are from the code alone: their
programming interface is another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from .. import cap, model

BEFORE = ("0.1.0", "0.2.0")  # versions that every release knows by name, and that 0.5.4 and later refuse as too old


class LibraryRelease(NamedTuple):
    """One release of the library; it stands for all up to the next row."""

    name: str
    reads: str  # the newest CDI version that it knows; of later ones it knows neither the name nor the fields
    yaml: int = 2  # 2: go-yaml 2, then JSON: keys in any case, `no` is "false". 3: go-yaml 3 alone
    checks_version: bool = True  # refuses fields that are newer than the version that the file declares; takes "v0.5.0"
    any_name: bool = True  # a device's name may start with a digit or have one letter
    dotted_class: bool = True
    one_letter: bool = False  # takes a vendor or class of one letter; the others crash
    root_class: bool = False  # intelRdt.closID may be "/"
    no_permissions: bool = False  # permissions may be "none"
    follows_directory: bool = False  # reads a spec directory that is itself a symlink; the others see nothing in it
    missing_hides: bool = False  # a missing directory hides every later one
    unlistable_hides: bool = False  # so does one that can't be listed, or that is not a directory
    unknown: bool = False  # stands for releases that don't exist yet: unknown versions and fields are taken


_UNCHECKED = {"checks_version": False, "dotted_class": False}

RELEASES = (
    LibraryRelease("0.3.0", "0.3.0", any_name=False, missing_hides=True, **_UNCHECKED),
    LibraryRelease("0.4.0", "0.4.0", any_name=False, missing_hides=True, **_UNCHECKED),
    LibraryRelease("0.5.0", "0.5.0", missing_hides=True, **_UNCHECKED),
    LibraryRelease("0.5.1", "0.5.0", **_UNCHECKED),
    LibraryRelease("0.5.4", "0.5.0", dotted_class=False),
    LibraryRelease("0.6.0", "0.6.0"),
    LibraryRelease("0.7.0", "0.7.0"),
    LibraryRelease("0.8.0", "0.8.0"),
    LibraryRelease("1.0.0", "1.0.0"),
    LibraryRelease("1.1.0", "1.1.0", root_class=True),
    LibraryRelease(
        "1.1.1",
        "1.1.0",
        yaml=3,
        one_letter=True,
        root_class=True,
        no_permissions=True,
        follows_directory=True,
        unlistable_hides=True,
    ),
)

# What a runtime that we don't know yet may read.
NEWER = RELEASES[-1]._replace(name="newer", unknown=True)

EVERY = (*RELEASES, NEWER)
NAMES = tuple(release.name for release in RELEASES)  # oldest first
BY_NAME = {release.name: release for release in EVERY}


def row(version: str) -> str:
    """The name of the row that stands for release `version` of the library, as in 0.5.4 for "0.5.4" and "0.5.9"."""
    wanted = _numbers(version)
    return max((name for name in NAMES if _numbers(name) <= wanted), key=_numbers, default=NAMES[0])


@cache
def knowing(table: str, key: str) -> frozenset[str]:
    """The names of the releases that know field `key` of the object `table` (model.py), whatever a file declares."""
    field = next(one.fields[key] for one in model.TABLES if one.name == table)
    lacking = cap.FIELDS.get((table, key))
    gone = lacking.gone if lacking else ""
    return frozenset(
        one.name for one in EVERY if one.unknown or (_reads(one, field.since) and not (gone and _reads(one, gone)))
    )


@cache
def declaring(version: str) -> frozenset[str]:
    """The names of the releases that know cdiVersion `version` by name."""
    return frozenset(one.name for one in EVERY if one.unknown or _knows(one, version))


def having(names: Iterable[str], column: str) -> frozenset[str]:
    """Those of the releases `names` for which a column of the table is true."""
    return frozenset(name for name in names if getattr(BY_NAME[name], column))


def _knows(release: LibraryRelease, version: str) -> bool:
    if release.checks_version:
        version = version.removeprefix("v")
    return version in BEFORE or (version in model.VERSIONS and _reads(release, version))


def _reads(release: LibraryRelease, version: str) -> bool:
    return model.VERSIONS.index(release.reads) >= model.VERSIONS.index(version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
