# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resource and the kubelet of the tests of registration; a served resource; where commands of the operator's may
lie."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import served_resource as module
from ansible_collections.fleet.cdi.tests.unit.builders import program, trusted_directory
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.registration import Kubelet, Places
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.stage import Stage


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """The event loop that what a test makes belongs to, and that `units.run` runs it in."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    made.run_until_complete(made.shutdown_asyncgens())
    made.run_until_complete(made.shutdown_default_executor())
    made.close()
    asyncio.set_event_loop(None)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


@pytest.fixture
def kubelet(places: Places) -> Kubelet:
    return Kubelet(places)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(module, "ALLOCATIONS", 2)
    return Stage(tmp_path)


@pytest.fixture
def trusted() -> Iterator[str]:
    with trusted_directory() as directory:
        yield directory


@pytest.fixture
def say(trusted: str, tmp_path: Path) -> list[str]:
    """A command that tells a Host's log what it was run for."""
    return program(trusted, "say", f'echo "$CDI_COMMAND $CDI_REQUEST_ID" >> {tmp_path / "log"}')
