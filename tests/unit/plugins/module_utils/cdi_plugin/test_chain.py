# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chains of plugins, by docs/chain-loading.md: sriov picks virtual functions, the next one manages their nodes."""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.system import processes
from ansible_collections.fleet.cdi.tests.unit.builders import program, trusted_directory
from ansible_collections.fleet.cdi.tests.unit.limits import LeapingClock
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpu_functions

VF0, VF1 = "pci:0000:01:00.1", "pci:0000:01:00.2"
BOTH = ["/dev/dri/card1", "/dev/dri/renderD129", "/dev/dri/card2", "/dev/dri/renderD130"]


@pytest.fixture
def machine(hosts, python):
    """A host with a GPU of three virtual functions and the executables; `trusted` is a place for root's programs."""
    machine = hosts(gpu_functions(3))
    machine.install(python)
    machine.log = machine.directory / "log"
    with trusted_directory() as machine.trusted:
        yield machine


def note(machine, word, then=""):
    """A program that notes `word`, the command and its devices."""
    return program(machine.trusted, word, f"echo {word} $CDI_COMMAND $CDI_DEVICES >> {machine.log}\n{then}")


def foreign(machine, text, name="foreign"):
    """A plugin of somebody else's, as a shell script."""
    program(machine.directory / "opt/bin", name, text)
    return name


def chained(plugin, args=None, **own):
    return config("sriov", delegate={"plugin": plugin, **({} if args is None else {"args": args})}, **own)


def held(machine, plugin="sriov", request_id="a"):
    grant = Ledger(str(machine.state), "boot-1").find(Key("gpu", plugin, request_id))
    return [hold.device for hold in grant.holds] if grant else []


def test_the_next_plugin_manages_the_nodes_of_what_was_picked(machine):
    conf = machine.configure(chained("drm", {"want_device_nodes": ["render"]}))
    assert machine.ask("ADD", conf, "gpu:2", "a")[1] == {
        "cdiVersion": "0.0.1",
        "devices": ["/dev/dri/renderD129", "/dev/dri/renderD130"],
        "numa_locality": [0],
        "proved": True,
    }
    assert (held(machine), held(machine, "drm")) == ([VF0, VF1], [])
    assert machine.add(conf, "gpu:2", "a") == ["/dev/dri/renderD129", "/dev/dri/renderD130"]
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert held(machine) == []


def test_without_a_delegate_it_replies_the_nodes_itself(machine):
    conf = machine.configure(config("sriov"))
    assert machine.ask("INFO", conf)[1] == {"cdiVersion": "0.0.1", "gpu": 3}
    assert machine.add(conf, "gpu:2", "a") == BOTH


def test_nobody_else_gets_what_a_chain_holds(machine):
    conf, gpu = chained("drm"), config()
    machine.configure(conf, gpu)
    machine.add(conf, "gpu:3", "a")
    assert machine.refused(gpu, "gpu:1", "b")[0] == 100  # neither a function nor the GPU that they are parts of
    assert machine.refused(conf, "gpu:1", "b")[0] == 100
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert machine.add(gpu, "gpu:3", "b") == [*BOTH, "/dev/dri/card3", "/dev/dri/renderD131"]  # not the GPU beside them
    assert machine.refused(conf, "gpu:1", "c")[0] == 100


def test_order_of_steps(machine):
    """Down the chain to set up, up again to tear down; each once, however often the request is repeated."""
    inner = {"setup": note(machine, "inner-setup"), "teardown": note(machine, "inner-teardown")}
    conf = chained("drm", inner, setup=note(machine, "outer-setup"), teardown=note(machine, "outer-teardown"))
    machine.configure(conf)
    machine.add(conf, "gpu:1", "a")
    machine.add(conf, "gpu:1", "a")
    machine.ask("DEL", conf, "", "a")
    assert machine.log.read_text().splitlines() == [
        f"outer-setup ADD {VF0}",
        f"inner-setup ADD {VF0}",
        f"inner-teardown DEL {VF0}",
        f"outer-teardown DEL {VF0}",
    ]


def test_three_in_a_row(machine):
    last = {"plugin": "rule", "args": {"match": {"subsystem": "drm", "node": "dri/renderD*"}, "kind": "x.com/render"}}
    last["args"]["setup"] = note(machine, "last")
    conf = machine.configure(chained("drm", {"delegate": last, "setup": note(machine, "middle")}))
    assert machine.add(conf, "gpu:1", "a") == ["/dev/dri/renderD129"]
    assert machine.log.read_text() == f"middle ADD {VF0}\nlast ADD {VF0}\n"
    assert machine.ask("DEL", conf, "", "a") == (0, None)


def test_what_fails_further_down_undoes_all(machine):
    inner = {"setup": note(machine, "inner-setup", "exit 1"), "teardown": note(machine, "inner-teardown")}
    conf = machine.configure(chained("drm", inner, teardown=note(machine, "outer-teardown")))
    code, details = machine.refused(conf, "gpu:1", "a")
    assert code == 106
    assert details.startswith("drm: Setup failed (error 104): ")
    assert [line.split()[0] for line in machine.log.read_text().splitlines()] == [
        "inner-setup",
        "inner-teardown",
        "outer-teardown",
    ]
    assert held(machine) == []


def test_a_teardown_that_fails_further_down_withholds(machine):
    conf = machine.configure(chained("drm", {"teardown": note(machine, "inner", "exit 1")}))
    machine.add(conf, "gpu:1", "a")
    status, reply = machine.ask("DEL", conf, "", "a")
    assert (status, reply["code"]) == (0, 106)
    assert reply["details"].startswith("drm: Teardown failed (error 105): ")
    assert held(machine) == [VF0]
    machine.trusted and note(machine, "inner")
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert held(machine) == []


def test_whoever_takes_too_long_further_down_is_ended_before_it_is_torn_down(machine, monkeypatch):
    """Here the setup of drm, which has a session of its own, outlasts the time that sriov gives to drm."""
    slow = note(machine, "inner-setup", f"sleep 4; echo too late >> {machine.log}")
    inner = {"setup": slow, "teardown": note(machine, "inner-teardown")}
    conf = machine.configure(chained("drm", inner))
    monkeypatch.setattr(processes, "time", LeapingClock(machine.log.exists))
    assert machine.refused(conf, "gpu:1", "a")[0] == 108
    time.sleep(4)
    assert machine.log.read_text().splitlines()[-1] == f"inner-teardown DEL {VF0}"


def test_a_next_plugin_without_such_devices(machine):
    conf = machine.configure(chained("drm", {"vendorid_whitelist": ["0x9999"]}))
    assert machine.refused(conf, "gpu:1", "a") == (
        106,
        f"drm: Request cannot be fulfilled (error 100): {VF0}: this plugin knows no device on it",
    )
    assert held(machine) == []


# --- who may say what was picked


def test_only_what_the_request_holds_can_have_been_picked(machine):
    conf = chained("drm")
    machine.configure(conf)
    machine.add(conf, "gpu:1", "a")
    for request_id, plugin, device in (("b", "sriov", VF0), ("a", "rule", VF0), ("a", "sriov", VF1)):
        forged = config(picked={"plugin": plugin, "devices": [device]})
        code, details = machine.refused(forged, "gpu:1", request_id)
        assert (code, details) == (106, f"args.picked: {plugin} holds no such devices for request {request_id}")
    forged = config(picked={"plugin": "sriov", "devices": [VF1]}, teardown=note(machine, "torn"))
    status, reply = machine.ask("DEL", forged, "", "a")
    assert (status, reply["code"]) == (0, 5)
    assert not machine.log.exists()


# --- plugins of others


def test_what_a_foreign_plugin_is_told(machine):
    show = f"""(env | grep ^CDI_ | sort; cat) > {machine.log}
echo '{{"cdiVersion": "0.0.2", "devices": ["/dev/x", "/dev/y", "/dev/x"]}}'"""
    conf = {**chained(foreign(machine, show), {"a": 1}), "cdiVersion": "0.0.2"}
    machine.configure(conf)
    assert machine.add(conf, "gpu:1", "a", CDI_REQUEST_NUMA_LOCALITY="0", OTHER="x") == ["/dev/x", "/dev/y"]
    lines = machine.log.read_text().splitlines()
    assert lines[:-1] == [
        "CDI_CHAIN=sriov",
        "CDI_COMMAND=ADD",
        "CDI_REQUEST=gpu:1",
        "CDI_REQUEST_ID=a",
        "CDI_REQUEST_NUMA_LOCALITY=0",
        "CDI_VERSION=0.0.2",
    ]
    assert json.loads(lines[-1]) == {
        "cdiVersion": "0.0.2",
        "name": "of a test",
        "type": "gpu",
        "plugin": "foreign",
        "args": {"a": 1, "picked": {"plugin": "sriov", "devices": [VF0]}},
    }


REPLIES = {
    "echo '{': no JSON": ("echo '{'", 106, r'opt/bin/foreign: replied "{\n", which is not a reply'),
    "no version": ("echo '{\"devices\": []}'", 106, "it has no cdiVersion"),
    "no devices": ('echo \'{"cdiVersion": "0.0.1"}\'', 106, "foreign: replied no list of devices"),
    "devices that are no texts": (
        'echo \'{"cdiVersion": "0.0.1", "devices": [1]}\'',
        106,
        "replied no list of devices",
    ),
    "nothing": ("true", 106, "foreign: replied no list of devices"),
    "nothing, and a status": ("exit 7", 106, "foreign: ended with exit status 7 and no error"),
    "an error in the words of the text": (
        'echo \'{"cdiVersion": "0.0.1", "error": 111, "message": "broken"}\'; exit 2',
        106,
        "foreign: broken (error 111)",
    ),
    "an error in the words of the examples": (
        'echo \'{"cdiVersion": "0.0.1", "code": 111, "msg": "broken", "details": "in two"}\'; exit 2',
        106,
        "foreign: broken (error 111): in two",
    ),
    "an error, and status 0": (
        'echo \'{"cdiVersion": "0.0.1", "code": 9, "msg": "no"}\'',
        106,
        "foreign: no (error 9)",
    ),
    "too late": ("touch {log}; exec sleep 600", 108, "took more than 30 s"),
}


@pytest.mark.parametrize("case", REPLIES)
def test_bad_replies_undo_all(machine, case, monkeypatch):
    text, code, details = REPLIES[case]
    only_add = f'[ "$CDI_COMMAND" = ADD ] || exit 0\n{text.replace("{log}", str(machine.log))}'
    conf = machine.configure(chained(foreign(machine, only_add)))
    monkeypatch.setattr(processes, "time", LeapingClock(machine.log.exists))
    found = machine.refused(conf, "gpu:1", "a")
    assert (found[0], details in found[1]) == (code, True), found
    assert held(machine) == []


def test_a_next_plugin_that_is_not_there(machine):
    conf = machine.configure(chained("nosuch", setup=note(machine, "setup")))
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, "opt/bin/nosuch: there is no such plugin" in details) == (106, True)
    assert not machine.log.exists()
    assert held(machine) == []


def test_a_plugin_after_the_next_that_is_not_there(machine):
    conf = machine.configure(chained("drm", {"delegate": {"plugin": "nosuch"}}))
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, "opt/bin/nosuch: there is no such plugin" in details) == (106, True)
    assert held(machine) == []


def test_a_next_plugin_that_went(machine):
    """It may have set up what only it can tear down."""
    plugin = foreign(machine, 'echo \'{"cdiVersion": "0.0.1", "devices": []}\'')
    conf = machine.configure(chained(plugin))
    machine.add(conf, "gpu:1", "a")
    path = machine.directory / "opt/bin/foreign"
    path.rename(f"{path}.away")
    status, reply = machine.ask("DEL", conf, "", "a")
    assert (status, reply["code"], "was not run: " in reply["details"]) == (0, 106, True)
    assert held(machine) == [VF0]
    path.with_name("foreign.away").rename(path)
    assert machine.ask("DEL", conf, "", "a") == (0, None)


def test_one_that_has_nothing_to_give_back(machine):
    unknown = 'echo \'{"cdiVersion": "0.0.1", "code": 5, "msg": "Unknown request ID"}\''
    devices = 'echo \'{"cdiVersion": "0.0.1", "devices": []}\''
    plugin = foreign(machine, f'if [ "$CDI_COMMAND" = ADD ]; then {devices}; else {unknown}; fi')
    conf = machine.configure(chained(plugin))
    assert machine.add(conf, "gpu:1", "a") == []
    assert machine.ask("DEL", conf, "", "a") == (0, None)
    assert held(machine) == []


# --- loops and depth


def nested(*plugins):
    """A configuration in which each plugin delegates to the next."""
    args = {}
    for plugin in reversed(plugins[1:]):
        args = {"delegate": {"plugin": plugin, "args": args}}
    return config(plugins[0], **args)


@pytest.mark.parametrize(
    ("plugins", "details"),
    [
        (("sriov", "sriov"), "config: the delegates come back to 'sriov'; expected no loop"),
        (("sriov", "drm", "sriov"), "config: the delegates come back to 'sriov'; expected no loop"),
        (("sriov", "a", "b", "a"), "config: the delegates come back to 'a'; expected no loop"),
        (("sriov", "a", "b", "c", "d"), "config: more than 4 plugins in one chain; expected fewer"),
        (("sriov", *map(str, range(200))), "config: more than 4 plugins in one chain; expected fewer"),
    ],
)
def test_loops_and_depth_of_a_configuration(machine, plugins, details):
    for command in ("ADD", "INFO"):
        status, reply = machine.ask(command, nested(*plugins), "gpu:1", "a")
        assert (status, reply["code"], reply["details"]) == (1, 107, details)
    assert not (machine.state / "ledger.db").exists()


@pytest.mark.parametrize(
    ("chain", "details"),
    [
        ("sriov", 'CDI_CHAIN is "sriov", which comes back to sriov'),
        ("a,sriov,b", 'CDI_CHAIN is "a,sriov,b", which comes back to sriov'),
        ("a,b,c,d", "CDI_CHAIN names 4 plugins; expected fewer than 4"),
    ],
)
def test_loops_and_depth_of_calls(machine, chain, details):
    """Where a plugin of somebody else's leads back, no configuration shows it."""
    conf = machine.configure(config("sriov"))
    assert machine.refused(conf, "gpu:1", "a", CDI_CHAIN=chain) == (106, details)
    assert held(machine) == []


def test_a_loop_through_a_foreign_plugin_ends(machine):
    drm = json.dumps(config("sriov", delegate={"plugin": "back"}))
    back = foreign(
        machine, f"""CDI_CHAIN=$CDI_CHAIN,back exec {machine.directory}/opt/bin/sriov <<'END'\n{drm}\nEND""", "back"
    )
    conf = machine.configure(chained(back))
    code, details = machine.refused(conf, "gpu:1", "a")
    assert (code, 'CDI_CHAIN is "sriov,back", which comes back to sriov' in details) == (106, True)
