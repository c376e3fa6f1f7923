# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi claim, over the real executables and consoles of this machine."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, ttys


@pytest.fixture
def claim(tmp_path, capsys):
    """The command on a host with four consoles to grant: (exit code, stdout, stderr)."""
    if os.geteuid() != 0 or not os.path.exists("/dev/tty15"):
        pytest.skip("needs root and the consoles of this machine")
    tree = ttys(16)
    tree["files"][BOOT] = inventory.boot_id() + "\n"  # the command line has no root but /
    made = Host(tmp_path, tree)
    made.configure(config("generic-tty", "tty"))
    made.install()
    conf = tmp_path / "etc/tty.d/generic-tty0.conf"
    with locked_manifest(str(made.state)) as manifest:  # by which the command finds the configuration
        manifest.write(str(conf), conf.read_bytes() + b"\n")
    defaults = {
        "state_dir": str(made.state),
        "inventory": made.inventory,
        "spec_dirs": [str(tmp_path / "cdi")],
        "prefix": made.host.prefix,
    }

    def run(*arguments):
        status = main(["claim", *arguments], "test", defaults)
        return (status, *capsys.readouterr())

    return run


def test_from_add_to_del(claim):
    assert claim("list") == (0, "No claims on this host.\n", "")
    assert claim("add", "job-42", "tty:2") == (0, "fleet.cdi/claim=job-42\n", "")
    status, out, _err = claim("list")
    assert (status, out.splitlines()[1].split()) == (
        0,
        ["job-42", "granted", "tty:2", "fleet.cdi/claim=job-42", "/dev/tty13"],
    )
    assert claim("check") == (0, "All claims agree with this host (1).\n", "")
    assert claim("gc") == claim("restore") == (0, "Nothing to do.\n", "")
    assert claim("del", "job-42") == (0, "given back: job-42\n", "")
    assert claim("del", "job-42") == (0, "Nothing to give back.\n", "")
    status, _out, err = claim("add", "job-42", "tty:2")
    assert status == 2 and "ended in this boot" in err
    assert claim("add", "job-42", "tty:2", "--reuse")[0] == 0


def test_json(claim):
    document = json.loads(claim("add", "job-42", "tty:1", "--near", "1,0", "--release-on-stop", "--json")[1])
    assert document.pop("token") and document.pop("boot_id") and document.pop("configurations")
    assert document == {
        "id": "job-42",
        "amounts": {"tty": 1},
        "near": [0, 1],
        "release_on_stop": True,
        "state": "granted",
        "device": "fleet.cdi/claim=job-42",
        "nodes": [{"path": "/dev/tty13", "type": "c", "major": 4, "minor": 13}],
        "names": [],
        "numa_locality": [],
        "reason": "",
        "changed": True,
    }
    assert json.loads(claim("list", "--json")[1])["claims"][0]["id"] == "job-42"
    assert json.loads(claim("check", "--json")[1])["faults"] == []
    assert json.loads(claim("gc", "--json")[1]) == {"freed": [], "removed": [], "failed": []}
    assert json.loads(claim("restore", "--json")[1]) == {"restored": [], "dropped": [], "failed": []}
    assert json.loads(claim("del", "job-42", "--token", "another", "--json")[1])["changed"] is False
    assert json.loads(claim("del", "job-42", "--json")[1]) == {"id": "job-42", "changed": True}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["free", "job-42"], "found 'free'; expected add, del, list, check, gc, restore"),
        (["add", "job-42"], "expected an id and what it is for"),
        (["add", "job-42", "tty"], "expected TYPE:AMOUNT"),
        (
            ["add", "job-42", "tty:9"],
            "claim job-42: Request cannot be fulfilled (error 100): asked for 9 devices; 4 are free",
        ),
        (["add", "job-42", "tty:1", "--near", "a"], "expected numbers of NUMA nodes"),
        (["del"], "expected the id of a claim"),
        (["list", "job-42"], "expected nothing behind it"),
    ],
)
def test_wrong_use_and_refusals(claim, arguments, words):
    status, out, err = claim(*arguments)
    assert (status, out) == (2, "") and words in err


def test_exit_code_1_for_findings(claim, tmp_path):
    claim("add", "job-42", "tty:1")
    os.unlink(tmp_path / "cdi/fleet.cdi-claim_job-42.json")
    status, out, _err = claim("check")
    assert status == 1 and "is missing; run `fleet-cdi claim restore`" in out
    assert claim("restore")[:2] == (0, "restored: job-42\n")
    (tmp_path / "state/claims/bad.json").write_text("{")
    for action in ("list", "gc", "restore", "check"):
        status, out, err = claim(action)
        assert status == 1 and "bad.json" in out + err
