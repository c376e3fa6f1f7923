# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi grants, over grants that the executables' own code made."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import choose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.examine import examine
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.schema import VERSION
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import grants as operate
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import pick
from ansible_collections.fleet.cdi.plugins.module_utils.cli import grants
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, ttys

pytestmark = pytest.mark.usefixtures("only_own_processes")


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
    monkeypatch.setattr(grants, "Operator", lambda where, _dirs: operator(where, [str(tmp_path / "etc")]))
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


def listed(host, path, *lines):
    """A list of valid requests, stamped as people are told to."""
    stamp = host.fleet_cdi("list")[1].splitlines()[0]
    path.write_text("\n".join((stamp, *lines, "")))
    return path


def test_nothing_was_ever_granted(host):
    status, out, err = host.fleet_cdi("list")
    assert (status, out.splitlines()[1:], err) == (0, [grants.NO_STORE], "")
    assert not host.state.exists()


@pytest.mark.parametrize(("left", "kept"), [("ledger.log", ["a"]), ("ledger.lock", [])])
def test_a_store_that_is_gone_is_rebuilt_from_what_is_left(host, left, kept):
    """Doctor says so (rule ledger-gone), and has nothing to say afterwards."""
    host.add(host.conf, "tty:1", "a")
    for path in host.state.glob("ledger.*"):
        if path.name != left:
            path.unlink()
    assert host.fleet_cdi("list")[0] == (0 if kept else 1)
    host.fleet_cdi("accept-loss")
    assert (host.fleet_cdi("list")[0], held(host)) == (0, kept)
    assert examine(str(host.state), inventory.boot_id()).state == ""


def test_who_holds_what(host):
    host.add(host.conf, "tty:2", "a")
    status, out, _err = host.fleet_cdi("list")
    assert status == 0
    assert [line.split() for line in out.splitlines()[2:]] == [
        ["a", "tty/generic-tty", "claims", "active", "yes", "tty:tty13"],
        ["tty:tty14"],
    ]
    document = json.loads(host.fleet_cdi("list", "--json")[1])
    assert document["store"]["devices"] == [["fleet.cdi/tty", "claims", "active", 2]]


def test_that_there_may_have_been_better_devices(host, monkeypatch):
    monkeypatch.setattr(pick, "choose", lambda *given: choose(*given)._replace(proved=False))
    host.add(host.conf, "tty:1", "a")
    monkeypatch.undo()
    monkeypatch.setattr(grants, "Operator", lambda where, _dirs: operate.Operator(where, [str(host.directory / "etc")]))
    host.add(host.conf, "tty:1", "b")
    status, out, _err = host.fleet_cdi("list")
    assert status == 0
    assert [line.split()[4] for line in out.splitlines()[1:]] == ["PROVED", "no", "yes"]
    document = json.loads(host.fleet_cdi("list", "--json")[1])
    assert [part["proved"] for grant in document["grants"] for part in grant["parts"]] == [False, True]
    assert document["store"]["unproved"] == [
        {"resource_type": "tty", "plugin": "generic-tty", "request_id": "a"},
    ]


def test_a_grant_that_ends_while_it_is_listed_is_no_problem(host, monkeypatch):
    """The device plugin frees a device at any moment."""
    host.add(host.conf, "tty:1", "a")
    present = operate.Operator._present

    def ends(operator):
        Ledger(str(host.state), inventory.boot_id()).delete(Key("tty", "generic-tty", "a"))
        return present(operator)

    monkeypatch.setattr(operate.Operator, "_present", ends)
    assert host.fleet_cdi("list")[0] == 0


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
    pod_holds.take(ledger, "nvidia.com/gpu", [pod_holds.Want("GPU-8a3f", foreign)])
    status, out, _err = host.fleet_cdi("list")
    assert [line.split() for line in out.splitlines()[2:]] == [
        ["GPU-8a3f", "kubernetes/nvidia.com/gpu", "kubernetes", "active", "-", "node:/dev/nvidia0"],
    ]
    assert json.loads(host.fleet_cdi("list", "--json")[1])["grants"][0]["parts"][0]["proved"] is None
    assert status == 0
    valid = host.directory / "valid"
    assert host.fleet_cdi("gc", listed(host, valid), "--force")[:2] == (0, "Nothing to free.\n")
    listed(host, valid, "kubernetes/nvidia.com/gpu GPU-8a3f")
    assert host.fleet_cdi("gc", valid)[:2] == (0, "Nothing to free.\n")
    assert (
        "is held by request GPU-8a3f of kubernetes/nvidia.com/gpu" in host.fleet_cdi("release", "node:/dev/nvidia0")[2]
    )
    assert held(host) == ["GPU-8a3f"]


class TestGc:
    @pytest.mark.parametrize("action", ["gc", "release"])
    def test_operands_count_also_before_anything_was_granted(self, host, tmp_path, action):
        """A cron job with a misspelt list looked well until the first grant."""
        assert host.fleet_cdi(action)[0] == 2
        if action == "gc":
            (tmp_path / "old").write_text("job-1\n")
            assert "/none: can't be read" in host.fleet_cdi("gc", "/none")[2]
            assert "nothing was freed" in host.fleet_cdi("gc", tmp_path / "old")[2]
            assert host.fleet_cdi("gc", listed(host, tmp_path / "valid"))[0] == 0
        assert not host.state.exists()

    def test_frees_what_is_not_valid(self, host, tmp_path):
        for name in ("a", "b"):
            host.add(host.conf, "tty:1", name)
        path = listed(host, tmp_path / "valid", "# those of today", "tty/generic-tty b")
        assert host.fleet_cdi("gc", path, "--check")[:2] == (0, "would be freed: request a: tty:tty13\n")
        assert held(host) == ["a", "b"]
        assert host.fleet_cdi("gc", path)[:2] == (0, "freed: request a: tty:tty13\n")
        assert held(host) == ["b"]

    @pytest.mark.parametrize("written", [0, 2**32], ids=["long ago", "before the clock was set back"])
    def test_what_is_granted_after_the_list_is_spared_whatever_the_file_says(self, host, tmp_path, written):
        path = listed(host, tmp_path / "valid", "other")
        host.add(host.conf, "tty:1", "a")
        os.utime(path, (written, written))
        assert "kept: request a is younger than the list" in host.fleet_cdi("gc", path)[1]
        assert held(host) == ["a"]

    def test_nor_does_standard_input_make_a_list_younger(self, host, tmp_path, monkeypatch):
        text = listed(host, tmp_path / "valid", "other").read_bytes()
        host.add(host.conf, "tty:1", "a")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert "kept: request a is younger than the list" in host.fleet_cdi("gc", "-")[1]
        assert held(host) == ["a"]

    def test_a_list_of_an_earlier_boot_is_refused(self, host, tmp_path):
        """What was granted after it in that boot would look older than it."""
        path = listed(host, tmp_path / "valid", "other")
        Ledger(str(host.state), inventory.boot_id()).add(
            Key("tty", "generic-tty", "a"), {"tty": 1}, lambda _held: [Hold("tty:tty13", "fleet.cdi/tty")], "claims"
        )
        path.write_text(path.read_text().replace(inventory.boot_id(), "boot-0"))
        status, _out, err = host.fleet_cdi("gc", path)
        assert (status, "the list was made in boot boot-0, this is boot" in err) == (2, True)
        assert held(host) == ["a"]

    def test_the_stamp_is_in_the_document_too(self, host, tmp_path):
        host.add(host.conf, "tty:1", "a")
        stamp = json.loads(host.fleet_cdi("list", "--json")[1])["stamp"]
        (tmp_path / "valid").write_text(f"{stamp}\nother\n")
        assert "freed: request a: tty:tty13\n" in host.fleet_cdi("gc", tmp_path / "valid")[1]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"STAMP", "an empty list of valid requests"),
            (b"", "`fleet-cdi grants list | head -n 1` prints"),
            (b"b\n", "line 1: found 'b'; expected as first line the stamp"),
            (b"b\nSTAMP\n", "line 1: found 'b'"),
            (b"STAMP\nb\nSTAMP\n", "line 3: found a second stamp"),
            (b"# grants as of 1e300 in boot BOOT\nb\n", "line 1: found 1e300 seconds after boot"),
            (b"# grants as of nan in boot BOOT\nb\n", "line 1: found nan"),
            (b"# grants as of now in boot BOOT\nb\n", "line 1: found now"),
            (b"# grants as of 1 in boot\nb\n", "line 1: found"),
            (b"\xff", "is not valid UTF-8"),
            (b"STAMP\na b c\n", "line 2: found 'a b c'"),
            (b"STAMP\nx\ntty/generic-tty\n", "line 3"),
            (None, "can't be read"),
        ],
    )
    def test_a_list_that_is_none_frees_nothing(self, host, tmp_path, content, words):
        host.add(host.conf, "tty:1", "a")
        if content is not None:
            stamp = listed(host, tmp_path / "valid").read_bytes().rstrip()
            (tmp_path / "valid").write_bytes(
                content.replace(b"STAMP", stamp).replace(b"BOOT", inventory.boot_id().encode())
            )
        status, out, err = host.fleet_cdi("gc", tmp_path / "valid")
        assert (status, out) == (2, "")
        assert words in err
        assert held(host) == ["a"]

    @pytest.mark.parametrize("level", [0, 1, 2], ids=["file", "directory of its type", "directory of all"])
    def test_without_its_teardown_a_device_is_withheld(self, host, tmp_path, level):
        """The teardown may wipe its memory. A configuration that is gone has none any more."""
        host.configure(config("generic-tty", "tty", teardown=["/usr/bin/touch", str(tmp_path / "torn")]))
        host.add(host.conf, "tty:1", "a")
        (conf,) = (tmp_path / "etc/tty.d").iterdir()
        broken = [conf, conf.parent, conf.parent.parent][level]
        conf.write_text("{")
        if level:
            shutil.rmtree(broken)
            broken.symlink_to(broken.name)  # root may read each directory, but not this one
        status, out, err = host.fleet_cdi("gc", listed(host, tmp_path / "valid"), "--force")
        assert (status, held(host), (tmp_path / "torn").exists()) == (1, ["a"], False), (out, err)
        assert f"{broken}: " in out + err
        broken.unlink()
        assert host.fleet_cdi("gc", listed(host, tmp_path / "valid"), "--force")[0] == 0
        assert held(host) == []

    def test_force_means_it(self, host, tmp_path):
        host.add(host.conf, "tty:1", "a")
        assert host.fleet_cdi("gc", listed(host, tmp_path / "valid"), "--force")[0] == 0
        assert held(host) == []

    def test_a_teardown_that_fails_withholds_the_device_until_it_is_released(self, host, tmp_path):
        conf = host.configure({**host.conf, "args": {"teardown": ["/bin/false"]}})
        host.add(conf, "tty:1", "a")
        path = listed(host, tmp_path / "valid", "other")
        status, out, _err = host.fleet_cdi("gc", path, "--check")
        assert (status, out.splitlines()[0]) == (0, "would be freed: request a: tty:tty13")
        assert "withheld" not in host.fleet_cdi("list")[1]
        status, _out, err = host.fleet_cdi("gc", path)
        assert status == 1
        assert "/bin/false: failed" in err
        assert "withheld" in host.fleet_cdi("list")[1]
        assert host.fleet_cdi("release", "tty:tty13")[0] == 0
        assert held(host) == []
        assert host.fleet_cdi("release", "tty:tty13")[0] == 2

    def test_a_withheld_device_of_two_kinds_is_released_by_each_of_its_names(self, host, tmp_path):
        second = Device("tty:tty13", "tty", "acme.com/console", ("tty13",), ())
        with open(host.inventory, "wb") as file:
            file.write(inventory.render(inventory.Inventory((second,)), inventory.boot_id()))
        conf = host.configure({**host.conf, "args": {"teardown": ["/bin/false"]}})
        for name in ("fleet.cdi/tty=tty13", "acme.com/console=tty13"):
            host.add(conf, "tty:1", "a")
            host.fleet_cdi("gc", listed(host, tmp_path / "valid", "other"))
            assert host.fleet_cdi("release", name)[0] == 0
            assert held(host) == []


def test_a_kind_is_given_to_an_owner(host):
    assert host.fleet_cdi("give", "fleet.cdi/tty", "kubernetes") == (0, "fleet.cdi/tty is for kubernetes\n", "")
    code, details = host.refused(host.conf, "tty:1", "a")
    assert (code, "belongs to kubernetes" in details) == (103, True)
    host.fleet_cdi("give", "fleet.cdi/tty", "kubernetes", "claims")
    host.add(host.conf, "tty:1", "a")
    told = (0, "fleet.cdi/tty is for the owner that holds devices of it\n", "")
    assert host.fleet_cdi("give", "fleet.cdi/tty", "--any") == told
    assert host.fleet_cdi("give", "fleet.cdi/tty", "me")[0] == 2


def test_a_kind_without_owners_is_not_taken_from_them(host):
    host.fleet_cdi("give", "fleet.cdi/tty", "kubernetes")
    status, out, err = host.fleet_cdi("give", "fleet.cdi/tty")
    assert (status, out) == (2, "")
    assert err.startswith(
        "fleet-cdi: give: found no owner of fleet.cdi/tty; expected kubernetes, claims, external, or "
    )
    assert "--any takes the kind from its owners [FC1151]" in err
    status, _out, err = host.fleet_cdi("give", "fleet.cdi/tty", "claims", "--any")
    assert status == 2 and "found --any and claims; expected one of them [FC1151]" in err
    assert host.refused(host.conf, "tty:1", "a")[0] == 103


def test_a_kind_that_the_host_does_not_have(host, tmp_path):
    (tmp_path / "cdi").mkdir(exist_ok=True)
    spec = builders.spec({"0": {"env": ["A=1"]}}, "vendor.com/gpu")
    (tmp_path / "cdi/vendor.json").write_text(json.dumps(spec))
    status, out, err = host.fleet_cdi("give", "vendor.com/gpuu", "claims")
    assert (status, out) == (2, "")
    assert err == (
        "fleet-cdi: give: found the unknown kind 'vendor.com/gpuu'; expected one of fleet.cdi/tty, vendor.com/gpu; "
        "did you mean 'vendor.com/gpu'? [FC1101]\n"
    )
    assert host.fleet_cdi("give", "vendor.com/gpu", "claims")[0] == 0
    (tmp_path / "cdi/vendor.json").unlink()
    assert host.fleet_cdi("give", "vendor.com/gpu", "--any")[0] == 0, "it has owners, so it can be taken from them"


def test_a_host_that_knows_no_kind_takes_each(host, tmp_path):
    for path in (tmp_path / "etc").glob("*.d/*.conf"):
        path.unlink()
    assert host.fleet_cdi("give", "vendor.com/gpu", "claims")[0] == 0


def test_a_store_that_may_have_lost_grants_is_told_until_somebody_accepts_it(host, tmp_path):
    host.add(host.conf, "tty:1", "a")
    (host.state / "ledger.db").write_bytes(b"x" * 5000)
    (host.state / "ledger.log").unlink()
    for _again in range(2):
        status, out, _err = host.fleet_cdi("list")
        assert status == 1 and out.splitlines()[-1].startswith("damaged: the store was rebuilt")
    assert host.fleet_cdi("list", "--json")[0] == 1
    assert host.fleet_cdi("accept-loss") == (0, "New grants are made again.\n", "")
    status, out, _err = host.fleet_cdi("list")
    assert status == 0 and "damaged" not in out
    host.add(host.conf, "tty:1", "b")
    told = host.fleet_cdi("gc", listed(host, tmp_path / "valid", "tty/generic-tty a", "tty/generic-tty b"))
    assert told[:2] == (0, "lost: request a of the list holds nothing here\nNothing to free.\n")


def test_there_is_nothing_to_accept_in_a_whole_store(host):
    host.add(host.conf, "tty:1", "a")
    assert "Nothing to accept" in host.fleet_cdi("accept-loss")[1]


class TestUndo:
    def test_the_store_stays_while_anybody_holds_a_device(self, host):
        host.add(host.conf, "tty:1", "a")
        for options in ({"check": True}, {}):
            ((path, why),) = undo(layout_beside(host.state), **options).kept
            assert path == str(host.state / "ledger.db")
            assert "devices are granted to 1 request(s)" in why
        assert held(host) == ["a"]
        assert undo(layout_beside(host.state), check=True, force=True).removed == (path,)
        assert undo(layout_beside(host.state), force=True).removed == (path,)
        assert not host.state.exists()

    def test_nothing_is_touched_while_anybody_holds_a_device(self, host, tmp_path):
        """DEL, which gives it back, needs the configuration."""
        conf, spec = tmp_path / "etc/tty.d/mine.conf", tmp_path / "etc/fleet.cdi-tty.json"
        with locked_manifest(str(host.state)) as manifest:
            manifest.write(str(conf), b"{}")
            manifest.write(str(spec), b"{}", "fleet.cdi/tty")
        before = (host.state / "manifest.json").read_bytes()
        host.add(host.conf, "tty:1", "a")
        for options in ({"check": True}, {}):
            done = undo(layout_beside(host.state), **options)
            assert (done.removed, done.restored) == ((), ())
            ((_path, why),) = done.kept
            assert "request a (tty/generic-tty) has tty:tty13" in why and "Nothing was touched" in why
            assert conf.exists() and spec.exists() and (host.state / "manifest.json").read_bytes() == before
        host.ask("DEL", host.conf, request_id="a")
        assert set(undo(layout_beside(host.state)).removed) == {str(conf), str(spec), str(host.state / "ledger.db")}

    def test_force_takes_all_of_it(self, host, tmp_path):
        conf = tmp_path / "etc/tty.d/mine.conf"
        with locked_manifest(str(host.state)) as manifest:
            manifest.write(str(conf), b"{}")
        host.add(host.conf, "tty:1", "a")
        (forced,) = undo(layout_beside(host.state), check=True, force=True).forced
        assert forced.endswith("devices are granted to 1 request(s): request a (tty/generic-tty) has tty:tty13")
        done = undo(layout_beside(host.state), force=True)
        assert (done.kept, done.forced) == ((), (forced,))
        assert not conf.exists() and not host.state.exists()

    @pytest.mark.parametrize(("state", "stays"), [("running", True), ("paused", True), ("exited", False)])
    def test_nothing_is_touched_while_a_container_runs_with_a_device(self, host, tmp_path, monkeypatch, state, stays):
        spec = tmp_path / "etc/fleet.cdi-tty.json"
        document = builders.spec({"tty13": builders.nodes("/dev/tty13")}, "fleet.cdi/tty")
        with locked_manifest(str(host.state)) as manifest:
            manifest.write(str(spec), json.dumps(document).encode(), "fleet.cdi/tty")
        one = {
            "Name": "web",
            "State": {"Status": state},
            "Config": {"CreateCommand": ["podman", "run", "--device", "fleet.cdi/tty=tty13", "image"]},
        }
        monkeypatch.setattr(containers, "ENGINES", {"podman": lambda: [one]})
        done = undo(layout_beside(host.state))
        assert spec.exists() == stays
        if stays:
            ((path, why),) = done.kept
            assert path == str(spec) and "container web (podman, " + state + ") has fleet.cdi/tty=tty13" in why
            done = undo(layout_beside(host.state), force=True)
            assert done[:3] == ((str(spec),), (), ())
            assert done.forced == (f"{spec}: container web (podman, {state}) has fleet.cdi/tty=tty13",)

    def test_it_goes_when_nobody_does(self, host):
        conf = host.configure({**host.conf, "args": {"teardown": ["/bin/true"]}})
        host.add(conf, "tty:1", "a")
        host.ask("DEL", conf, request_id="a")
        assert undo(layout_beside(host.state)).removed == (str(host.state / "ledger.db"),)
        assert not host.state.exists()
        assert undo(layout_beside(host.state)).removed == ()

    def test_a_store_that_nobody_can_read_stays(self, host):
        host.add(host.conf, "tty:1", "a")
        path = host.state / "ledger.db"
        path.unlink()
        path.symlink_to("/dev/null")
        assert [one for one, _why in undo(layout_beside(host.state)).kept] == [str(path)]


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
    host.fleet_cdi("gc", listed(host, tmp_path / "valid", "other"))

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


# --- who has them open


OPENS = "import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK); print(1, flush=True); input()"


@pytest.fixture
def opened(host):
    """Start a process that has a console of the host open: opened(name) -> its pid."""
    started = []

    def start(name):
        words = [sys.executable, "-c", OPENS, f"{host.root}/dev/{name}"]
        one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started.append(one)
        if one.stdout.readline() != b"1\n":
            pytest.skip(f"this machine opens no {name}")
        return one.pid

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_open_shows_the_processes_of_devices_that_are_held_and_that_are_free(host, opened):
    host.add(host.conf, "tty:1", "job-1")
    first, second = opened("tty13"), opened("tty14")
    out = host.fleet_cdi("list", "--open")[1]
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("tty:")}
    assert f"request job-1 of tty/generic-tty (claims)  pid {first} (python" in lines["tty:tty13"]
    assert lines["tty:tty14"].split()[2:5] == ["nobody", "pid", str(second)]
    found = json.loads(host.fleet_cdi("list", "--open", "--json")[1])["open"]
    assert [(one["device"], one["path"], one["pid"], bool(one["held_by"])) for one in found] == [
        ("tty:tty13", "/dev/tty13", first, True),
        ("tty:tty14", "/dev/tty14", second, False),
    ]


def test_open_shows_what_was_opened_before_anything_was_granted(host, opened):
    pid = opened("tty13")
    assert f"pid {pid} (python" in host.fleet_cdi("list", "--open")[1]
    assert [one["pid"] for one in json.loads(host.fleet_cdi("list", "--open", "--json")[1])["open"]] == [pid]
    assert not host.state.exists()


def test_open_says_that_nothing_is(host):
    host.add(host.conf, "tty:1", "job-1")
    assert "No process has a device open." in host.fleet_cdi("list", "--open")[1].splitlines()


def test_open_says_that_it_could_not_see_all(host, monkeypatch):
    host.add(host.conf, "tty:1", "job-1")
    monkeypatch.setattr(openers, "look", lambda _wanted: openers.OpenersSeen(unseen=1))
    assert host.fleet_cdi("list", "--open")[1].splitlines()[-1].startswith("Not all was seen: ")
    assert json.loads(host.fleet_cdi("list", "--open", "--json")[1])["open_unseen"]


def test_open_shows_a_device_that_only_a_spec_names(host, opened):
    """The device plugin holds such by its node, of which no inventory knows."""
    path = f"{host.root}/dev/tty40"  # of which no profile found anything
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(4, 40))
    device = Device(f"node:{path}", "", "example.com/card", ("card0",), ())
    pod_holds.take(Ledger(str(host.state), inventory.boot_id()), "example.com/card", [pod_holds.Want("card0", device)])
    pid = opened("tty40")
    out = host.fleet_cdi("list", "--open")[1]
    assert f"node:{path}  {path}  request card0 of kubernetes/example.com/card (kubernetes)  pid {pid} " in out


def test_open_knows_who_holds_a_device_by_its_node_which_an_inventory_has_too(host, opened):
    device = Device("node:/dev/tty15", "", "example.com/card", ("card0",), ())
    pod_holds.take(Ledger(str(host.state), inventory.boot_id()), "example.com/card", [pod_holds.Want("card0", device)])
    opened("tty15")
    (found,) = json.loads(host.fleet_cdi("list", "--open", "--json")[1])["open"]
    assert (found["device"], len(found["held_by"])) == ("tty:tty15", 1)
