# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stores that can't be used and callers that do not listen: what is replied, and that nothing is granted."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import schema
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.migrate import migrate
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import call, commands, delete
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.messages import error_reply
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.versions import VERSIONS
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus

GPU0 = ["/dev/dri/card0", "/dev/dri/renderD128"]
GPU1 = ["/dev/dri/card1", "/dev/dri/renderD129"]


def test_a_store_of_a_newer_release_is_not_touched(two):
    machine, conf = two
    machine.add(conf, "gpu:1", "a")
    newer = (schema.VERSION + 1) * 100 + schema.VERSION + 1
    migrate(Ledger(str(machine.state), "boot-1"), {schema.VERSION: ["CREATE TABLE more (id INTEGER)"]}, newer)
    store = machine.state / "ledger.db"
    before = store.read_bytes()
    code, details = machine.refused(conf, "gpu:1", "b")
    assert code == 102
    assert "Use the release that wrote it" in details
    status, reply = machine.ask("DEL", conf, "", "a")
    assert (status, reply["code"]) == (0, 102)
    assert machine.ask("INFO", conf)[0] == 0
    assert store.read_bytes() == before


def test_a_state_directory_that_is_none(two):
    machine, conf = two
    machine.state.write_text("")
    assert machine.refused(conf, "gpu:1", "a")[0] == 102
    status, reply = machine.ask("DEL", conf, "", "a")
    assert (status, reply["code"]) == (0, 102)


def test_a_store_that_somebody_keeps_is_waited_for_and_then_told(two, monkeypatch):
    machine, conf = two
    machine.add(conf, "gpu:1", "a")
    with monkeypatch.context() as short, open(machine.state / "ledger.lock", "rb") as file:
        short.setattr(delete, "Ledger", functools.partial(Ledger, wait=0.05))
        fcntl.flock(file, fcntl.LOCK_EX)
        assert machine.refused(conf, "gpu:1", "b")[0] == 108
        status, reply = machine.ask("DEL", conf, "", "a")
        assert (status, reply["code"]) == (0, 108)
    assert machine.ask("DEL", conf, "", "a") == (0, None)


def test_a_store_that_fails_between_setup_and_reply(hosts):
    """Setup takes the store away: it can neither be made active nor undone, and the reply says both."""
    machine = hosts(gpus((4096, 8192)))
    away = ["/bin/sh", "-c", f"mv {machine.state} {machine.state}.away; echo > {machine.state}"]
    conf = machine.configure(config(setup=away))
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, details.count("is not a directory")) == (102, 2), details


VARIABLES = {"CDI_VERSION": "0.0.1", "CDI_COMMAND": "ADD", "CDI_REQUEST": "gpu:1", "CDI_REQUEST_ID": "a"}


def test_a_user_without_permission(two, python):
    checkout = Path(__file__).resolve()
    closed = [str(path) for path in checkout.parents if not path.stat().st_mode & 0o001]
    if closed:
        pytest.skip(f"{closed[-1]} keeps other users from this checkout, whose code the executable runs")
    machine, conf = two
    machine.install(python)
    machine.add(conf, "gpu:1", "b")
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    reachable = [machine.directory, *machine.directory.parents]
    if any(not path.stat().st_mode & 0o001 for path in reachable):
        for path in reachable[:3]:
            path.chmod(0o755)
    status, reply, said = machine.run("drm", VARIABLES, conf, **nobody)
    assert (status, reply["code"], said) == (1, 102, "")
    assert "ermission denied" in reply["details"]
    status, reply, said = machine.run("drm", {**VARIABLES, "CDI_COMMAND": "DEL"}, conf, **nobody)
    assert (status, reply["code"], said) == (0, 102, "")


@pytest.fixture
def small_disk(two):
    """The host's state directory on a file system of its own of 256 KiB; call it to mount it with other options."""
    machine, _conf = two
    machine.state.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "fleet-cdi-test", str(machine.state)]
    if shutil.which("mount") is None or subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small file system")
    yield lambda options: subprocess.run(["mount", "-o", f"remount,{options}", str(machine.state)], check=True)
    subprocess.run(["umount", str(machine.state)], check=True)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk(two, python):
    machine, conf = two
    machine.install(python)
    assert machine.run("drm", VARIABLES, conf)[0] == 0
    with open(machine.state / "filler", "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(512))
    taken = 0
    for number in range(50):  # as long as what the store has in reserve lasts
        status, reply, _said = machine.run("drm", {**VARIABLES, "CDI_REQUEST_ID": f"b{number}"}, conf)
        taken += status == 0
        if status:
            break
    assert (status, reply["code"] in (100, 102)) == (1, True), reply
    assert taken <= 1  # there is one more GPU
    assert machine.run("drm", {**VARIABLES, "CDI_COMMAND": "DEL"}, conf) == (0, None, "")


def test_a_read_only_disk(two, small_disk, python):
    machine, conf = two
    machine.install(python)
    assert machine.run("drm", VARIABLES, conf)[0] == 0
    small_disk("ro")
    status, reply, said = machine.run("drm", {**VARIABLES, "CDI_REQUEST_ID": "b"}, conf)
    assert (status, reply["code"], said) == (1, 102, "")
    assert machine.run("drm", {**VARIABLES, "CDI_COMMAND": "INFO"}, conf)[0] == 0
    status, reply, said = machine.run("drm", {**VARIABLES, "CDI_COMMAND": "DEL"}, conf)
    assert (status, reply["code"], said) == (0, 102, "")
    small_disk("rw")
    assert machine.run("drm", {**VARIABLES, "CDI_COMMAND": "DEL"}, conf) == (0, None, "")


@pytest.mark.parametrize("closed", ["1>&-", "1>/dev/full", "2>&- 1>&-", "| true"])
def test_a_reply_that_does_not_get_out_grants_nothing(two, python, closed):
    machine, conf = two
    machine.install(python)
    (machine.directory / "conf").write_text(json.dumps(conf))
    # A reader that ends at once may still be there when the reply comes: wait for it.
    script = f"set -o pipefail; (sleep 0.3; exec {machine.directory}/opt/bin/drm) < {machine.directory}/conf {closed}"
    if closed != "| true":
        script = f"{machine.directory}/opt/bin/drm < {machine.directory}/conf {closed}"
    done = subprocess.run(["bash", "-c", script], env={**VARIABLES, "PATH": os.environ["PATH"]}, check=False)
    assert done.returncode == 1
    assert machine.add(conf, "gpu:2", "b") == GPU0 + GPU1


def test_a_version_that_does_not_get_out_is_an_error(two, python):
    machine, _conf = two
    machine.install(python)
    done = subprocess.run(
        ["bash", "-c", f"{machine.directory}/opt/bin/drm >/dev/full"], env={"CDI_COMMAND": "VERSION"}, check=False
    )
    assert done.returncode == 1


def test_closed_standard_handles_do_not_reach_the_store(two, python):
    machine, conf = two
    machine.install(python)
    (machine.directory / "conf").write_text(json.dumps(conf))
    script = f"{machine.directory}/opt/bin/drm 0<&- 2>&-"
    done = subprocess.run(["bash", "-c", script], env=VARIABLES, capture_output=True, check=False)
    reply = json.loads(done.stdout)
    assert (done.returncode, reply["code"]) == (1, 107)
    # It is read as empty: nothing of ours took the handle.
    assert reply["details"].startswith(
        "config: is not a JSON document"
    )  # read as empty: nothing of ours took the handle


@pytest.mark.parametrize(("command", "status"), [("VERSION", 0), ("INFO", 1), ("ADD", 1), ("DEL", 0), ("del", 0)])
def test_a_release_that_lost_its_files(two, python, command, status):
    """VERSION and DEL must not fail, and others must reply their error (proposal, "Errors", "VERSION" and "DEL")."""
    machine, conf = two
    machine.install(python)
    code = machine.directory / "opt/lib/release/ansible_collections"
    code.unlink()
    for name in ("cdi_plugin/main.py", "protocol/versions.py"):
        path = code / "fleet/cdi/plugins/module_utils" / name
        path.parent.mkdir(parents=True)
        path.write_bytes((Path(commands.__file__).parents[1] / name).read_bytes())
    ended, reply, said = machine.run("drm", {**VARIABLES, "CDI_COMMAND": command}, conf)
    assert (ended, said) == (status, "")
    if command != "VERSION":
        lost = ProtocolError(errors.INTERNAL, reply["details"])
        assert reply == json.loads(error_reply(VERSIONS[-1], lost))
        assert reply["details"].startswith("ImportError: ")


def test_stdin_that_never_ends_is_not_waited_for(two, monkeypatch):
    machine, _conf = two
    monkeypatch.setattr(call, "PATIENCE", 0.05)
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    try:
        status, out, _undo = commands.answer("drm", VARIABLES, machine.host)
    finally:
        os.dup2(kept, 0)
        for handle in (reading, writing, kept):
            os.close(handle)
    assert (status, json.loads(out)["code"]) == (1, 108)
