# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a container gets its devices: which ways are taken on which node, what is in the answer, what is lost."""

from __future__ import annotations

import os
import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.delivery import (
    Delivery,
    decide,
    expand,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect, place, running, survey
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import RuntimeReader
from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import SpecFile, resolve
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.trees import specs

OLD = RuntimeReader("containerd", False, "containerd 1.6.20 is from before CDI")
OFF = RuntimeReader("containerd", False, "containerd 1.7.24: enable_cdi is off (default)")
NEW = RuntimeReader("cri-o", True)
HERE = RuntimeReader("containerd 2.1.4", True, "", ("/etc/cdi", "/var/run/cdi"), "1.0.0")
ELSEWHERE = RuntimeReader("cri-o 1.30.0", True, "", ("/opt/cdi",), "0.7.0")

BY_NAME = Delivery(True, True, False)
ALL_WAYS = Delivery(True, True, True)
SPELLED_OUT = Delivery(False, False, True)

KNOWN = specs.registry(specs.spec("a.com/bb", {"0": ["/dev/null"]}))  # /etc/cdi/0.json, of version 0.6.0
NAMES = tuple(KNOWN.devices)


def with_file(**more):
    """The registry, with another file of these fields."""
    (file,) = KNOWN.specs
    file = file._replace(**more)
    return resolve(KNOWN.directories, [file], {})


@pytest.mark.parametrize(
    ("mode", "readers", "ways", "why"),
    [
        ("auto", [], BY_NAME, ""),
        ("auto", [NEW], BY_NAME, ""),
        ("auto", [HERE], BY_NAME, ""),
        ("auto", [OLD], SPELLED_OUT, ""),
        ("auto", [OFF, OLD], SPELLED_OUT, ""),
        ("auto", [NEW, OLD], ALL_WAYS, ""),
        ("auto", [ELSEWHERE], SPELLED_OUT, "cri-o 1.30.0 does not read /etc/cdi, only /opt/cdi"),
        ("auto", [ELSEWHERE, OFF], SPELLED_OUT, "cri-o 1.30.0 does not read /etc/cdi"),
        ("auto", [ELSEWHERE, HERE], SPELLED_OUT, "cri-o 1.30.0 does not read /etc/cdi"),  # a name would fail there
        ("cdi", [], Delivery(True, False, False), ""),
        ("cdi", [NEW, OLD], Delivery(True, False, False), ""),
        ("cdi", [OLD], Delivery(True, False, False), "delivery cdi: containerd 1.6.20 is from before CDI; containers"),
        ("cdi", [ELSEWHERE], Delivery(True, False, False), "delivery cdi: cri-o 1.30.0 does not read /etc/cdi"),
        ("cdi", [ELSEWHERE, HERE], Delivery(True, False, False), ""),
        ("annotations", [NEW], Delivery(False, True, False), ""),
        ("annotations", [OFF], Delivery(False, True, False), "enable_cdi is off (default); containers get no devices"),
        ("annotations", [OFF, ELSEWHERE], Delivery(False, True, False), "is off (default); cri-o 1.30.0 does not read"),
        ("expanded", [NEW], SPELLED_OUT, ""),
        ("expanded", [OLD], SPELLED_OUT, ""),
        ("expanded", [ELSEWHERE], SPELLED_OUT, ""),
    ],
)
def test_which_ways_are_taken(mode, readers, ways, why):
    found = decide(mode, readers, KNOWN, NAMES)
    assert found._replace(why="") == ways
    assert bool(found.why) == bool(why)
    assert why in found.why


def test_specs_of_a_version_that_the_runtime_does_not_read():
    """It passes over the whole file, and fails on the name."""
    assert decide("auto", [HERE], KNOWN, NAMES) == BY_NAME
    newer = with_file(spec={**KNOWN.specs[0].spec, "cdiVersion": "v1.1.0"})
    found = decide("auto", [HERE], newer, NAMES)
    assert found._replace(why="") == SPELLED_OUT
    assert "containerd 2.1.4 reads CDI up to 1.0.0, and /etc/cdi/0.json has 1.1.0" in found.why


def test_a_directory_by_another_name(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    moved = with_file(path=str(tmp_path / "link/0.json"))
    assert decide("auto", [HERE._replace(spec_dirs=(str(tmp_path / "real"),))], moved, NAMES) == BY_NAME
    assert decide("auto", [HERE._replace(spec_dirs=(str(tmp_path),))], moved, NAMES).expanded


def test_every_mode_of_the_configuration_is_known():
    for mode in configuration.DELIVERY:
        assert isinstance(decide(mode, [NEW]), Delivery)


def test_what_the_configuration_can_not_have():
    settings = configuration.parse(
        {"version": 1, "delivery": "cdi", "resources": {"a.com/bb": {}, "a.com/cc": {"delivery": "annotations"}}}, "x"
    )
    nothing, some = specs.registry(), specs.registry(specs.spec("a.com/bb", {"0": ["/dev/null"]}))
    both = ["delivery cdi", "delivery annotations"]
    for readers, found, modes in (([OLD], nothing, both), ([NEW], some, []), ([ELSEWHERE], some, both[:1])):
        assert [text.partition(":")[0] for text in delivery.warnings(settings, readers, found)] == modes
    settings = configuration.parse({"version": 1}, "x")
    assert delivery.warnings(settings, [OLD], some) == ()
    assert delivery.warnings(settings, [ELSEWHERE], nothing) == ()
    assert delivery.warnings(settings, [ELSEWHERE], some)[0].startswith("delivery auto: cri-o 1.30.0 does not read")


@pytest.mark.parametrize(
    ("mode", "versions", "warned"),
    [
        ("cdi", [(1, 20)], True),
        ("cdi", [(1, 20), (1, 28)], True),
        ("cdi", [(1, 20), (1, 29)], False),  # which one runs is not known
        ("cdi", [], False),
        ("auto", [(1, 20)], False),
        ("annotations", [(1, 20)], False),
    ],
)
def test_a_field_that_the_kubelet_does_not_pass_on(mode, versions, warned):
    settings = configuration.parse({"version": 1, "resources": {"a.com/bb": {"delivery": mode}}}, "x")
    lines = delivery.warnings(settings, [HERE], specs.registry(), versions)
    assert bool(lines) == warned
    assert all("passes on no field cdi_devices" in line for line in lines)


@pytest.mark.parametrize(
    ("program", "says", "version"),
    [
        ("kubelet", "Kubernetes v1.20.15", [(1, 20)]),
        ("kubelet", "Kubernetes v1.36.3-rc.1", [(1, 36)]),
        ("k3s", "k3s version v1.30.4+k3s1 (98262b5d)", [(1, 30)]),
        ("kubelet", "flag provided but not defined", []),
    ],
)
def test_the_kubelets_of_a_node(tmp_path, monkeypatch, program, says, version):
    monkeypatch.setattr(detect, "DIRECTORIES", ())
    assert delivery.kubelets("/", str(tmp_path)) == ()
    builders.program(tmp_path, program, f"echo '{says}'")
    assert delivery.kubelets("/", str(tmp_path)) == tuple(version)
    assert delivery.kubelets("/host", str(tmp_path)) == ()


@pytest.mark.parametrize(
    ("program", "says", "reads", "why"),
    [
        ("containerd", "containerd github.com/containerd/containerd 1.6.20~ds1", False, "is from before CDI"),
        ("containerd", "containerd github.com/containerd/containerd 1.7.24", False, "has CDI off"),
        ("containerd", "containerd github.com/containerd/containerd/v2 2.1.4", True, ""),
        ("crio", "crio version 1.23.0", False, "is from before CDI"),
        ("crio", "crio version 1.30.0", True, ""),
        ("dockerd", "Docker version 28.5.1, build x", None, ""),
    ],
)
def test_the_runtimes_of_a_node(tmp_path, monkeypatch, program, says, reads, why):
    monkeypatch.setattr(detect, "DIRECTORIES", ())  # nothing of the machine that runs the tests
    monkeypatch.setattr(place.Source, "read", lambda _self, _path: None)
    monkeypatch.setattr(place.Source, "glob", lambda _self, _pattern: [])
    monkeypatch.setattr(survey, "readers", partial(_unasked, survey.readers))
    builders.program(tmp_path, program, f"echo '{says}'")
    found = delivery.readers("/", str(tmp_path))
    assert [one.reads for one in found] == ([] if reads is None else [reads])
    assert all(why in one.why and one.name.startswith(("containerd", "cri-o")) for one in found)
    assert delivery.readers("/host", str(tmp_path)) == ()


def _unasked(readers, states):
    """As if no daemon answered."""
    return readers([state._replace(asked=running.Asked(None)) for state in states])


class TestAnnotation:
    """The reference library's rules: AnnotationKey and ParseAnnotations."""

    def test_one_resource(self):
        names = ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"]
        assert delivery.annotation("nvidia.com/gpu", names) == (
            "cdi.k8s.io/fleet-cdi_nvidia.com_gpu",
            "nvidia.com/gpu=GPU-1,nvidia.com/gpu=GPU-2",
        )

    @given(
        st.from_regex(
            r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?(\.[a-z0-9]{1,40}){1,5}/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
            fullmatch=True,
        )
    )
    def test_any_resource_name_makes_a_key(self, resource):
        name = delivery.annotation(resource, [])[0].partition("/")[2]
        assert len(name) <= 63
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", name)

    def test_long_names_that_begin_alike_have_keys_of_their_own(self):
        keys = {delivery.annotation(f"{'a' * 60}.com/{end}", [])[0] for end in ("b", "c", "d")}
        assert len(keys) == 3


class TestExpand:
    """Container edits, spelled out."""

    def test_all_that_can_be(self):
        edits = {
            "env": ["A=1", "B=x=y", "C="],
            "deviceNodes": [
                {"path": "/dev/a"},
                {"path": "/dev/b", "hostPath": "/dev/host-b", "permissions": "rw"},
                {"path": "/dev/c", "permissions": "none", "type": "c", "major": 1, "minor": 3},
            ],
            "mounts": [
                {"hostPath": "/lib/x", "containerPath": "/usr/lib/x", "options": ["ro", "nosuid", "rbind"]},
                {"hostPath": "/run/y", "containerPath": "/run/y", "type": "bind"},
                {"hostPath": "/run/z", "containerPath": "/run/z", "type": "none", "options": ["rw"]},
            ],
        }
        found = expand([edits])
        assert found.envs == {"A": "1", "B": "x=y", "C": ""}
        assert list(found.devices.values()) == [
            ("/dev/a", "/dev/a", "rwm"),
            ("/dev/b", "/dev/host-b", "rw"),
            ("/dev/c", "/dev/c", ""),
        ]
        assert list(found.mounts.values()) == [
            ("/usr/lib/x", "/lib/x", True),
            ("/run/y", "/run/y", False),
            ("/run/z", "/run/z", False),
        ]
        assert found.lost == ()
        assert found.paths == {"/dev/a", "/dev/host-b", "/dev/c", "/lib/x", "/run/y", "/run/z"}

    @pytest.mark.parametrize(
        ("edits", "lost"),
        [
            ({"hooks": [{"hookName": "createContainer", "path": "/x"}]}, "hooks"),
            ({"netDevices": [{"hostInterfaceName": "eth1", "name": "eth1"}]}, "netDevices"),
            ({"intelRdt": {"closID": "x"}}, "intelRdt"),
            ({"additionalGids": [44]}, "additionalGids"),
            ({"mounts": [{"hostPath": "x", "containerPath": "/x", "type": "tmpfs"}]}, "mounts of type tmpfs"),
            ({"deviceNodes": [{"path": "/dev/fifo", "type": "p"}]}, "deviceNodes of type p"),
        ],
    )
    def test_what_can_not(self, edits, lost):
        found = expand([edits])
        assert found.lost == (lost,)
        assert not found.paths

    def test_the_owner_of_a_node(self):
        found = expand([{"deviceNodes": [{"path": "/dev/a", "fileMode": 432, "gid": 0}]}])
        assert found.lost == ("deviceNodes.fileMode", "deviceNodes.gid")
        assert list(found.devices) == ["/dev/a"]

    def test_later_edits_win(self):
        found = expand(
            [
                {
                    "env": ["A=1"],
                    "deviceNodes": [{"path": "/dev/a"}],
                    "mounts": [{"hostPath": "/1", "containerPath": "/m"}],
                },
                {
                    "env": ["A=2"],
                    "deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}],
                    "mounts": [{"hostPath": "/2", "containerPath": "/m"}],
                },
            ]
        )
        assert found.envs == {"A": "2"}
        assert list(found.devices.values()) == [("/dev/a", "/dev/b", "rwm")]
        assert list(found.mounts.values()) == [("/m", "/2", False)]


def registry():
    shared = {"hooks": [{"hookName": "createContainer", "path": "/x"}], "env": ["ALL=1"]}
    devices = {"a": builders.nodes("/dev/null"), "b": {"additionalGids": [44]}}
    spec = builders.spec(devices, "v.com/gpu", "0.6.0", containerEdits=shared)
    return resolve(["/etc/cdi"], [SpecFile("/etc/cdi/v.json", 0, spec)], {})


def test_what_is_lost_is_told_once_for_each_spec():
    units = [
        OfferedUnit(name, (f"v.com/gpu={name}",), Device(name, "p", "v.com/gpu", (name,), ()))
        for name in ("a", "b", "gone")
    ]
    lines = delivery.lost(Resource("v.com/gpu", tuple(units)), registry())
    assert len(lines) == 1
    assert lines[0].startswith("/etc/cdi/v.json: hooks, additionalGids: not given to containers of v.com/gpu")


class TestResponse:
    """The message, over the wire and back."""

    NAMES = ("v.com/gpu=a", "v.com/gpu=b")
    EXPANDED = expand(
        [
            {
                "env": ["A=1"],
                "deviceNodes": [{"path": "/dev/null"}],
                "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro"]}],
            }
        ]
    )

    def ask(self, ways):
        from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

        message = delivery.response(ways, "v.com/gpu", self.NAMES, self.EXPANDED)
        return api.v1beta1.ContainerAllocateResponse.FromString(message.SerializeToString())

    def test_by_name(self):
        found = self.ask(BY_NAME)
        assert [one.name for one in found.cdi_devices] == [*self.NAMES]
        assert dict(found.annotations) == {"cdi.k8s.io/fleet-cdi_v.com_gpu": "v.com/gpu=a,v.com/gpu=b"}
        assert not (found.envs or found.devices or found.mounts)

    def test_spelled_out(self):
        found = self.ask(SPELLED_OUT)
        assert not (found.cdi_devices or found.annotations)
        assert dict(found.envs) == {"A": "1"}
        assert [(one.container_path, one.host_path, one.permissions) for one in found.devices] == [
            ("/dev/null", "/dev/null", "rwm")
        ]
        assert [(one.container_path, one.host_path, one.read_only) for one in found.mounts] == [("/c", "/h", True)]

    def test_all_ways(self):
        found = self.ask(ALL_WAYS)
        assert found.cdi_devices and found.annotations and found.devices


def test_a_runtime_that_is_installed_here_is_found():
    """On a machine with containerd: the real one."""
    if not os.path.exists("/usr/bin/containerd"):
        pytest.skip("no containerd here")
    assert "containerd" in [one.name.split()[0] for one in delivery.readers()]
