# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices out of service: whom it concerns, for how long, and files that can't be trusted."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import out_of_service, snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

SINCE = "2026-11-21T15:20:00Z"
GPU = Device("pci:0000:3b:00.0", "amd", "amd.com/gpu", ("0",), (), uuid="92a4b81f")
BROKEN = {GPU.id: Disabled("ECC errors", SINCE, unique="92a4b81f")}


def test_what_is_written_is_read(tmp_path):
    assert out_of_service.read_disabled(str(tmp_path)) == {}
    (tmp_path / "device-state.json").write_bytes(out_of_service.render_disabled(BROKEN))
    assert out_of_service.read_disabled(str(tmp_path)) == BROKEN
    assert out_of_service.render_disabled({}) is None


@pytest.mark.parametrize(
    ("until", "now", "still"),
    [("", 4e9, True), ("2026-11-22T00:00:00Z", 1795305599, True), ("2026-11-22T00:00:00Z", 1795305600, False)],
)
def test_it_ends_when_it_was_to_end(tmp_path, until, now, still):
    (tmp_path / "device-state.json").write_bytes(
        out_of_service.render_disabled({GPU.id: Disabled("hot", SINCE, until)})
    )
    assert (GPU.id in out_of_service.in_force(str(tmp_path), lambda: now)) == still


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (GPU, "out of service since 2026-11-21T15:20:00Z, until it is enabled: ECC errors"),
        (GPU._replace(uuid="another"), None),  # another card in the same slot
        (GPU._replace(id="pci:0000:86:00.0"), None),
        (
            GPU._replace(id="platform:amdgpu_xcp_0", part_of=(GPU.id,)),
            "out of service with pci:0000:3b:00.0 since 2026-11-21T15:20:00Z, until it is enabled: ECC errors",
        ),
        (
            GPU._replace(id="vfio:12", consists_of=("pci:0000:3a:00.0", GPU.id)),
            "out of service with pci:0000:3b:00.0 since 2026-11-21T15:20:00Z, until it is enabled: ECC errors",
        ),
    ],
)
def test_whom_it_concerns(device, reason):
    found = out_of_service.health_of(device, BROKEN)
    assert (found and found.reason) == reason
    assert found is None or found.state == "reserved"


def test_discovery_says_so(tmp_path):
    root = render(
        {"devices": {"/sys/devices/virtual/misc/fuse": {"subsystem": "class/misc", "attributes": {"dev": "10:229"}}}},
        tmp_path,
    )
    out = {"misc:fuse": Disabled("no longer", SINCE)}
    found = discover({"misc": {"profile": "misc"}}, snapshot.take(root), disabled=out)
    assert found.devices[0].health.state == "reserved"
    assert found.devices[0].health.reason.startswith("out of service since")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is damaged: found no JSON (Expecting value: line 1 column 1"),
        ("[]", "is damaged: found [] (a list); expected a mapping"),
        ('{"version": 1}', "is damaged: devices: is missing; expected a mapping"),
        (
            '{"version": 1, "devices": {"a": {"since": ""}}}',
            "is damaged: devices.a.reason: is missing",
        ),
        (json.dumps({"version": 2, "devices": {}}), "has version 2; this release reads 1"),
        (
            '{"version": 1, "devices": {"a": {"reason": "x", "since": "", "colour": "red"}}}',
            "'colour'; expected one of",
        ),
    ],
)
def test_refused(tmp_path, content, words):
    (tmp_path / "device-state.json").write_text(content)
    with pytest.raises(CdiError, match=re.escape(words)) as caught:
        out_of_service.read_disabled(str(tmp_path))
    assert str(tmp_path / "device-state.json") in str(caught.value)
