# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Setup and teardown: what they are told, who may write them, what happens when they fail, hang or meet each other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.system import processes
from ansible_collections.fleet.cdi.tests.unit.builders import program, trusted_directory
from ansible_collections.fleet.cdi.tests.unit.limits import LeapingClock, gone
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, gpus
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

GPU0 = ["/dev/dri/card0", "/dev/dri/renderD128"]
GPU1 = ["/dev/dri/card1", "/dev/dri/renderD129"]
BOTH = GPU0 + GPU1
DELETE = {"CDI_VERSION": "0.0.1", "CDI_COMMAND": "DEL", "CDI_REQUEST_ID": "a"}


@pytest.fixture
def trusted():
    """A directory in which only root can write, all the way down."""
    with trusted_directory() as directory:
        yield directory


@pytest.fixture
def machine(hosts, trusted):
    """A host with two GPUs, and `program`, which makes a trusted program of shell commands."""
    machine = hosts(gpus((4096, 8192)))
    machine.program = partial(program, trusted)
    machine.log = machine.directory / "log"
    return machine


def state(machine, request_id="a"):
    """The states of the parts of a grant, and the reasons why it is withheld."""
    grant = Ledger(str(machine.state), "boot-1").find(Key("gpu", "drm", request_id))
    return [(part.state, sorted(set(part.reasons.values()))) for part in grant.parts] if grant else []


def test_what_the_commands_are_told(machine):
    show = machine.program("show", f"env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort >> {machine.log}")
    conf = machine.configure(config(setup=[*show, "x"], teardown=show))
    os.environ["SECRET_OF_THE_CALLER"] = "1"
    try:
        assert machine.add(conf, "gpu:1", "a") == GPU0
    finally:
        del os.environ["SECRET_OF_THE_CALLER"]
    told = {
        "CDI_COMMAND": "ADD",
        "CDI_DEVICES": "pci:0000:01:00.0",
        "CDI_DEVICE_NODES": "/dev/dri/card0,/dev/dri/renderD128",
        "CDI_PLUGIN": "drm",
        "CDI_REQUEST_ID": "a",
        "CDI_TYPE": "gpu",
        "CDI_VERSION": "0.0.1",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    assert dict(line.split("=", 1) for line in machine.log.read_text().splitlines()) == told
    machine.log.unlink()
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert dict(line.split("=", 1) for line in machine.log.read_text().splitlines()) == {**told, "CDI_COMMAND": "DEL"}


def test_no_shell_sees_the_arguments(machine):
    conf = machine.configure(
        config(setup=[*machine.program("show", f'printf "%s|" "$@" > {machine.log}'), "a b", "$(id)"])
    )
    machine.add(conf, "gpu:1", "a")
    assert machine.log.read_text() == "a b|$(id)|"


def test_a_repeated_request_is_not_set_up_again(machine):
    conf = machine.configure(config(setup=machine.program("count", f"echo x >> {machine.log}")))
    machine.add(conf, "gpu:1", "a")
    machine.add(conf, "gpu:1", "a")
    assert machine.log.read_text() == "x\n"
    assert state(machine) == [("active", [])]
    (machine.directory / ("root" + BOOT)).write_text("boot-2\n")
    machine.refresh()
    machine.add(conf, "gpu:1", "a")  # what a reboot undid is done again
    assert machine.log.read_text() == "x\nx\n"


def test_a_device_that_a_reboot_brings_late_is_set_up_then(machine):
    """The request is refused while the device is missing, and is not left half set up."""

    def reboot(memories):
        shutil.rmtree(machine.root)
        tree = gpus(memories)
        tree["files"][BOOT] = "boot-2\n"
        render(tree, Path(machine.root))
        machine.refresh()

    conf = machine.configure(config(setup=machine.program("count", f"echo x >> {machine.log}")))
    machine.add(conf, "gpu:2", "a")
    reboot((4096,))
    for _time in range(2):
        assert machine.refused(conf, "gpu:2", "a")[0] == 100
        assert state(machine) == [("active", [])]
    reboot((4096, 8192))
    assert machine.add(conf, "gpu:2", "a") == BOTH
    assert machine.log.read_text() == "x\nx\n"


def test_a_failed_setup_undoes_the_whole_request(machine):
    fails = machine.program("fails", "echo no firmware >&2; exit 3")
    undo = machine.program("undo", f"echo $CDI_DEVICES >> {machine.log}")
    conf = machine.configure(config(setup=fails, teardown=undo))
    code, details = machine.refused(conf, "gpu:2", "a")
    assert (code, details) == (104, f'{fails[0]}: failed (exit status 3); it said "no firmware"')
    assert machine.log.read_text() == "pci:0000:01:00.0,pci:0000:02:00.0\n"
    assert state(machine) == []
    assert machine.add(config(), "gpu:2", "b") == BOTH


def has_begun(machine):
    """Whether a command has written to the log."""
    return machine.log.exists() and machine.log.read_text() != ""


def test_a_setup_that_hangs_is_ended_with_all_it_started(machine, monkeypatch):
    hangs = machine.program("hangs", f"sleep 600 & echo $! > {machine.log}; wait")
    conf = machine.configure(config(setup=hangs, time_limit=100.0))
    monkeypatch.setattr(processes, "time", LeapingClock(lambda: has_begun(machine)))
    assert machine.refused(conf, "gpu:1", "a") == (104, f"{hangs[0]}: took more than 100 s, and was ended")
    assert gone(int(machine.log.read_text()))
    assert machine.add(config(), "gpu:2", "b") == BOTH


def test_a_setup_that_leaves_a_daemon_behind_is_not_waited_for(machine):
    leaves = machine.program("leaves", f"sleep 600 & echo $! > {machine.log}")
    conf = machine.configure(config(setup=leaves))
    assert machine.add(conf, "gpu:1", "a") == GPU0
    os.kill(int(machine.log.read_text()), signal.SIGKILL)  # it is there


def test_a_setup_that_prints_without_end(machine):
    conf = machine.configure(config(setup=machine.program("prints", "yes | head -c 5000000; yes >&2"), time_limit=0.5))
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, "took more than" in details) == (104, True)


def test_a_failed_teardown_withholds_the_device(machine):
    fails = machine.program("fails", f"test -e {machine.log} || {{ echo busy; exit 1; }}")
    conf = machine.configure(config(teardown=fails))
    machine.add(conf, "gpu:1", "a")
    status, reply = machine.ask("DEL", conf, "", "a")
    why = f'{fails[0]}: failed (exit status 1); it said "busy"'
    assert (status, reply["code"], reply["details"]) == (0, 105, why)
    assert state(machine) == [("withheld", [f"Teardown failed (error 105): {why}"])]
    assert machine.add(conf, "gpu:1", "b") == GPU1
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, "busy" in details) == (109, True)
    machine.log.write_text("")
    assert machine.ask("DEL", conf, "", "a") == (0, None)  # asked again, it is torn down
    assert machine.add(conf, "gpu:1", "a") == GPU0


def test_a_failed_setup_whose_teardown_fails_withholds_too(machine):
    fails = machine.program("fails", "exit 1")
    conf = machine.configure(config(setup=fails, teardown=fails))
    code, details = machine.refused(conf, "gpu:1", "a")
    assert code == 104
    assert "then it could not be undone: Teardown failed (error 105)" in details
    assert state(machine)[0][0] == "withheld"
    assert machine.add(config(), "gpu:1", "b") == GPU1


def test_teardown_runs_without_an_inventory(machine):
    conf = machine.configure(
        config(teardown=machine.program("show", f"echo $CDI_DEVICES,$CDI_DEVICE_NODES > {machine.log}"))
    )
    machine.add(conf, "gpu:1", "a")
    subprocess.run(["rm", "-rf", str(machine.directory / "run")], check=True)
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert machine.log.read_text() == "pci:0000:01:00.0,\n"


def kill_in(machine, variables, conf):
    """Call the executable, and kill it and its command once that has written its number to the log."""
    with subprocess.Popen(
        [str(machine.directory / "opt/bin/drm")], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as caller:
        caller.stdin.write(json.dumps(conf).encode())
        caller.stdin.close()
        while not has_begun(machine):
            time.sleep(0.02)
        caller.kill()
    os.kill(int(machine.log.read_text()), signal.SIGKILL)


def test_killed_during_teardown_then_deleted(machine, python):
    """Nobody takes what is half torn down for granted, or free."""
    slow = machine.program("slow", f"test -e {machine.log} || {{ echo $$ > {machine.log}; exec sleep 30; }}")
    conf = machine.configure(config(teardown=slow))
    machine.install(python)
    machine.add(conf, "gpu:1", "a")
    kill_in(machine, DELETE, conf)
    assert state(machine) == [("withheld", ["its teardown is running, or was interrupted"])]
    assert machine.refused(conf, "gpu:1", "a")[0] == 109
    assert machine.add(conf, "gpu:1", "b") == GPU1
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert machine.add(conf, "gpu:1", "a") == GPU0


def test_killed_during_setup_then_deleted(machine, python):
    """What is pending is nobody's until DEL has torn it down."""
    slow = machine.program("slow", f"echo $$ > {machine.log}; exec sleep 30")
    conf = machine.configure(config(setup=slow, teardown=machine.program("undo", f"echo undone > {machine.log}")))
    machine.install(python)
    kill_in(machine, {**DELETE, "CDI_COMMAND": "ADD", "CDI_REQUEST": "gpu:1"}, conf)
    assert state(machine) == [("pending", [])]
    assert machine.add(config(), "gpu:1", "b") == GPU1
    assert machine.refused(conf, "gpu:1", "a")[0] == 109
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert machine.log.read_text() == "undone\n"
    assert machine.add(config(), "gpu:1", "c") == GPU0


def test_two_deletes_of_one_request_take_turns(machine, python):
    """A second teardown must not run when the device is already somebody else's (sriov-cni#219)."""
    slow = machine.program("slow", f"echo $CDI_REQUEST_ID in >> {machine.log}; sleep 0.3; echo out >> {machine.log}")
    conf = machine.configure(config(teardown=slow))
    machine.add(conf, "gpu:1", "a")
    machine.install(python)
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(machine.run("drm", DELETE, conf))) for _two in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((status, reply["code"] if reply else 0) for status, reply, _said in replies) == [(0, 0), (0, 5)]
    assert machine.log.read_text() == "a in\nout\n"


def test_requests_do_not_wait_for_each_other(machine, python):
    """Each setup ends when the other one has begun."""
    meet = (
        f"touch {machine.log}.$CDI_REQUEST_ID; until [ -e {machine.log}.a -a -e {machine.log}.b ]; do sleep 0.05; done"
    )
    conf = machine.configure(config(setup=machine.program("meet", meet), time_limit=100))
    machine.install(python)
    variables = {**DELETE, "CDI_COMMAND": "ADD", "CDI_REQUEST": "gpu:1"}
    replies = []

    def call(name):
        replies.append(machine.run("drm", {**variables, "CDI_REQUEST_ID": name}, conf))

    threads = [threading.Thread(target=call, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reply["devices"] for _status, reply, _said in replies) == [GPU0, GPU1]


def test_whoever_waits_too_long_for_the_turn_is_told(machine, python):
    enough = machine.directory / "enough"
    slow = machine.program("slow", f"echo > {machine.log}; until [ -e {enough} ]; do sleep 0.05; done")
    conf = machine.configure(config(teardown=slow))
    machine.add(conf, "gpu:1", "a")
    machine.install(python)
    thread = threading.Thread(target=lambda: machine.run("drm", DELETE, conf))
    thread.start()
    while not has_begun(machine):
        time.sleep(0.01)
    impatient = {**conf, "args": {**conf["args"], "time_limit": 0.05}}
    status, reply = machine.ask("DEL", impatient, "", "a")
    assert (status, reply["code"]) == (0, 108)
    enough.touch()
    thread.join()
    assert state(machine) == []


# --- who may write what root runs


def ours(path):
    return path


def of_a_user(path):
    os.chown(path, 65534, 65534)
    return path


def writable_by_group(path):
    os.chmod(path, 0o775)
    return path


def writable_by_all(path):
    os.chmod(path, 0o757)
    return path


def in_a_directory_of_a_user(path):
    os.chown(os.path.dirname(path), 65534, 0)
    return path


def in_a_writable_directory(path):
    os.chmod(os.path.dirname(path), 0o1777)
    return path


def behind_a_link(path):
    os.symlink(os.path.basename(path), path + ".link")
    return path + ".link"


def behind_a_link_of_a_user(path):
    os.symlink(path, path + ".link")
    os.lchown(path + ".link", 65534, 65534)
    return path + ".link"


def behind_a_link_through_a_writable_directory(path):
    inner = os.path.dirname(path) + "/open"
    os.mkdir(inner)
    os.chmod(inner, 0o777)
    os.symlink(path, f"{inner}/link")
    os.symlink("open/link", path + ".link")
    return path + ".link"


def behind_links_in_a_circle(path):
    os.symlink(path + ".b", path + ".a")
    os.symlink(path + ".a", path + ".b")
    return path + ".a"


def through_points(path):
    return f"{os.path.dirname(path)}/./../{os.path.basename(os.path.dirname(path))}//{os.path.basename(path)}"


def a_directory(path):
    return os.path.dirname(path)


def missing(path):
    return path + ".none"


WHO = {
    ours: "",
    behind_a_link: "",
    through_points: "",
    of_a_user: "inner belongs to user 65534; expected root",
    writable_by_group: "can be written by others (mode 0775)",
    writable_by_all: "can be written by others (mode 0757)",
    in_a_directory_of_a_user: "belongs to user 65534, group 0 and has mode 0755, who can put something else there",
    in_a_writable_directory: "has mode 1777, so that every user can make files in it",
    behind_a_link_of_a_user: "link belongs to user 65534; expected root",
    behind_a_link_through_a_writable_directory: "has mode 0777, so that others can put something else there",
    behind_links_in_a_circle: "Too many levels of symbolic links",
    a_directory: "is not a regular file",
    missing: "No such file or directory",
}


@pytest.mark.parametrize("place", WHO, ids=lambda place: place.__name__)
def test_only_what_is_roots_alone_is_run(machine, place):
    path = place(machine.program("inner", f"touch {machine.log}")[0])
    conf = machine.configure(config(setup=[path]))
    if not WHO[place]:
        machine.add(conf, "gpu:1", "a")
        assert machine.log.exists()
        return
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, details.startswith(f"{path}: was not run: ")) == (104, True)
    assert WHO[place] in details
    assert not machine.log.exists()
    assert state(machine) == []


def test_a_file_that_is_no_program(machine):
    path = machine.program("plain", "")[0]
    os.chmod(path, 0o644)
    conf = machine.configure(config(setup=[path]))
    assert machine.refused(conf, "gpu:1", "a") == (
        104,
        f"{path}: can't be started (Permission denied; make it executable (chmod 755))",
    )
