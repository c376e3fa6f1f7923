# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi refresh: what it prints and its exit codes, with /dev/null of this machine as the device."""

from __future__ import annotations

import json
import os
import stat

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import change_log
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import device_links, nvidia_nodes
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import own_hook
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.memory import Memory
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.system import systemd
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cli.memory import ENTRY, KIND, only_where_it_is

NO_HOOK = "no container with such a device would start. Install it first"

pytestmark = [only_where_it_is, pytest.mark.usefixtures("bare_host")]


@pytest.fixture
def host(tmp_path, capsys):
    """host(*arguments) -> (exit code, stdout, stderr); `host.want(node)` is what module spec would have remembered."""

    class Host:
        spec = tmp_path / "etc/test.fleet.cdi-memory.json"
        inventory = tmp_path / "inventory.json"

        def __call__(self, *arguments):
            defaults = {"state_dir": str(tmp_path / "state"), "inventory": str(self.inventory)}
            defaults["spec_dirs"] = [str(tmp_path / "specs")]
            status = main(["refresh", *arguments], "test", {**defaults, "prefix": ""})
            out, err = capsys.readouterr()
            return status, out, "".join(line for line in err.splitlines(True) if "warning: udev" not in line)

        def want(self, offered=None):
            fields = WantedKind(KIND, {"memory": ENTRY}, runtimes={"podman": "5.4.0"})._asdict()
            wanted = {key: value for key, value in fields.items() if key not in ("kind", "content")}
            record = Memory(wanted, str(tmp_path / "etc"), str(self.inventory), offered or {}).document()
            with locked_manifest(str(tmp_path / "state")) as manifest:
                manifest.remember({KIND: record})

    return Host()


def test_a_host_that_was_told_nothing(host):
    assert host() == (0, "Nothing to change.\n", "")


def test_what_changed_and_then_nothing(host):
    host.want()
    changed = [str(host.spec), str(host.inventory)]
    assert host("--check") == (0, "".join(f"would be changed: {path}\n" for path in changed), "")
    assert not host.spec.exists()
    assert host() == (0, "".join(f"changed: {path}\n" for path in changed), "")
    assert host() == (0, "Nothing to change.\n", "")


def test_what_is_missing_is_a_finding_until_it_is_dropped(host):
    host.want({"mem:gone": ("gone",)})
    status, _out, err = host()
    assert status == 1
    assert err.startswith(f"fleet-cdi: missing: {KIND}=gone (mem:gone), gone since 20")
    assert host("--drop")[::2] == (
        0,
        f"fleet-cdi: dropped: {KIND}=gone (mem:gone) is gone and not offered any more [FC1214]\n",
    )
    assert host() == (0, "Nothing to change.\n", "")


def test_beside_a_failure_it_is_not_said_that_nothing_is_to_change(host, monkeypatch):
    host.want()
    monkeypatch.setattr(own_hook, "missing_hook", lambda *_given: NO_HOOK)
    assert host() == (1, "", f"fleet-cdi: failed: {KIND}: {NO_HOOK} [FC1310]\n")


def test_the_grace_period_is_an_option(host):
    host.want({"mem:gone": ("gone",)})
    assert host("--grace", "0")[0] == 0


def test_json(host):
    host.want({"mem:gone": ("gone",)})
    status, out, err = host("--json")
    document = json.loads(out)
    assert (status, err) == (1, "")
    ((missing),) = document.pop("missing")
    assert missing.pop("since").endswith(" UTC")
    assert missing == {"kind": KIND, "id": "mem:gone", "names": ["gone"], "kept": True}
    assert document.keys() == {"made", "changed", "failed", "warnings", "unmet", "check"}
    assert document["made"] == []
    assert document["changed"] == [str(host.spec), str(host.inventory)] and document["failed"] == []


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none(host, text):
    assert host("--timeout=" + text) == (
        2,
        "",
        f"fleet-cdi: --timeout: found '{text}'; expected seconds, 0 or more [FC1153]\n",
    )


def test_what_can_not_be_done_is_exit_code_2(host, tmp_path):
    host.want()
    (tmp_path / "state/manifest.json").write_text("{")
    status, out, err = host()
    assert (status, out) == (2, "") and "manifest.json: is damaged" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node takes root")
def test_nodes_that_it_makes_are_shown_and_logged(host, tmp_path, monkeypatch):
    node = tmp_path / "dev/nvidiactl"
    absent = nvidia_nodes.Absent(str(node), 195, 255, 0o666)
    monkeypatch.setattr(nvidia_nodes, "missing_nodes", lambda: () if node.exists() else (absent,))
    logged = []
    monkeypatch.setattr(change_log, "write_log", logged.extend)
    assert host("--make-nodes", "--check") == (0, f"would be made: {node}\n", "")
    assert not node.exists() and not logged
    status, out, err = host("--make-nodes", "--json")
    if "can't make this device node" in err:
        pytest.skip("no device nodes may be made here")
    assert (status, json.loads(out)["made"], err) == (0, [str(node)], "")
    assert node.exists() and logged == [f"refresh: made: {node}"]
    node.unlink()
    assert host("--make-nodes") == (0, f"made: {node}\n", "")
    assert host("--make-nodes") == (0, "Nothing to change.\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node takes root")
@pytest.mark.parametrize("booted", [True, False])
def test_links_by_number_where_systemd_runs(host, tmp_path, monkeypatch, booted):
    node, link = tmp_path / "dev/nvidia0", tmp_path / "dev/char/195:0"
    for path in (node, tmp_path / "specs/a.json"):
        path.parent.mkdir()
    try:
        os.mknod(node, stat.S_IFCHR, os.makedev(195, 0))
    except PermissionError:
        pytest.skip("no device nodes may be made here")
    (tmp_path / "specs/a.json").write_text(json.dumps(spec({"0": nodes(node)})))
    monkeypatch.setattr(device_links, "HOST", device_links.DeviceFolders(str(tmp_path / "dev"), str(tmp_path / "sys")))
    monkeypatch.setattr(systemd, "booted", lambda: booted)
    if not booted:
        assert host() == (0, "Nothing to change.\n", "") and not link.is_symlink()
        return
    assert host("--check") == (0, f"would be changed: {link}\n", "") and not link.is_symlink()
    assert host() == (0, f"changed: {link}\n", "") and os.readlink(link) == "../nvidia0"
    assert host() == (0, "Nothing to change.\n", "")
    link.unlink()
    link.parent.chmod(0o777)
    status, _out, err = host()
    assert status == 1 and f"failed: {link.parent}" in err and "expected a directory of root" in err
