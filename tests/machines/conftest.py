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
from whole import MACHINE

FIGURES = pytest.StashKey()
SILENT = pytest.StashKey()
FROZEN = 75  # the exit status after which the Makefile tries once more: sysexits.h, EX_TEMPFAIL


def pytest_configure(config):
    config.stash[FIGURES] = []
    config.stash[SILENT] = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A machine that froze says no more: show where it stands, and end the run."""
    report = yield
    machine = item.funcargs.get("machine")
    if machine and call.excinfo and call.excinfo.errisinstance(machines.Silent):
        report.sections.append(("the machine does not answer", machine.standstill()))
        item.session.shouldfail = "the machine does not answer"
        item.config.stash[SILENT] = machines.accelerator(machine.image.kernel) == "tcg"
    return report


def pytest_sessionfinish(session):
    """Emulation by QEMU freezes a kernel now and then, whatever runs in it. Under KVM it is a failure as any other."""
    if session.config.stash[SILENT]:
        session.exitstatus = FROZEN


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
    """The machine of machines.yml that the environment variable MACHINE names (trixie), after its first boot."""
    why = machines.lacking()
    if why:
        pytest.skip(why)
    known = machines.definition(MACHINE)
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
