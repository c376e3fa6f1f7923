# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plugin of pytest for `make mutation` (mutation.py): which test runs which lines, and then the most promising first.

MUTATION_SECONDS names a JSON file, test -> seconds that it takes. If the file does not exist, this run writes it, and
tells coverage.py which test runs. MUTATION_FIRST names a JSON list of tests: these run first, then the others, the
quick ones before the slow ones. A test that takes far longer than it did ends the process: a fault made it hang.
"""

from __future__ import annotations

import faulthandler
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

SECONDS = Path(os.environ["MUTATION_SECONDS"])
KNOWN: dict[str, float] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
TAKEN: dict[str, float] = {}
# A test beside a busy machine, and one that hangs.
LEAST_S, TIMES = 30.0, 10.0


def pytest_configure() -> None:
    """Let hypothesis stop at the first failure: nobody reads the smallest example."""
    phases = [phase for phase in hypothesis.Phase if phase.name not in ("shrink", "explain")]
    hypothesis.settings.register_profile("mutation", hypothesis.settings.get_profile("default"), phases=phases)
    hypothesis.settings.load_profile("mutation")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in their order."""
    if KNOWN:
        first = set(json.loads(Path(os.environ["MUTATION_FIRST"]).read_text()))
        items.sort(key=lambda item: (item.nodeid not in first, KNOWN.get(item.nodeid, 0.0)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run one test with a time limit, or note its lines."""
    if KNOWN:
        faulthandler.dump_traceback_later(LEAST_S + TIMES * KNOWN.get(item.nodeid, 0.0), exit=True, file=2)
        yield
        faulthandler.cancel_dump_traceback_later()
        return
    import coverage

    noted = coverage.Coverage.current()
    assert noted is not None
    noted.switch_context(item.nodeid)
    started = time.monotonic()
    yield
    TAKEN[item.nodeid] = time.monotonic() - started
    noted.switch_context("")


def pytest_sessionfinish() -> None:
    """Write how long each test took."""
    if TAKEN:
        SECONDS.write_text(json.dumps(TAKEN))
