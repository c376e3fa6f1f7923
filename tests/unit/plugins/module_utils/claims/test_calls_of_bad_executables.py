# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Executables of others that misbehave, each one really run: one clear error, and nothing stays behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.claims import calls as plugin_calls
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.configurations import find
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.system import processes
from ansible_collections.fleet.cdi.tests.unit.limits import LONGEST, LeapingClock
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config

CASES = yaml.safe_load(Path(__file__).with_name("bad_executables.yml").read_text(encoding="utf-8"))
GOOD = {
    "VERSION": {"cdiVersion": "0.0.2", "supportedVersions": ["0.0.1"]},
    "INFO": {"cdiVersion": "0.0.1", "gpu": 1},
    "ADD": {"cdiVersion": "0.0.1", "devices": ["/dev/a"], "numa_locality": [1]},
}
NAP = f"sleep 7{os.getpid()}"  # seconds; nothing else on the machine sleeps as long
MEMORY = 64 << 10  # KiB that a call may add to this process


def printed(document):
    """Return shell commands that print this text, or this document as JSON."""
    return "printf '%s\\n' '" + (document if isinstance(document, str) else json.dumps(document)) + "'"


def script(case):
    """A plugin of shell that answers well, but for one command."""
    good = {command: printed(document) for command, document in GOOD.items()} | {"DEL": ":"}
    does = f"{printed(case['prints'])}; exit {case.get('status', 0)}" if "prints" in case else case["does"]
    for word, shell in {"nap": NAP, "zeros": "head -c 1G /dev/zero", "good": good["ADD"]}.items():
        if word == "good" and case["calls"] != "DEL":
            shell = good[case["calls"]]
        does = does.replace("{" + word + "}", shell)
    cases = "".join(f"{command})\n{lines}\n;;\n" for command, lines in {**good, case["calls"]: does}.items())
    return f'#!/bin/sh\necho "$CDI_COMMAND" >> "${{0%/*}}/calls"\ncase $CDI_COMMAND in\n{cases}esac\n'


def naps():
    """Processes that sleep NAP."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        if b" ".join(command).decode(errors="replace") == NAP:
            found.append(int(pid))
    return found


CALLS = {
    "VERSION": plugin_calls.versions,
    "INFO": plugin_calls.info,
    "ADD": lambda caller, one: plugin_calls.add(caller, (one,), {"gpu": "1"}, "a"),
    "DEL": lambda caller, one: dict(plugin_calls.delete(caller, (one,), "a")),
}


@pytest.fixture
def installed(tmp_path):
    """A configuration for plugin `odd`, and the path where the plugin belongs: (path, one)."""
    (tmp_path / "gpu.d").mkdir()
    (tmp_path / "gpu.d/odd.conf").write_text(json.dumps(config("odd")))
    (one,) = find(str(tmp_path)).configurations
    yield tmp_path / "odd", one
    for pid in naps():
        os.kill(pid, signal.SIGKILL)


def refusal(call, caller, one):
    """The error of a call; None if it succeeds."""
    try:
        done = CALLS[call](caller, one)
    except ProtocolError as error:
        return error
    return done.get(one.path) if call == "DEL" else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_one_that_misbehaves(installed, case, monkeypatch):
    path, one = installed
    path.write_text(script(case))
    path.chmod(0o755)
    if "hangs" in case:
        monkeypatch.setattr(processes, "time", LeapingClock(lambda: len(naps()) == case["hangs"]))
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    error = refusal(case.get("through", case["calls"]), Caller(str(path.parent), 30.0), one)
    assert time.monotonic() - begin < 25
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY
    end = time.monotonic() + LONGEST
    while naps() and time.monotonic() < end:  # killed, and not yet gone
        time.sleep(0.01)
    assert naps() == []
    assert (error.code if error else None) == case.get("error"), error
    if error:
        assert case["says"] in str(error)
        assert str(error).isprintable() and len(str(error)) < 2500
    asked = (path.parent / "calls").read_text().split()
    assert (asked[-1] == "DEL") == bool(case.get("undone") or case["calls"] == "DEL")


# --- what is there instead of a program


def a_directory(path):
    path.mkdir()


def a_fifo(path):
    os.mkfifo(path, 0o755)


def not_executable(path):
    path.write_text("#!/bin/sh\n")


def of_another_machine(path):
    path.write_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\2\0\xff\xff" + bytes(44))
    path.chmod(0o755)


def without_an_interpreter(path):
    path.write_text("echo '{}'\n")
    path.chmod(0o755)


def with_a_missing_interpreter(path):
    path.write_text("#!/nowhere/python\n")
    path.chmod(0o755)


def empty(path):
    path.touch(0o755)


def missing(_path):
    pass


def a_link_to_nothing(path):
    path.symlink_to("nothing")


def a_link_to_itself(path):
    path.symlink_to(path.name)


def writable_by_others(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(0o757)


def of_a_user(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    os.chown(path, 65534, 65534)


def in_a_directory_of_a_user(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    os.chown(path.parent, 65534, 65534)


def in_a_directory_for_all(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    path.parent.chmod(0o1777)


def a_link_into_a_directory_of_a_user(path):
    folder = path.parent / "user"
    folder.mkdir()
    in_a_directory_of_a_user(folder / "odd")
    path.symlink_to("user/odd")


INSTEAD = {
    a_directory: "is not a regular file",
    a_fifo: "is not a regular file",
    not_executable: "Permission denied; make it executable (chmod 755)",
    of_another_machine: "Exec format error; expected a program of this machine, or a script whose first line names its",
    without_an_interpreter: "Exec format error; expected a program of this machine, or a script whose first line names",
    with_a_missing_interpreter: "No such file or directory; its interpreter is missing",
    empty: "Exec format error",
    missing: "No such file or directory",
    a_link_to_nothing: "No such file or directory",
    a_link_to_itself: "Too many levels of symbolic links",
    writable_by_others: "can be written by others (mode 0757)",
    of_a_user: "belongs to user 65534",
    in_a_directory_of_a_user: "belongs to user 65534",
    in_a_directory_for_all: "so that every user can make files in it",
    a_link_into_a_directory_of_a_user: "belongs to user 65534",
}


@pytest.mark.parametrize("instead", INSTEAD, ids=lambda instead: instead.__name__)
@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_program_of_root_alone(installed, instead, call):
    path, one = installed
    if os.geteuid() != 0:
        pytest.skip("only root can give files to others")
    instead(path)
    error = refusal(call, Caller(str(path.parent), 10.0), one)
    assert error.code == errors.DELEGATION
    assert str(path) in str(error) and INSTEAD[instead] in str(error)


def test_one_that_is_replaced_all_the_time(installed):
    """An upgrade by root at any moment: every call gets an answer of the old or the new one, or an error."""
    path, one = installed
    program = script({"calls": "ADD", "does": "{good}"})
    stop = threading.Event()

    def replace():
        while not stop.is_set():
            new = path.with_name("new")
            new.write_text(program)
            new.chmod(0o755)
            new.replace(path)
            path.unlink()
            path.mkdir()
            path.rmdir()

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        found = [refusal("INFO", Caller(str(path.parent), 10.0), one) for _call in range(40)]
    finally:
        stop.set()
        thread.join()
    assert {error.code for error in found if error} <= {errors.DELEGATION}
