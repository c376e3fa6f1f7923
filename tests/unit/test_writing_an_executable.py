# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guide to an executable of one's own: every command of the page, and its executable below a caller in a hurry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import page  # tests/harness
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import calls
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.cdi_plugin_info import answer
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.configurations import find
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError

COLLECTIONS = Path(calls.__file__).parents[5]  # ansible_collections
PAGE = Path(__file__).resolve().parents[2] / "docs/writing-an-executable.md"
# What the page calls the adapters, and what every machine has. Longer names first.
NODES = {"/dev/ttyUSB0": "/dev/null", "/dev/ttyUSB1": "/dev/zero", "/dev/ttyUSB2": "/dev/full"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="callers run executables of root alone")


def blocks(language):
    return [block.text for block in page.blocks(PAGE.read_text(encoding="utf-8")) if block.language == language]


@pytest.fixture
def here(tmp_path):
    """What the page has -> what a host below a directory has."""
    places = {"/opt/cdi": f"{tmp_path}/opt", "/etc/cdi": f"{tmp_path}/etc", "/var/lib": f"{tmp_path}/var", **NODES}
    (tmp_path / "opt/bin").mkdir(parents=True)
    (tmp_path / "var").mkdir()

    for name, language in (("serial", "sh"), ("lab.conf", "json")):
        (text,) = blocks(language)
        for there, ours in places.items():
            text = text.replace(there, ours)
        (tmp_path / name).write_text(text)
    return places


@pytest.fixture
def installed(here, tmp_path):
    """The executable, installed: (caller, its configurations)."""
    for command in blocks("console")[0].splitlines():
        for there, ours in here.items():
            command = command.replace(there, ours)
        subprocess.run(["sh", "-c", command[2:]], cwd=tmp_path, check=True)
    return Caller(str(tmp_path / "opt/bin"), 20.0), find(str(tmp_path / "etc"), "serial").configurations


def test_it_is_as_short_as_the_page_says():
    assert len(blocks("sh")[0].splitlines()) <= 30


def test_every_command_of_the_page(here, tmp_path):
    defaults = {
        "state_dir": f"{tmp_path}/state",
        "inventory": f"{tmp_path}/run/inventory.json",
        "spec_dirs": [f"{tmp_path}/cdi"],
        "prefix": f"{tmp_path}/opt",
    }
    cli = tmp_path / "opt/bin/fleet-cdi"
    cli.write_text(CLI.format(python=sys.executable, defaults=defaults))
    cli.chmod(0o755)
    with locked_manifest(defaults["state_dir"]) as manifest:  # by which the command finds configurations elsewhere
        manifest.write(f"{tmp_path}/etc/serial.d/other.conf", b"{}\n")
    (tmp_path / "etc/serial.d/other.conf").unlink()
    environment = {"PATH": f"{tmp_path}/opt/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(COLLECTIONS.parent)}
    page.run(PAGE, tmp_path, environment, here)


CLI = """#!{python}
import sys
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main

sys.exit(main(sys.argv[1:], "test", {defaults!r}))
"""


def test_a_caller_of_ours_uses_it(installed, tmp_path):
    caller, found = installed
    assert calls.info(caller, found[0]) == {"serial": 3}
    assert calls.add(caller, found, {"serial": "2"}, "a").devices == ("/dev/null", "/dev/zero")
    with pytest.raises(ProtocolError) as caught:
        calls.add(caller, found, {"serial": "2"}, "b")
    assert (caught.value.code, caught.value.message) == (100, "Only 1 adapters are free")
    with pytest.raises(ProtocolError) as caught:
        calls.add(caller, found, {"serial": "1"}, "a")
    assert caught.value.code == 109
    assert calls.delete(caller, found, "a") == calls.delete(caller, found, "unknown") == ()
    assert calls.add(caller, found, {"serial": "3"}, "b").devices == ("/dev/null", "/dev/zero", "/dev/full")
    options = {
        "prefix": str(tmp_path / "opt"),
        "config_dir": str(tmp_path / "etc"),
        "state_dir": str(tmp_path / "state"),
        "resource_type": None,
        "timeout": 20.0,
    }
    (described,) = answer(options, False)[0]["plugins"]
    assert (described["versions"], described["info"], described["error"]) == (["0.0.1"], {"serial": 3}, None)


@pytest.mark.parametrize("amount", ["0", "", "01", "-1", "1.5", "x", "99999", "1,serial:1", "*", "$(id)"])
def test_an_odd_amount(installed, amount):
    caller, found = installed
    with pytest.raises(ProtocolError) as caught:
        calls.add(caller, found, {"serial": amount}, "a")
    assert caught.value.code == 4


def test_many_calls_at_once(installed):
    """Of 12 requests, three get an adapter each, and no two the same."""
    caller, found = installed

    def add(number):
        try:
            return calls.add(caller, found, {"serial": "1"}, f"job-{number}").devices
        except ProtocolError as error:
            assert error.code == 100
            return ()

    with ThreadPoolExecutor(12) as pool:
        granted = [node for nodes in pool.map(add, range(12)) for node in nodes]
    assert sorted(granted) == ["/dev/full", "/dev/null", "/dev/zero"]


@pytest.mark.parametrize("command", ["", "MYCMD", "add", "Info"])
def test_commands(installed, command, tmp_path):
    variables = {"PATH": "/usr/bin:/bin", "CDI_VERSION": "0.0.1", "CDI_COMMAND": command}
    variables |= {"CDI_REQUEST": "serial:1", "CDI_REQUEST_ID": "a"}
    content = (tmp_path / "lab.conf").read_bytes()
    done = subprocess.run([tmp_path / "opt/bin/serial"], input=content, capture_output=True, check=False, env=variables)
    assert installed and done.stderr == b""
    reply = json.loads(done.stdout)
    assert (done.returncode, reply.get("error")) == ((0, None) if command in ("add", "Info") else (1, 3))


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"CDI_VERSION": "0.9"}, 1),
        ({"CDI_VERSION": ""}, 1),
        ({"CDI_REQUEST_ID": ""}, 107),
        ({"CDI_REQUEST_ID": "a.b"}, 107),
        ({"CDI_REQUEST_ID": "-a"}, 107),
        ({"CDI_COMMAND": "del", "CDI_REQUEST_ID": "a b"}, 107),
    ],
)
def test_a_del_that_fails(installed, given, code, tmp_path):
    """By the proposal, DEL always ends with exit status 0. Other commands with the same input end with another one."""
    caller, found = installed
    assert calls.add(caller, found, {"serial": "3"}, "a").devices
    variables = {"PATH": "/usr/bin:/bin", "CDI_VERSION": "0.0.1", "CDI_COMMAND": "DEL", "CDI_REQUEST_ID": "a", **given}
    variables["CDI_REQUEST"] = "serial:1"
    content = (tmp_path / "lab.conf").read_bytes()
    for command, status in ((variables["CDI_COMMAND"], 0), ("ADD", 1)):
        done = subprocess.run(
            [tmp_path / "opt/bin/serial"],
            input=content,
            capture_output=True,
            check=False,
            env={**variables, "CDI_COMMAND": command},
        )
        assert (done.returncode, json.loads(done.stdout)["error"], done.stderr) == (status, code, b"")


def test_replies_that_nobody_reads(installed, tmp_path):
    """A refused ADD grants nothing. VERSION does not fail (proposal, "VERSION")."""
    caller, found = installed
    variables = {"PATH": "/usr/bin:/bin", "CDI_REQUEST": "serial:3", "CDI_REQUEST_ID": "a"}
    for command, version, status in (("ADD", "", 1), ("ADD", "0.9", 1), ("VERSION", "", 0)):
        with open("/dev/full", "wb") as full, open(tmp_path / "lab.conf", "rb") as config:
            done = subprocess.run(
                [tmp_path / "opt/bin/serial"],
                stdin=config,
                stdout=full,
                check=False,
                env={**variables, "CDI_COMMAND": command, "CDI_VERSION": version},
            )
        assert done.returncode == status
    assert calls.add(caller, found, {"serial": "3"}, "b").devices
