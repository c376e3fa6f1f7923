# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `fleet-cdi plugin status` finds wrong with instances that live (exit code 1), and what `forget` gives back."""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Optional

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.dra_holds import (
    Claim,
    claim_key,
    settle_claims,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import operate
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.tests.unit.builders import program
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import NAME, Host

GPU = "acme.com/gpu"
TAKEN = "taken: by request 7 of gpu/gpu"
GONE = "node-missing: acme.com/gpu=0: needs /dev/gpu0, found nothing"


def says(
    state: str = instance_status.REGISTERED,
    why: str = "",
    error: Optional[str] = None,
    config: Optional[str] = None,
    **more: Any,
) -> dict[str, Any]:
    """The document of an instance with one device of one resource, which is Unhealthy for `why`."""
    resource = {
        "state": state,
        "error": error,
        "stream": state == instance_status.REGISTERED,
        "devices": {"0": {"healthy": not why, "reason": why}},
        "delivery": {"why": ""},
        "warnings": [],
        **more,
    }
    return {"config": {"error": config}, "warnings": [], "resources": {GPU: resource}}


CASES = {
    "all is well": ([says()], []),
    "somebody else holds the device": ([says(why=TAKEN)], []),
    "the host uses it": ([says(why="reserved: sda is mounted")], []),
    "a device is ill": ([says(why=GONE)], [f"{GPU}: 0 is Unhealthy: {GONE}"]),
    "there is nothing of it": ([says(instance_status.IDLE)], []),
    "there is no kubelet": ([says(instance_status.WAITING, error="no socket")], [f"{GPU}: waiting: no socket"]),
    "another plugin has it": ([says(instance_status.CONFLICT, error="theirs")], [f"{GPU}: conflict: theirs"]),
    "it is under way": ([says(instance_status.REGISTERING)], [f"{GPU}: registering: not there yet"]),
    "the stream ended just now": ([says(stream=False)], [f"{GPU}: the kubelet's stream has ended"]),
    "the older one serves until the younger one does": ([says(), says(instance_status.RETRYING)], []),
    "the younger one serves": ([says(instance_status.STANDBY), says()], []),
    "neither does": (
        [says(instance_status.STANDBY), says(instance_status.RETRYING, error="no")],
        [f"{GPU}: retrying: no"],
    ),
    "a way that can't work": ([says(delivery={"why": "no CDI"})], [f"{GPU}: no CDI"]),
    "what gets lost": ([says(warnings=["hooks"])], [f"{GPU}: hooks"]),
    "the configuration is wrong": (
        [says(config="x.json: no")],
        ["instance a: works by an older configuration, or none: x.json: no"],
    ),
    "nobody lives": ([], ["no instance of the device plugin runs here"]),
}


@pytest.mark.parametrize(("documents", "findings"), CASES.values(), ids=CASES)
def test_findings(tmp_path: Path, documents: list[dict[str, Any]], findings: list[str]) -> None:
    with ExitStack() as stack:
        for since_boot, (name, document) in enumerate(zip("ab", documents)):
            one = instance_status.InstanceEntry(str(tmp_path), name)
            one.enter()
            stack.callback(one.leave)
            one.write({"instance": name, "since_boot": since_boot, **document})
        found, wrong = operate.living(str(tmp_path))
    assert wrong == findings
    assert [one["instance"] for one in found] == list("ab"[: len(documents)])


def test_what_an_instance_that_hangs_says_is_not_believed(tmp_path: Path) -> None:
    instances = [instance_status.InstanceEntry(str(tmp_path), name) for name in "ab"]
    for since_boot, (one, document) in enumerate(zip(instances, (says(instance_status.RETRYING, error="no"), says()))):
        one.enter()
        one.write({"instance": one.name, "since_boot": since_boot, "pid": 7, **document})
    assert operate.living(str(tmp_path))[1] == []
    began = time.monotonic()
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - int(60.4e9)
    os.utime(tmp_path / "b.lock", ns=(now, now))
    found, wrong = operate.living(str(tmp_path))
    assert [one["instance"] for one in found] == ["a", "b"]
    assert wrong[1:] == [f"{GPU}: retrying: no"]
    text = r"instance b: process 7 has given no sign of life for (\d+) s: it is stopped, or hangs; restart it"
    said = re.fullmatch(text, wrong[0])
    assert said and 60 <= int(said[1]) <= round(60.4 + time.monotonic() - began), wrong[0]
    for one in instances:
        one.leave()


class TestForget:
    """Nobody else gets what pods held as they left it."""

    @pytest.fixture
    def settings(self, tmp_path: Path, say: list[str]) -> PluginSettings:
        host = Host(tmp_path, teardown=say)
        host.allocate("0", "1")
        places = {"state_dir": str(host.state), "run_dir": str(tmp_path / "run"), "root": str(host.root)}
        places["inventory"] = str(tmp_path / "none.json")
        document = {"version": 1, "resources": {NAME: {"teardown": say}}, "spec_dirs": [str(host.specs)], **places}
        return configuration.parse(document, "c")

    @staticmethod
    def held(settings: PluginSettings) -> dict[str, str]:
        grants = Ledger(settings.state_dir, inventory.boot_id()).grants()
        return {grant.key.request_id: grant.parts[0].state for grant in grants}

    def test_it_is_torn_down(self, settings: PluginSettings, tmp_path: Path) -> None:
        assert operate.forget(settings) == 2
        assert sorted((tmp_path / "log").read_text().split("\n")) == ["", "DEL 0", "DEL 1"]
        assert self.held(settings) == {}
        assert operate.forget(settings) == 0

    def test_what_claims_of_dra_drivers_have_counts(self, settings: PluginSettings) -> None:
        ledger = Ledger(settings.state_dir, inventory.boot_id())
        for number in range(3):
            hold = Hold(f"pci:{number}", "dra/gpu.vendor.com")
            settle_claims(ledger, [Claim(claim_key("gpu.vendor.com", f"ml/{number}"), (), (hold,))], {})
        assert operate.forget(settings) == 2 + 3
        assert self.held(settings) == {}

    def test_what_can_not_be_stays_withheld(self, settings: PluginSettings, trusted: str) -> None:
        fails = tuple(program(trusted, "fails", "test $CDI_REQUEST_ID = 1"))
        one = settings.resources[NAME]._replace(teardown=fails)
        with pytest.raises(CdiError, match="1 devices may be granted again; .* withheld: 0: teardown: .*failed"):
            operate.forget(settings._replace(resources={NAME: one}))
        assert self.held(settings) == {"0": "withheld"}
        assert operate.forget(settings) == 0
