# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device an operator means by a name alone, or by the path of a device node."""

from __future__ import annotations

from collections import Counter

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import name_lookup, registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.name_lookup import qualified
from ansible_collections.fleet.cdi.tests.unit.builders import spec


def nodes(*paths):
    return {"deviceNodes": [{"path": path} for path in paths]}


MOVED = {"deviceNodes": [{"path": "/dev/inside", "hostPath": "/dev/gpu1"}]}
DEVICES = {
    "vendor.com/gpu": {
        "0": nodes("/dev/gpu0"),
        "1": MOVED,
        "all": nodes("/dev/gpu0", "/dev/gpu1"),
        "pair": nodes("/dev/p1", "/dev/p2"),
    },
    "vendor.com/nic": {"1": nodes("/dev/nic1"), "eth": {"env": ["A=1"]}},
}
FILES = [registry.SpecFile(f"/{kind}.json", 0, spec(devices, kind, "1.1.0")) for kind, devices in DEVICES.items()]
REGISTRY = registry.resolve(["/"], FILES, {})


@pytest.mark.parametrize(
    ("name", "means"),
    {
        "any.com/thing=x": "any.com/thing=x",
        "0": "vendor.com/gpu=0",
        "eth": "vendor.com/nic=eth",
        "/dev/gpu0": "vendor.com/gpu=0",  # rather than all of them
        "/dev/gpu1": "vendor.com/gpu=1",
        "/dev/p2": "vendor.com/gpu=pair",
    }.items(),
)
def test_a_name_means_one_device(name, means):
    assert qualified([name], REGISTRY) == [means]


@pytest.mark.parametrize("path", ["/dev/\0", "/dev/\ud800"])
def test_a_path_that_is_none_hides_no_other(path):
    """As a spec of another tool may have it."""
    file = registry.SpecFile("/odd.json", 0, spec({"odd": nodes(path)}, "odd.com/odd", "1.1.0"))
    found = qualified(["/dev/gpu0", path], registry.resolve(["/"], [*FILES, file], {}))
    assert found == ["vendor.com/gpu=0", "odd.com/odd=odd"]


def test_a_chain_of_links_that_the_kernel_does_not_follow_hides_no_other(tmp_path):
    """Any user can make one in a directory of theirs."""
    for number in range(1500):
        (tmp_path / f"l{number}").symlink_to(f"l{number + 1}")
    file = registry.SpecFile("/odd.json", 0, spec({"odd": nodes(f"{tmp_path}/l0")}, "odd.com/odd", "1.1.0"))
    assert qualified(["/dev/gpu0"], registry.resolve(["/"], [*FILES, file], {})) == ["vendor.com/gpu=0"]


@pytest.mark.parametrize(("in_spec", "asked"), [("node", "link"), ("link", "node"), ("link", "other-link")])
def test_a_link_means_the_node_that_it_leads_to(tmp_path, in_spec, asked):
    (tmp_path / "node").touch()
    for name in ("link", "other-link"):
        (tmp_path / name).symlink_to("node")
    devices = {"0": nodes(str(tmp_path / in_spec)), "all": nodes(str(tmp_path / in_spec), "/dev/gpu1")}
    file = registry.SpecFile("/a.json", 0, spec(devices, "vendor.com/gpu", "1.1.0"))
    assert qualified([str(tmp_path / asked)], registry.resolve(["/"], [file], {})) == ["vendor.com/gpu=0"]


@pytest.mark.parametrize(
    ("name", "says"),
    {
        "1": "1: is one of vendor.com/gpu=1, vendor.com/nic=1; expected a name of one device",
        "/dev/inside": "/dev/inside: no spec defines a device of that name",
        "gpu": "gpu: no spec defines a device of that name",
        "pai": "pai: no spec defines a device of that name.*pair",
    }.items(),
)
def test_other_names_are_refused(name, says):
    with pytest.raises(CdiError, match=f"^{says}"):
        qualified(["0", name, "gpu-of-none"], REGISTRY)


def test_the_nodes_of_the_specs_are_resolved_once_for_all_names(monkeypatch):
    """500 paths against a spec of 500 nodes took 6 s."""
    resolved = Counter()
    monkeypatch.setattr(name_lookup, "real_path", lambda path: resolved.update([path]) or path)
    assert qualified(["/dev/gpu0", "0", "/dev/gpu1", "/dev/p1", "/dev/p2", "a.com/b=c"], REGISTRY) == [
        "vendor.com/gpu=0",
        "vendor.com/gpu=0",
        "vendor.com/gpu=1",
        "vendor.com/gpu=pair",
        "vendor.com/gpu=pair",
        "a.com/b=c",
    ]
    assert max(resolved.values()) <= 2  # of a spec, and asked for
    resolved.clear()
    assert qualified(["0", "a.com/b=c"], REGISTRY) and not resolved
