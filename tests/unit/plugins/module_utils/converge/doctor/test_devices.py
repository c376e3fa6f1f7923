# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor in devices: open in a process and held by nobody, or dropped by the settings."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rule import NOTES
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec as spec_module
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled, render_disabled
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import pool_path
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Health, Node
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import (
    KIND,
    device,
)


@pytest.mark.usefixtures("only_own_processes")
class TestOccupied:
    """Devices that nobody holds and that a process has open; here that is this one, with a console."""

    @pytest.fixture
    def open_console(self, host):
        """The id of a device whose node this process has open, and that a configuration hands out."""
        path = "/dev/tty61"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            pytest.skip(f"{path}: {error.strerror}")
        console = Device("tty:tty61", "tty", KIND, ("tty61",), (Node(path, "c", 4, 61),))

        def hands_out(**args):
            configuration = {"cdiVersion": "0.0.2", "name": "", "type": "tty", "plugin": "generic-tty", "args": args}
            (host.root / "etc/tty.d").mkdir()
            (host.root / "etc/tty.d/a.conf").write_text(json.dumps(configuration))
            pool = Path(pool_path(str(host.root / "inventory.json"), "tty", "generic-tty", args))
            pool.parent.mkdir()
            pool.write_bytes(inventory.render(inventory.Inventory((console,)), inventory.boot_id()))
            return console

        yield hands_out
        os.close(descriptor)

    @staticmethod
    def found(host):
        return [one for one in host.diagnose() if one.rule == "occupied"]

    def test_a_device_that_nobody_holds_is_named_with_who_has_it(self, host, open_console):
        open_console()
        (finding,) = self.found(host)
        assert finding.subject.startswith(f"pid {os.getpid()} (python")
        assert finding.problem == "has devices open that nobody holds: tty:tty61"

    def test_not_one_that_is_held(self, host, open_console):
        console = open_console()
        want = pod_holds.Want("tty61", console)
        pod_holds.take(Ledger(str(host.root / "state"), inventory.boot_id()), "acme.com/tty", [want])
        assert self.found(host) == []

    @pytest.mark.parametrize("args", [{"occupied": "ignore"}, {"occupied_ignore": ["py*"]}])
    def test_not_where_the_configuration_says_so(self, host, open_console, args):
        if "occupied_ignore" in args and (os.stat(sys.executable).st_uid or os.stat(sys.executable).st_mode & 0o022):
            pytest.skip("others can change this interpreter")
        open_console(**args)
        assert self.found(host) == []

    def test_not_one_that_nobody_hands_out(self, host, open_console):
        host.list_devices(open_console(occupied="ignore"))
        assert self.found(host) == []


class TestOneCause:
    """Many devices with one cause are one finding, which names them."""

    NAMES = tuple(f"gpu{number}" for number in range(100))
    QUALIFIED = tuple(f"{KIND}={name}" for name in NAMES)

    def test_unhealthy_for_one_reason(self, host):
        def ill(name, address=None, fault="no driver"):
            node = Node(f"/dev/{name}", "c", 250, 0)
            health = Health("unhealthy", f"{address or node.path}: {fault}")
            return device(name)._replace(pci_address=address or "", nodes=(node,), health=health)

        by_address = [ill(name, f"0000:{number:02x}:00.0") for number, name in enumerate(self.NAMES[:50])]
        host.list_devices(*by_address, *map(ill, self.NAMES[50:]), ill("other", fault="no node"))
        many, one = (found for found in host.diagnose() if found.rule == "unhealthy")
        assert (many.subject, many.details) == ("no driver", self.QUALIFIED)
        assert (one.subject, one.details) == ("no node", (f"{KIND}=other",))
        assert many.problem == f"not handed out: {', '.join(self.QUALIFIED[:3])}, and 97 more"
        assert many.next == one.next
        assert "`fleet-cdi device disable NAME --reason TEXT`" in many.next

    def test_out_of_service_for_one_reason(self, host):
        host.list_devices(*map(device, self.NAMES))
        out = {f"id:{name}": Disabled("drained", "2026-11-21T15:20:00Z") for name in self.NAMES}
        (host.root / "state").mkdir(exist_ok=True)
        (host.root / "state/device-state.json").write_bytes(render_disabled({**out, "id:x": Disabled("", "2026")}))
        many, one = (found for found in host.diagnose() if found.rule == "disabled")
        assert (many.subject, len(many.details), one.subject) == ("drained", 100, "no reason was given")
        assert many.next == one.next
        assert "`fleet-cdi device enable NAME`" in many.next


class TestDropped:
    """A device that the settings dropped while a request held it. It is there, and stays in its spec."""

    @pytest.fixture(autouse=True)
    def dropped(self, host):
        def converge(*nodes):
            match = {"subsystem": "mem", "node": [f"/dev/{node}" for node in nodes]}
            entries = {"memory": {"profile": "rule", "kind": KIND, "match": match, "name_by": ["sysname"]}}
            wanted = WantedKind(KIND, entries, runtimes={"podman": "5.4.0"})
            spec_module.converge_spec(wanted, host.view().places)

        converge("full", "zero")
        (zero,) = (one for one in host.view().live.listed.devices if one.names == ("zero",))
        pod_holds.take(Ledger(str(host.root / "state"), inventory.boot_id()), KIND, [pod_holds.Want("zero", zero)])
        converge("full")

    def test_it_is_a_note_and_no_fault(self, host):
        found = host.diagnose()
        assert [(one.rule, one.subject, one.status) for one in found] == [("device-leaving", KIND, NOTES)]
        assert found[0].details == (f"{KIND}=zero",)
        assert "the settings dropped it" in found[0].problem and "stays in its spec" in found[0].problem

    def test_its_entry_in_the_inventory_says_why_nobody_gets_it(self, host):
        (zero,) = (one for one in host.view().live.listed.devices if one.names == ("zero",))
        assert zero.health.state == "unhealthy" and "the settings dropped it" in zero.health.reason
        assert "gone" not in zero.health.reason
