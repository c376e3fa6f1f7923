# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection kubernetes.core, and the Python package kubernetes that it needs, in directories of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import other_collections

LIBRARY = "kubernetes>=30"


class KubernetesPlaces(NamedTuple):
    """What a run of Ansible needs to use kubernetes.core."""

    collections: Path  # for ANSIBLE_COLLECTIONS_PATH
    library: Path  # for PYTHONPATH


def place(build: Path) -> KubernetesPlaces:
    """Return the places; the first call fetches two packages. Raises OSError."""
    collections = other_collections.place(build)
    library = build / "kubernetes-library"
    if not library.exists():
        start = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        with tempfile.TemporaryDirectory(dir=build) as work:
            done = subprocess.run(
                [*start, "--target", f"{work}/all", LIBRARY],
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            if done.returncode:
                raise OSError(f"pip install {LIBRARY}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            Path(work, "all").rename(library)
    return KubernetesPlaces(collections, library)
