# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module device_plugin_service, state absent: what it takes, what it leaves, and what it frees."""

from __future__ import annotations

import json
import os
import socket

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import schema
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge import undo as undo_room
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_config
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_service as service
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit as unit_file
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import podresources
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.services.plugin_node import OLD


class TestAbsent:
    @pytest.fixture
    def kubelet(self, tmp_path, monkeypatch):
        """A kubelet's directory, with a socket of ours that a killed process left, and two that stay."""
        directory = tmp_path / "kubelet"
        (directory / "device-plugins").mkdir(parents=True)
        monkeypatch.chdir(directory / "device-plugins")  # the whole path is too long for a socket's name
        sockets = {
            name: socket.socket(socket.AF_UNIX) for name in ("fleet-cdi-1.sock", "theirs.sock", "fleet-cdi-2.sock")
        }
        for name, one in sockets.items():
            one.bind(name)
        sockets["fleet-cdi-2.sock"].listen()
        sockets["fleet-cdi-1.sock"].close()
        sockets["theirs.sock"].close()
        yield directory
        sockets["fleet-cdi-2.sock"].close()

    def test_it_takes_every_trace_and_nothing_of_others(self, node, tmp_path, kubelet):
        node.install()
        (tmp_path / "run").mkdir()
        (tmp_path / "run/a.json").write_text("{}")
        node.told.clear()
        preview, _warnings = node.uninstall(str(kubelet), check=True)
        assert preview["changed"] and node.told == []
        done, warnings = node.uninstall(str(kubelet))
        assert done == preview and warnings == []
        assert node.told == ["stop a b", "disable a b", "reset-failed a b"] and node.runs == {}
        assert node.socket == set()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kubelet"]
        assert sorted(os.listdir(kubelet / "device-plugins")) == ["fleet-cdi-2.sock", "theirs.sock"]
        assert node.uninstall(str(kubelet)) == ({"changed": False, "diff": [], "instance": None}, [])

    @pytest.fixture
    def undone(self, node, tmp_path, monkeypatch):
        """`fleet-cdi undo` on this node."""
        monkeypatch.setattr(undo_room, "RUN_DIR", str(tmp_path / "run"))
        monkeypatch.setattr(undo_room, "KUBELET", str(tmp_path / "no kubelet"))
        stop, forget, this = service.stop, service.forget, service.ServiceHost(node.run, lambda: True)
        monkeypatch.setattr(service, "stop", lambda host=this: stop(host))
        monkeypatch.setattr(service, "forget", lambda host=this: forget(host))
        return lambda **options: undo(layout_beside(node.state_dir), **options)

    def test_undo_does_so_as_well(self, node, tmp_path, undone):
        node.install()
        assert undone(check=True).removed == tuple(sorted(unit_file.paths())) and node.runs
        undone()
        assert not list(tmp_path.iterdir()) and not node.runs and not node.enabled and not node.socket

    @pytest.mark.parametrize("after", ["stop a b", "disable a b", "reset-failed a b"])
    def test_a_removal_that_was_killed_is_ended_by_the_next_one(self, node, tmp_path, kubelet, after):
        node.install()
        run = node.run

        def killed(command):
            done = run(command)
            if node.told[-1:] == [after]:
                raise KeyboardInterrupt
            return done

        node.told.clear()
        node.run = killed
        with pytest.raises(KeyboardInterrupt):
            node.uninstall(str(kubelet))
        node.run = run
        node.uninstall(str(kubelet))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kubelet"]
        assert not node.runs and not node.enabled

    def test_one_that_does_not_stop_keeps_its_unit_and_its_status(self, node, tmp_path, kubelet):
        node.install()
        (tmp_path / "run").mkdir()
        node.stubborn = True
        with pytest.raises(CdiError, match=r"fleet-cdi-device-plugin@a.service: can't be stopped: Job timed out"):
            node.uninstall(str(kubelet))
        assert os.path.exists(unit_file.path()) and (tmp_path / "run").exists()

    @pytest.mark.parametrize("which", [0, 1, 2])
    def test_a_unit_that_somebody_changed_is_refused_before_anything_stops(self, node, kubelet, which):
        node.install()
        with open(unit_file.paths()[which], "a") as file:
            file.write("# mine\n")
        for check in (True, False):
            with pytest.raises(CdiError, match="was changed since fleet.cdi wrote it"):
                node.uninstall(str(kubelet), check)
        assert node.runs == {"a": OLD} and node.socket == {"enabled", "active"}

    GPU = Device("pci:0000:3b:00.0", "gpu", "vendor.com/gpu", ("gpu0",), ())

    @pytest.mark.parametrize(
        ("socket_at", "used", "why"),
        [
            (None, None, ""),
            ("kubelet", [("vendor.com/gpu", "gpu0")], "the kubelet has 1 devices in use by pods"),
            ("kubelet", [("other.com/gpu", "gpu0")], ""),
            ("kubelet", None, "can't be asked which pods use them"),  # it is stopped, and its pods go on
            ("configured", [("vendor.com/gpu", "gpu0")], "the kubelet has 1 devices in use by pods"),
        ],
    )
    @pytest.mark.parametrize("by", ["module", "undo"])
    def test_holds_go_unless_pods_may_use_them(self, node, tmp_path, monkeypatch, undone, socket_at, used, why, by):
        async def in_use(path):
            assert path == str(tmp_path / f"{socket_at}/pod-resources/kubelet.sock")
            if used is None:
                raise podresources.Unavailable("nobody answers", "absent")
            return podresources.InUse(1, frozenset(used))

        usual = str(tmp_path / "kubelet")
        monkeypatch.setattr(podresources, "in_use", in_use)
        monkeypatch.setattr(undo_room, "KUBELET", usual)
        if socket_at:
            (tmp_path / socket_at / "pod-resources/kubelet.sock").mkdir(parents=True)  # anything of that name
        node.install()
        document = {"version": 1, "plugin_dir": str(tmp_path / "configured/device-plugins")}
        config = str(tmp_path / "etc/device-plugin.json")
        device_plugin_config.write_config(config, json.dumps(document).encode(), node.state_dir, False, False)
        ledger = Ledger(node.state_dir, inventory.boot_id())
        pod_holds.take(ledger, "vendor.com/gpu", [pod_holds.Want("gpu0", self.GPU)])

        if by == "undo":
            previewed = undone(check=True)
            assert list(pod_holds.holds(ledger.grants())) and node.runs, "check mode frees nothing and stops nothing"
            done = undone()
            assert previewed == done
            kept = done.kept
            assert [path for path, _why in kept] == ([ledger.path] if why else [])
            assert all(why in reason and "fleet-cdi plugin forget" in reason for _path, reason in kept)
        else:
            _done, previewed = node.uninstall(usual, check=True)
            assert list(pod_holds.holds(ledger.grants())), "check mode frees nothing"
            _done, warnings = node.uninstall(usual)
            assert warnings == previewed and len(warnings) == (1 if why else 0)
            assert all(why in one and self.GPU.id in one and "fleet-cdi plugin forget" in one for one in warnings)
        assert os.path.exists(ledger.path) or not why
        assert not why or len(list(pod_holds.holds(ledger.grants()))) == 1

    def test_a_store_of_a_later_release_is_in_nobodys_way(self, node, kubelet, monkeypatch):
        node.install()
        ledger = Ledger(node.state_dir, inventory.boot_id())
        pod_holds.take(ledger, "vendor.com/gpu", [pod_holds.Want("gpu0", self.GPU)])
        for name in ("VERSION", "USER_VERSION"):
            monkeypatch.setattr(schema, name, 0)
        _done, warnings = node.uninstall(str(kubelet))
        assert len(warnings) == 1 and "the devices held for Kubernetes stay held" in warnings[0]
        assert "Use the release that wrote it" in warnings[0]
        assert not node.runs and not os.path.exists(unit_file.path())
