# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of devices that pods held when the device plugin is removed."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import dra_holds, pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_config
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.device_plugin_removal import tidy
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.tests.unit.builders import program, trusted_directory

NAME = "vendor.com/gpu"


@pytest.mark.parametrize("check", [True, False])
def test_what_claims_of_dra_drivers_have_is_kept_by_nobody_any_more(tmp_path, check):
    state, kubelet, run = (str(tmp_path / name) for name in ("state", "kubelet", "run"))
    ledger = Ledger(state, inventory.boot_id())
    hold = Hold("pci:a", dra_holds.kind_of("gpu.amd.com"))
    dra_holds.settle_claims(
        ledger, [dra_holds.Claim(dra_holds.claim_key("gpu.amd.com", "ml/a"), ("a.com/b=c",), (hold,))], {}
    )
    assert tidy(read_manifest(state), state, kubelet, run, check) == []
    assert bool(ledger.grants()) == check


@pytest.mark.parametrize("check", [True, False])
def test_those_that_could_not_be_torn_down_stay_withheld_and_are_told(tmp_path, check):
    """The others are free: no kubelet has a pod."""
    state, kubelet, run = (str(tmp_path / name) for name in ("state", "kubelet", "run"))
    ledger = Ledger(state, inventory.boot_id())
    wants = [pod_holds.Want(name, Device(f"pci:{name}", "gpu", NAME, (name,), ())) for name in ("a", "b")]
    tokens = pod_holds.take(ledger, NAME, wants).tokens
    pod_holds.settle(ledger, NAME, tokens, withheld={"a": "teardown: /x: failed"})
    (text,) = tidy(read_manifest(state), state, kubelet, run, check)
    assert text.startswith("teardown: /x: failed") and "`fleet-cdi grants release pci:a`" in text
    left = {key.request_id for key, _part in pod_holds.holds(ledger.grants())}
    assert left == ({"a", "b"} if check else {"a"})


def test_what_is_given_back_is_torn_down(tmp_path):
    """By the configurations that we wrote."""
    state, kubelet, run, log = (str(tmp_path / name) for name in ("state", "kubelet", "run", "log"))
    ledger = Ledger(state, inventory.boot_id())
    pod_holds.take(ledger, NAME, [pod_holds.Want("a", Device("pci:a", "gpu", NAME, ("a",), ()))])
    with trusted_directory() as directory:
        say = program(directory, "say", f'echo "$CDI_COMMAND $CDI_DEVICES" >> {log}')
        document = {"version": 1, "resources": {NAME: {"teardown": say}}, "state_dir": state, "spec_dirs": [run]}
        path = str(tmp_path / "device-plugin.json")
        device_plugin_config.write_config(path, json.dumps({**document, "run_dir": run}).encode(), state, False, False)
        assert tidy(read_manifest(state), state, kubelet, run) == []
    assert (tmp_path / "log").read_text() == "DEL pci:a\n"
    assert ledger.grants() == []
