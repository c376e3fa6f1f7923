# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests share: the collection under its own name, real counterparts, dumps, hypothesis' profiles."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import counterparts  # tests/harness (pyproject.toml, pythonpath)
import hypothesis
import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


def link_collection() -> str:
    """Make the checkout importable as ansible_collections.fleet.cdi; returns the directory for the import path."""
    link = CHECKOUT / "build/pythonpath/ansible_collections/fleet/cdi"
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(CHECKOUT, link.parent))
    return str(link.parents[2])


sys.path.insert(0, link_collection())

# As the daemon does (device_plugin/daemon/daemon.py): gRPC reads this at its first import. Without it, its handlers run
# in the child of each fork beside a running server, and now and then the child ends before it becomes the program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Deterministic by default: a run in CI fails because of a change, never by chance. `make nightly` looks further.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=10_000, database=None)
hypothesis.settings.register_profile("few", deadline=None, max_examples=10, derandomize=True, database=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a real program that the machine lacks, with a line that names its package."""
    for mark in item.iter_markers("counterpart"):
        lacking = counterparts.missing(mark.args)
        if lacking:
            pytest.skip(f"missing packages: {' '.join(lacking)} (make test INSTALL=1)")


@pytest.fixture(scope="session", autouse=True)
def no_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the changes of tests out of this machine's log."""
    from ansible_collections.fleet.cdi.plugins.module_utils.cli import system_log

    system_log.ADDRESS = str(tmp_path_factory.getbasetemp() / "no log")


@pytest.fixture(scope="session")
def dumps() -> Path:
    """The folder with dumps of real machines (docs/architecture.md, section 7); skips where there is none."""
    folder = os.environ.get("FLEET_CDI_DATA", "")
    if not folder:
        pytest.skip("no dumps of real machines: set FLEET_CDI_DATA to the folder that has sysfs/")
    return Path(folder)
