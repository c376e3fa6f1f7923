# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests with virtual machines share: a machine, its controller, and figures that no test depends on."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import controller as controllers
import machine as machines

FIGURES = pytest.StashKey()


def pytest_configure(config):
    config.stash[FIGURES] = []


def pytest_terminal_summary(terminalreporter, config):
    """What was measured on the way."""
    if config.stash[FIGURES]:
        terminalreporter.section("machines, in seconds")
        for what, seconds in config.stash[FIGURES]:
            terminalreporter.write_line(f"{seconds:7.1f}  {what}")


@pytest.fixture(scope="session")
def figure(request):
    """Note how long something took: figure("boot", seconds)."""
    return lambda what, seconds: request.config.stash[FIGURES].append((what, seconds))


@pytest.fixture(scope="session")
def timed(figure):
    """Run a function and note how long it took: timed("provision", function, arguments ...) -> what it returned."""

    def run(what, function, *arguments):
        started = time.monotonic()
        answer = function(*arguments)
        figure(what, time.monotonic() - started)
        return answer

    return run


@pytest.fixture(scope="session")
def machine(timed):
    """Machine `trixie` of machines.yml, after its first boot."""
    why = machines.lacking()
    if why:
        pytest.skip(why)
    known = machines.definition("trixie")
    try:
        timed("make the image, unless it is there", machines.image_of, known)
    except OSError as error:
        pytest.skip(f"no image of a machine can be made here: {error}")
    found = machines.Machine(known)
    try:
        found.start()
        timed("power on to ssh", found.wait_up)
        yield found
    finally:
        found.close()


@pytest.fixture(scope="session")
def controller(machine):
    """Ansible with the installed collection."""
    controllers.install()
    return controllers.Controller(machine)
