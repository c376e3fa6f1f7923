# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi grants, over grants that the executables' own code made."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation import handover
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.schema import VERSION
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import operate
from ansible_collections.fleet.cdi.plugins.module_utils.cli import grants
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, ttys


@pytest.fixture
def host(tmp_path, capsys, monkeypatch):
    """A host with four consoles to grant, and the command line on it: (exit code, stdout, stderr)."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    tree = ttys(16)
    tree["files"][BOOT] = inventory.boot_id() + "\n"  # the command line has no root but /
    made = Host(tmp_path, tree)
    made.conf = made.configure(config("generic-tty", "tty"))
    operator = operate.Operator
    monkeypatch.setattr(grants, "Operator", lambda where: operator(where, str(tmp_path / "etc")))
    defaults = {
        "state_dir": str(made.state),
        "inventory": made.inventory,
        "spec_dirs": [str(tmp_path / "cdi")],
        "prefix": made.host.prefix,
    }

    def fleet_cdi(*arguments):
        status = main(["grants", *map(str, arguments)], "test", defaults)
        return (status, *capsys.readouterr())

    made.fleet_cdi = fleet_cdi
    return made


def held(host):
    return [grant["key"]["request_id"] for grant in json.loads(host.fleet_cdi("list", "--json")[1])["grants"]]


def test_nothing_was_ever_granted(host):
    assert host.fleet_cdi("list") == (0, "Nothing was ever granted on this host.\n", "")
    assert not host.state.exists()


def test_who_holds_what(host):
    host.add(host.conf, "tty:2", "a")
    status, out, _err = host.fleet_cdi("list")
    assert status == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["a", "tty/generic-tty", "claims", "active", "tty:tty13"],
        ["tty:tty14"],
    ]
    document = json.loads(host.fleet_cdi("list", "--json")[1])
    assert document["store"]["devices"] == [["fleet.cdi/tty", "claims", "active", 2]]


def test_a_device_that_is_gone_is_a_finding(host):
    host.add(host.conf, "tty:1", "a")
    host.configure({**host.conf, "args": {"num_system_reserved": 13}})
    for path in (host.directory / "run/cdi-inventory.d").iterdir():
        if '"tty:tty13"' in path.read_text():
            path.unlink()
    status, out, _err = host.fleet_cdi("list")
    assert status == 1
    assert "missing: tty:tty13: is not in the inventory" in out


def test_what_the_device_plugin_holds(host):
    """Its devices may be those of a foreign spec, which no inventory has; no GC and no release frees them."""
    ledger = Ledger(str(host.state), inventory.boot_id())
    foreign = Device("node:/dev/nvidia0", "spec", "nvidia.com/gpu", ("0",), ())
    handover.take(ledger, "nvidia.com/gpu", [handover.Want("GPU-8a3f", foreign)])
    status, out, _err = host.fleet_cdi("list")
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["GPU-8a3f", "kubernetes/nvidia.com/gpu", "kubernetes", "active", "node:/dev/nvidia0"],
    ]
    assert status == 0
    (host.directory / "valid").write_text("")
    assert host.fleet_cdi("gc", host.directory / "valid", "--force")[:2] == (0, "Nothing to free.\n")
    (host.directory / "valid").write_text("kubernetes/nvidia.com/gpu GPU-8a3f\n")
    assert host.fleet_cdi("gc", host.directory / "valid")[:2] == (0, "Nothing to free.\n")
    assert (
        "is held by request GPU-8a3f of kubernetes/nvidia.com/gpu" in host.fleet_cdi("release", "node:/dev/nvidia0")[2]
    )
    assert held(host) == ["GPU-8a3f"]


class TestGc:
    def test_frees_what_is_not_valid_and_spares_the_young(self, host, tmp_path):
        for name in ("a", "b"):
            host.add(host.conf, "tty:1", name)
        path = tmp_path / "valid"
        path.write_text("# those of today\ntty/generic-tty b\n")
        os.utime(path, (0, 0))
        assert "kept: request a is younger than the list" in host.fleet_cdi("gc", path)[1]
        os.utime(path, (2**32, 2**32))
        assert host.fleet_cdi("gc", path)[:2] == (0, "freed: request a: tty:tty13\n")
        assert held(host) == ["b"]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "an empty list of valid requests"),
            (b"\xff", "is no UTF-8"),
            (b"a b c\n", "line 1: found 'a b c'"),
            (b"x\ntty/generic-tty\n", "line 2"),
            (None, "can't be read"),
        ],
    )
    def test_a_list_that_is_none_frees_nothing(self, host, tmp_path, content, words):
        host.add(host.conf, "tty:1", "a")
        if content is not None:
            (tmp_path / "valid").write_bytes(content)
        status, out, err = host.fleet_cdi("gc", tmp_path / "valid")
        assert (status, out) == (2, "")
        assert words in err
        assert held(host) == ["a"]

    def test_force_means_it(self, host, tmp_path):
        host.add(host.conf, "tty:1", "a")
        (tmp_path / "valid").write_text("")
        os.utime(tmp_path / "valid", (2**32, 2**32))
        assert host.fleet_cdi("gc", tmp_path / "valid", "--force")[0] == 0
        assert held(host) == []

    def test_a_teardown_that_fails_withholds_the_device_until_it_is_released(self, host, tmp_path):
        conf = host.configure({**host.conf, "args": {"teardown": ["/bin/false"]}})
        host.add(conf, "tty:1", "a")
        (tmp_path / "valid").write_text("other\n")
        os.utime(tmp_path / "valid", (2**32, 2**32))
        status, _out, err = host.fleet_cdi("gc", tmp_path / "valid")
        assert status == 1
        assert "/bin/false: failed" in err
        assert "withheld" in host.fleet_cdi("list")[1]
        assert host.fleet_cdi("release", "tty:tty13")[0] == 0
        assert held(host) == []
        assert host.fleet_cdi("release", "tty:tty13")[0] == 2


def test_a_kind_is_given_to_an_owner(host):
    assert host.fleet_cdi("give", "fleet.cdi/tty", "kubernetes") == (0, "fleet.cdi/tty is for kubernetes\n", "")
    code, details = host.refused(host.conf, "tty:1", "a")
    assert (code, "belongs to kubernetes" in details) == (103, True)
    host.fleet_cdi("give", "fleet.cdi/tty", "kubernetes", "claims")
    host.add(host.conf, "tty:1", "a")
    host.fleet_cdi("give", "fleet.cdi/tty")
    assert host.fleet_cdi("give", "fleet.cdi/tty", "me")[0] == 2


def test_there_is_nothing_to_accept_in_a_whole_store(host):
    host.add(host.conf, "tty:1", "a")
    assert "Nothing to accept" in host.fleet_cdi("accept-loss")[1]


class TestUndo:
    def test_the_store_stays_while_anybody_holds_a_device(self, host):
        host.add(host.conf, "tty:1", "a")
        for options in ({"check": True}, {}):
            ((path, why),) = undo(str(host.state), **options).kept
            assert path == str(host.state / "ledger.db")
            assert "devices are granted to 1 request(s)" in why
        assert held(host) == ["a"]
        assert undo(str(host.state), check=True, force=True).removed == (path,)
        assert undo(str(host.state), force=True).removed == (path,)
        assert not host.state.exists()

    def test_it_goes_when_nobody_does(self, host):
        conf = host.configure({**host.conf, "args": {"teardown": ["/bin/true"]}})
        host.add(conf, "tty:1", "a")
        host.ask("DEL", conf, request_id="a")
        assert undo(str(host.state)).removed == (str(host.state / "ledger.db"),)
        assert not host.state.exists()
        assert undo(str(host.state)).removed == ()

    def test_a_store_that_nobody_can_read_stays(self, host):
        host.add(host.conf, "tty:1", "a")
        path = host.state / "ledger.db"
        path.unlink()
        path.symlink_to("/dev/null")
        assert [one for one, _why in undo(str(host.state)).kept] == [str(path)]


def test_a_store_of_this_release_needs_no_migration(host):
    assert host.fleet_cdi("migrate") == (0, "Nothing to migrate.\n", "")
    assert not host.state.exists()
    host.add(host.conf, "tty:1", "a")
    assert host.fleet_cdi("migrate") == (0, "Nothing to migrate.\n", "")
    (host.state / "ledger.db").write_bytes(b"x" * 100)
    assert host.fleet_cdi("migrate")[0] in (0, 2)
    assert list(host.state.glob("ledger.db.damaged-*")), "it was put aside, not lost"


def test_every_action_answers_a_document(host, tmp_path):
    conf = host.configure({**host.conf, "args": {"teardown": ["/bin/false"]}})
    host.add(conf, "tty:1", "a")
    (tmp_path / "valid").write_text("other\n")
    os.utime(tmp_path / "valid", (2**32, 2**32))
    host.fleet_cdi("gc", tmp_path / "valid")

    def answer(*arguments):
        return json.loads(host.fleet_cdi(*arguments, "--json")[1])

    assert answer("release", "tty:tty13") == {"released": "tty:tty13"}
    assert answer("give", "fleet.cdi/tty", "kubernetes") == {"kind": "fleet.cdi/tty", "owners": ["kubernetes"]}
    assert answer("accept-loss") == {"accepted": False}
    assert answer("migrate") == {"before": VERSION, "after": VERSION}


@pytest.mark.parametrize(
    "arguments",
    [("lst",), ("gc",), ("give",), ("give", "gpu", "claims"), ("release", "a", "b"), ("list", "a"), ("migrate", "a")],
)
def test_what_can_not_be_meant_is_one_line(host, arguments):
    host.add(host.conf, "tty:1", "a")
    status, out, err = host.fleet_cdi(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
