# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the archive of a release, on the controller."""

from __future__ import annotations

import io
import zipfile
from typing import NamedTuple

from .contents import PACKAGES, ROOT, collect, identify


class Release(NamedTuple):
    """The sources of a release and their id. `pack` makes the archive when a host needs it."""

    id: str  # <version>-<digest>
    sources: dict[str, bytes]


def build(module_utils_dir: str) -> Release:
    """Return the release of the *.py files below `module_utils_dir`.

    Equal sources give equal ids, in a checkout and in an installed collection. Raises OSError, and CdiError if the
    directory is not this collection's.
    """
    sources = {f"{package}/__init__.py": b"" for package in PACKAGES}
    sources.update(collect(module_utils_dir, ROOT))
    return Release(identify(sources), sources)


def pack(release: Release) -> bytes:
    """Return the archive: a zip whose bytes depend only on the sources. Uncompressed, because zlib versions differ."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(release.sources):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, on every controller
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, release.sources[name])
    return buffer.getvalue()
