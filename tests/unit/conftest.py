# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What unit tests share: each error that they provoke has a page in docs/errors."""

from __future__ import annotations

import glob
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import said  # tests/harness

from ansible_collections.fleet.cdi.plugins.module_utils.layout import SPEC_DIRS, Layout
from ansible_collections.fleet.cdi.plugins.module_utils.release import needed_by
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.plugins.module_utils.system import proc

said.watch()


@pytest.fixture(autouse=True)
def every_error_has_a_page() -> Iterator[None]:
    """Fail a test in which the code makes an error that no page explains (plugins/module_utils/explanations)."""
    said.unexplained.clear()
    yield
    assert said.unexplained == [], "write an explanation for each of these"


@pytest.fixture
def bare_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody find configurations or records in the usual places, or containers: this machine may have some."""
    usual = Layout.__new__.__defaults__
    bare = tuple("/nonexistent" if one == SPEC_DIRS[0] else one for one in usual)  # the directory of configurations
    monkeypatch.setattr(Layout.__new__, "__defaults__", bare)
    monkeypatch.setattr(needed_by, "_defaults", lambda _prefix: {})
    monkeypatch.setattr(containers, "ENGINES", dict.fromkeys(containers.ENGINES, list))


def _environment(path: str) -> bytes:
    with suppress(OSError):  # the thread has ended; the first one may have done so before the others
        return Path(path).read_bytes()
    return b""


@pytest.fixture
def only_own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let looks at all processes see this process, and those that the test starts.

    Other tests have the same device nodes open at the same time, and so have other runs of these tests.
    """
    name = uuid.uuid4().hex
    monkeypatch.setenv("FLEET_CDI_TEST", name)
    mark = f"FLEET_CDI_TEST={name}\0".encode()
    opened = proc.EveryProcess.opened

    def is_own(pid: int) -> bool:
        threads = glob.iglob(f"/proc/{pid}/task/*/environ")
        return pid == os.getpid() or any(mark in _environment(path) for path in threads)

    def own(self: proc.EveryProcess) -> Iterator[tuple[int, int]]:
        return ((pid, process) for pid, process in opened(self) if is_own(pid))

    monkeypatch.setattr(proc.EveryProcess, "opened", own)
