# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor: links by number that runc needs."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import rule, view
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import device_links
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.oci_runtimes import OciRuntime


class TestLinksByNumber:
    """Of device nodes that specs name; which there are is the test's own word."""

    NODES = (
        device_links.Numbered("/dev/card0", "/dev/char/226:0", device_links.GONE, True),
        device_links.Numbered("/dev/nvidia0", "/dev/char/195:0", device_links.GONE, False),
        device_links.Numbered(
            "/dev/nvidia1", "/dev/char/195:1", "leads to ../nvidia9, which is not that device", False
        ),
        device_links.Numbered("/dev/nvidia2", "/dev/char/195:2", "", False),
        device_links.Numbered("/dev/nvidiactl", "/dev/char/195:255", device_links.GONE, False),
    )

    def findings(self, host, *runtimes):
        seen = host.view(
            oci_runtimes=tuple(OciRuntime(name, version, f"/usr/bin/{name}") for name, version in runtimes)
        )
        return rule.find_problems(RULES, seen._replace(live=seen.live._replace(numbered=self.NODES)))

    @pytest.mark.parametrize(
        "runtime", [("runc", "1.1.2"), ("runc", "1.1.7"), ("runc", "1.3.0+ds"), ("crun", "1.8.1"), ("crun", "1.1.5")]
    )
    def test_none_where_no_runtime_loses_devices(self, host, runtime):
        assert self.findings(host, runtime) == ()

    @pytest.mark.parametrize(
        ("version", "udevs"), [("1.1.3", True), ("1.1.4-rhaos", True), ("1.1.5+ds1", False), ("1.1.6", False)]
    )
    def test_one_for_each_cause(self, host, version, udevs):
        found = {one.rule: one for one in self.findings(host, ("crun", "1.8.1"), ("runc", version))}
        assert set(found) == {"device-link-missing", "device-link-wrong", *(["device-link-of-udev"] if udevs else [])}
        missing = found["device-link-missing"]
        assert missing.subject == "/dev/char" and missing.details == ("/dev/nvidia0", "/dev/nvidiactl")
        assert f"containers of runc {version} (/usr/bin/runc) with systemd cgroups" in missing.problem
        assert missing.next.startswith("`fleet-cdi refresh` as root") and "start the containers again" in missing.next
        assert found["device-link-wrong"].next.startswith("`rm /dev/char/195:1`; then `fleet-cdi refresh` as root")
        if udevs:
            assert found["device-link-of-udev"].details == ("/dev/card0",)

    def test_where_systemd_runs_they_are_looked_at(self, host, monkeypatch):
        monkeypatch.setattr(device_links, "numbered_nodes", lambda paths: self.NODES if "/dev/null" in paths else ())
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/null"}])
        places = host.view().places
        assert view.take(places, run=lambda _command: (0, ""), booted=True).live.numbered == self.NODES
        assert view.take(places, booted=False).live.numbered == ()
