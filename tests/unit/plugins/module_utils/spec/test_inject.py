# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inject: the error conditions by name, all or nothing, and the rules of order. tests/conformance has the reference."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.errors import (
    InjectError,
    MissingResource,
    UnknownDevice,
    UnknownKind,
)
from ansible_collections.fleet.cdi.plugins.module_utils.spec.inject import inject
from ansible_collections.fleet.cdi.tests.unit.builders import spec

KIND = "vendor.com/gpu"


def known(*specs):
    """A registry of specs of one directory: (kind, spec's edits, {name: device's edits})."""
    found = [
        registry.SpecFile(f"/etc/cdi/{index}.json", 0, spec(devices, kind, "1.1.0", containerEdits=edits))
        for index, (kind, edits, devices) in enumerate(specs)
    ]
    return registry.resolve(["/etc/cdi"], found, {})


def of(**edits):
    """A registry with one device, vendor.com/gpu=x."""
    return known((KIND, {}, {"x": edits}))


TWO = known(
    (KIND, {"env": ["FILE=gpu", "A=gpu"]}, {"x": {"env": ["A=x"]}, "y": {"env": ["A=y"]}}),
    ("vendor.com/nic", {"env": ["FILE=nic"]}, {"x": {"env": ["A=nic"]}}),
)


def test_groups_are_added_once_and_never_that_of_root():
    process = {"user": {"additionalGids": [7]}}
    given = of(additionalGids=[44, 0, 7, 44])
    assert inject({"process": process}, [f"{KIND}=x"], given)["process"]["user"]["additionalGids"] == [7, 44]


class TestOrder:
    """The edits of a file, the first time that it is met, then the device's; whatever comes later wins."""

    @pytest.mark.parametrize(
        ("names", "env"),
        [
            (["vendor.com/gpu=x"], ["FILE=gpu", "A=x"]),
            (["vendor.com/gpu=x", "vendor.com/gpu=y"], ["FILE=gpu", "A=y"]),
            (["vendor.com/gpu=y", "vendor.com/gpu=x"], ["FILE=gpu", "A=x"]),
            (["vendor.com/gpu=x", "vendor.com/nic=x"], ["FILE=nic", "A=nic"]),
            # The file of the first is not met again: FILE stays the nic's.
            (["vendor.com/gpu=x", "vendor.com/nic=x", "vendor.com/gpu=y"], ["FILE=nic", "A=y"]),
        ],
    )
    def test_environment(self, names, env):
        assert inject({}, names, TWO) == {"process": {"env": env}}

    def test_a_variable_keeps_its_place(self):
        given_ = {"process": {"env": ["A=0", "B", "A=1", "C=1"]}}
        assert inject(given_, ["vendor.com/gpu=x"], TWO)["process"]["env"] == ["A=0", "B", "A=x", "C=1", "FILE=gpu"]

    def test_mounts_are_sorted_by_depth_and_otherwise_keep_their_order(self):
        mounts = [{"hostPath": "/usr", "containerPath": path} for path in ("/b/c", "/z", "/a")]
        before = {"mounts": [{"destination": "/x/y/z"}, {"destination": "/z", "source": "old"}, {"destination": "/"}]}
        after = inject(before, ["vendor.com/gpu=x"], of(mounts=mounts))["mounts"]
        assert [mount["destination"] for mount in after] == ["/", "/z", "/a", "/b/c", "/x/y/z"]
        assert after[1] == {"destination": "/z", "source": "/usr"}

    def test_two_slashes_at_the_start_of_a_mount_point_are_one(self):
        before = {"mounts": [{"destination": "/x/y/z"}, {"destination": "//a/b"}]}
        after = inject(before, ["vendor.com/gpu=x"], of(mounts=[{"hostPath": "/usr", "containerPath": "/z"}]))
        assert [mount["destination"] for mount in after["mounts"]] == ["/z", "//a/b", "/x/y/z"]

    @pytest.mark.parametrize(("namespaces", "options"), [(["pid"], ["bind"]), (["pid", "user"], ["bind", "idmap"])])
    def test_a_bind_mount_is_mapped_in_a_user_namespace_alone(self, namespaces, options):
        mount = {"hostPath": "/etc", "containerPath": "/a", "options": ["bind"]}
        document = {"linux": {"namespaces": [{"type": name} for name in namespaces]}}
        assert inject(document, ["vendor.com/gpu=x"], of(mounts=[mount]))["mounts"][0]["options"] == options

    def test_a_node_is_read_from_the_host_and_allowed(self):
        found = inject({}, ["vendor.com/gpu=x"], of(deviceNodes=[{"path": "/dev/gpu", "hostPath": "/dev/null"}]))
        assert found["linux"]["devices"] == [
            {"path": "/dev/gpu", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666}
        ]
        assert found["linux"]["resources"]["devices"] == [
            {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}
        ]


class TestErrors:
    def test_unknown_kind(self):
        with pytest.raises(UnknownKind, match="no spec in /etc/cdi is of the kind other.org/gpu; found vendor.com/gpu"):
            inject({}, ["vendor.com/gpu=x", "other.org/gpu=x"], TWO)

    def test_unknown_device(self):
        with pytest.raises(
            UnknownDevice, match=r"no spec defines this device; of its kind there is vendor.com/gpu=x, v"
        ):
            inject({}, ["vendor.com/gpu=z"], TWO)

    def test_of_many_devices_eight_are_named(self):
        many = known((KIND, {}, {f"x{number:02}": {"env": ["A=1"]} for number in range(12)}))
        with pytest.raises(UnknownDevice, match=r"there is vendor.com/gpu=x00, .*, vendor.com/gpu=x07 and 4 more$"):
            inject({}, ["vendor.com/gpu=z"], many)

    def test_all_that_is_unknown_is_named_at_once(self):
        with pytest.raises(UnknownKind) as caught:
            inject({}, ["vendor.com/gpu=z", "other.org/gpu=x", "vendor.com/gpu=x"], TWO)
        assert caught.value.subjects == ("vendor.com/gpu=z", "other.org/gpu=x")
        assert "vendor.com/gpu=z" in str(caught.value) and "other.org/gpu=x" in str(caught.value)

    def test_a_device_in_conflict_is_unknown_and_the_files_are_named(self):
        clash = known((KIND, {}, {"x": {"env": ["A=1"]}}), (KIND, {}, {"x": {"env": ["A=2"]}}))
        with pytest.raises(UnknownDevice, match=r"/etc/cdi/0.json and /etc/cdi/1.json both define it"):
            inject({}, ["vendor.com/gpu=x"], clash)

    @pytest.mark.parametrize(
        "name", ["", "x", "vendor.com/gpu", "vendor.com=x", "vendor.com/gpu=", "vendor.com/gpu=a b"]
    )
    def test_what_is_no_qualified_name(self, name):
        with pytest.raises(CdiError, match="found") as caught:
            inject({}, [name], TWO)
        assert not isinstance(caught.value, InjectError)

    @pytest.mark.parametrize(
        ("edits", "missing", "rule"),
        [
            ({"deviceNodes": [{"path": "/dev/fleet-cdi-none"}]}, "/dev/fleet-cdi-none", "node-missing"),
            # Without a type, without a major or with the major 0 the library has to look at the node.
            ({"deviceNodes": [{"path": "/dev/fleet-cdi-none", "major": 1}]}, "/dev/fleet-cdi-none", "node-missing"),
            (
                {"deviceNodes": [{"path": "/dev/fleet-cdi-none", "type": "b", "minor": 3}]},
                "/dev/fleet-cdi-none",
                "node-missing",
            ),
            # The library does not look for these.
            ({"mounts": [{"hostPath": "/fleet-cdi-none", "containerPath": "/a"}]}, "/fleet-cdi-none", "mount-missing"),
            (
                {"mounts": [{"hostPath": "/lib/none.so.1", "containerPath": "/a"}]},
                "/lib/none.so.1",
                "library-missing",
            ),
            (
                {"hooks": [{"hookName": "prestart", "path": "/bin/fleet-cdi-none"}]},
                "/bin/fleet-cdi-none",
                "hook-missing",
            ),
            ({"hooks": [{"hookName": "poststop", "path": "/etc/passwd"}]}, "/etc/passwd", "hook-not-executable"),
            ({"hooks": [{"hookName": "poststop", "path": "/etc"}]}, "/etc", "hook-not-executable"),
            ({"netDevices": [{"hostInterfaceName": "none0", "name": "eth0"}]}, "none0", "interface-missing"),
            ({"deviceNodes": [{"path": "/etc/passwd"}]}, "/etc/passwd", "node-missing"),
        ],
    )
    def test_missing_resource(self, edits, missing, rule):
        with pytest.raises(MissingResource) as caught:
            inject({}, ["vendor.com/gpu=x"], of(**edits))
        assert caught.value.subjects == (missing,)
        assert f"/etc/cdi/0.json: needs {missing}, found" in str(caught.value) and f"[{rule}]" in str(caught.value)

    @pytest.mark.parametrize("type_", ["b", "u"])
    def test_a_node_of_another_type(self, type_):
        """Where the library looks for the numbers it compares the types, and a live node is never of type u."""
        says = f"/dev/null: found a node of type c; expected {type_}, as the spec says"
        with pytest.raises(MissingResource, match=says):
            inject({}, ["vendor.com/gpu=x"], of(deviceNodes=[{"path": "/dev/null", "type": type_}]))

    @pytest.mark.parametrize("type_", ["b", "c", "u"])
    @pytest.mark.parametrize("path", ["/dev/fleet-cdi-none", "/etc/passwd"])
    def test_a_node_whose_type_and_numbers_the_spec_says_need_not_be_there(self, path, type_):
        """fillMissingInfo, hasMinimalSpecification: a vendor may say all of a node. Its mode is then the runtime's."""
        node = {"path": path, "type": type_, "major": 1, "minor": 3}
        found = inject({}, ["vendor.com/gpu=x"], of(deviceNodes=[node]))
        assert found["linux"]["devices"] == [node]

    def test_a_pipe_needs_no_numbers(self):
        found = inject({}, ["vendor.com/gpu=x"], of(deviceNodes=[{"path": "/dev/fleet-cdi-none", "type": "p"}]))
        assert found == {"linux": {"devices": [{"path": "/dev/fleet-cdi-none", "type": "p", "major": 0, "minor": 0}]}}

    def test_what_is_not_looked_for(self):
        """A startContainer hook lies in the container, and the source of a tmpfs is no path."""
        edits = {
            "hooks": [{"hookName": "startContainer", "path": "/only/in/the/container"}],
            "mounts": [{"hostPath": "tmpfs", "containerPath": "/a", "type": "tmpfs", "options": ["size=1m"]}],
        }
        assert set(inject({}, ["vendor.com/gpu=x"], of(**edits))) == {"hooks", "mounts"}

    @pytest.mark.parametrize(
        ("document", "says"),
        [
            (None, "the OCI spec: found None; expected an object"),
            ([], "the OCI spec: found a list; expected an object"),
            ({"process": []}, "/process: found a list; expected an object"),
            ({"process": {"env": "A=1"}}, "/process/env: found a string; expected a list"),
            (
                {"process": {"env": [1]}},
                "/process/env: found an integer; expected a list of which each item is a string",
            ),
            ({"process": {"user": {"uid": "0"}}}, "/process/user/uid: found a string; expected an integer"),
            ({"process": {"user": {"uid": True}}}, "/process/user/uid: found True; expected an integer"),
            ({"mounts": {}}, "/mounts: found an object; expected a list"),
            ({"mounts": [None]}, "/mounts: found None; expected a list of which each item is an object"),
            ({"linux": {"resources": {"devices": [[]]}}}, "/linux/resources/devices: found a list"),
            ({"linux": 1.5}, "/linux: found 1.5; expected an object"),
            (
                {"mounts": [{"destination": "/a"}, {"destination": 5}]},
                "the OCI spec: /mounts/1/destination: found an integer; expected a string",
            ),
            ({"mounts": [{"destination": []}]}, "/mounts/0/destination: found a list; expected a string"),
            ({"linux": {"devices": [{"path": {}}]}}, "/linux/devices/0/path: found an object; expected a string"),
            ({"linux": {"namespaces": [{"type": True}]}}, "/linux/namespaces/0/type: found True; expected a string"),
            ({"hooks": {"poststop": [{"path": 1.5}]}}, "/hooks/poststop/0/path: found 1.5; expected a string"),
        ],
    )
    def test_what_is_no_oci_spec(self, document, says):
        with pytest.raises(CdiError) as caught:
            inject(document, ["vendor.com/gpu=x"], TWO)
        assert says in str(caught.value)

    def test_null_is_the_same_as_nothing(self):
        before = {"process": {"env": None, "user": None}, "linux": None, "mounts": None, "hooks": None}
        assert inject(before, ["vendor.com/gpu=x"], TWO) == {"process": {"env": ["FILE=gpu", "A=x"]}}

    def test_null_is_the_same_as_nothing_in_an_item(self):
        """The library reads null as the empty text, and leaves such a mount where it is."""
        before = {"mounts": [{"destination": None}, {}], "linux": {"devices": [{"path": None}, {}]}}
        found = inject(before, ["vendor.com/gpu=x"], of(mounts=EDITS["mounts"], deviceNodes=EDITS["deviceNodes"]))
        assert found["mounts"][:2] == before["mounts"] and len(found["mounts"]) == 4
        assert found["linux"]["devices"][:2] == before["linux"]["devices"] and len(found["linux"]["devices"]) == 3


EDITS = {
    "env": ["A=1"],
    "deviceNodes": [{"path": "/dev/gpu", "hostPath": "/dev/null"}],
    "netDevices": [{"hostInterfaceName": "lo", "name": "eth0"}],
    "mounts": [{"hostPath": "/usr", "containerPath": "/a/b"}, {"hostPath": "/usr", "containerPath": "/c"}],
    "hooks": [{"hookName": "poststop", "path": "/bin/sh"}],
    "intelRdt": {"closID": "one"},
    "additionalGids": [0, 5],
}
BROKEN = {
    "mounts": [{"hostPath": "/fleet-cdi-none", "containerPath": "/a"}],
    "hooks": [{"hookName": "prestart", "path": "/fleet-cdi-none"}],
    "deviceNodes": [{"path": "/dev/null", "type": "b"}],
}
FULL = {
    "process": {"env": ["A=0"], "user": {"uid": 5, "additionalGids": [7]}},
    "mounts": [{"destination": "/c"}],
    "hooks": {"poststop": [{"path": "/bin/before"}]},
    "linux": {
        "devices": [{"path": "/dev/gpu", "type": "c", "major": 9, "minor": 9}],
        "resources": {"devices": [{"allow": False}]},
        "netDevices": {"eth9": {"name": "eth9"}},
        "intelRdt": {"closID": "before"},
    },
}
SOME = st.dictionaries(st.sampled_from(sorted(EDITS)), st.just(None), min_size=1).map(
    lambda keys: {key: EDITS[key] for key in keys}
)
DOCUMENTS = st.dictionaries(st.sampled_from(sorted(FULL)), st.just(None)).map(
    lambda keys: {key: FULL[key] for key in keys}
)


@given(SOME, SOME, DOCUMENTS)
def test_the_same_request_gives_the_same_document_and_leaves_the_first(first, second, document):
    specs = known((KIND, first, {"x": second}))
    before = json.dumps(document)
    answers = [inject(document, ["vendor.com/gpu=x"], specs) for _again in range(2)]
    assert answers[0] == answers[1] and json.dumps(answers[0]) == json.dumps(answers[1])
    assert json.dumps(document) == before and document not in answers


@given(SOME, DOCUMENTS)
def test_what_is_given_twice_is_there_once_but_for_hooks_and_rules(edits, document):
    """The reference appends a hook and a cgroup rule for every request."""
    once = inject(document, ["vendor.com/gpu=x"], known((KIND, {}, {"x": edits})))
    twice = inject(document, ["vendor.com/gpu=x", "vendor.com/gpu=x"], known((KIND, {}, {"x": edits})))
    counts = []
    for found in (once, twice):
        rules = found.get("linux", {}).get("resources", {}).pop("devices", [])
        counts.append((len(rules), len(found.get("hooks", {}).pop("poststop", []))))
    assert once == twice
    ((rules, hooks), (rules_twice, hooks_twice)) = counts
    assert rules_twice - rules == len(edits.get("deviceNodes", ()))
    assert hooks_twice - hooks == len(edits.get("hooks", ()))


@given(SOME, st.sampled_from(sorted(BROKEN)), DOCUMENTS)
def test_one_edit_that_can_not_be_had_leaves_everything_as_it_was(edits, broken, document):
    """Whatever else would have been applied before it."""
    specs = known((KIND, edits, {"x": edits, "bad": {**edits, broken: BROKEN[broken]}}))
    before = json.dumps(document)
    with pytest.raises(MissingResource):
        inject(document, ["vendor.com/gpu=x", "vendor.com/gpu=bad"], specs)
    assert json.dumps(document) == before


class TestManyEdits:
    """Groups, mounts and device nodes by the thousand: the same as one after the other, in one walk over them."""

    PLACES = st.sampled_from(["/a", "/b", "/c/d", "/e/f/g", "h"])
    GIDS = st.lists(st.integers(0, 5))

    @staticmethod
    def one_by_one(document, edits):
        """Apply each edit to all that is there before the next one, as the reference library does."""
        gids = document["process"]["user"]["additionalGids"]
        for gid in edits["additionalGids"]:
            if gid and gid not in gids:
                gids.append(gid)
        mounts = document["mounts"]
        for edit in edits["mounts"]:
            same = [mount for mount in mounts if mount.get("destination") == edit["containerPath"]]
            mounts = [mount for mount in mounts if not any(mount is one for one in same[:1])]
            mounts.append({"destination": edit["containerPath"], "source": edit["hostPath"]})
        if edits["mounts"]:
            document["mounts"] = sorted(mounts, key=lambda mount: (mount.get("destination") or ".").count("/"))
        devices = document["linux"]["devices"]
        for node in edits["deviceNodes"]:
            same = [index for index, device in enumerate(devices) if device.get("path") == node["path"]]
            if len(same) > 1:
                devices[same[1]] = node
            else:
                devices.append(node)
            if same:
                del devices[same[0]]
        return document

    @given(st.lists(PLACES), st.lists(PLACES), st.lists(PLACES), st.lists(PLACES), GIDS, GIDS)
    def test_the_same_as_one_after_the_other(self, mounts, new_mounts, devices, new_devices, gids, new_gids):
        def document():
            return {
                "process": {"user": {"additionalGids": [7, *gids]}},
                "mounts": [{}, *({"destination": path, "number": one} for one, path in enumerate(mounts))],
                "linux": {"devices": [{}, *({"path": path, "number": one} for one, path in enumerate(devices))]},
            }

        sources = ("/usr", "/etc", "/", "/dev", "/proc")
        edits = {
            "additionalGids": new_gids,
            "mounts": [{"containerPath": path, "hostPath": sources[one % 5]} for one, path in enumerate(new_mounts)],
            "deviceNodes": [
                {"path": path, "type": "c", "major": 1, "minor": one, "fileMode": 0o600}
                for one, path in enumerate(new_devices)
            ],
        }
        found = inject(document(), ["vendor.com/gpu=x"], of(**edits))
        rules = found["linux"].pop("resources", {}).get("devices", [])
        assert found == self.one_by_one(document(), edits)
        assert [rule["minor"] for rule in rules] == list(range(len(new_devices)))

    @pytest.mark.parametrize("present", [0, 1, 2, 100])
    def test_comparisons_grow_with_the_number_of_edits(self, present):
        """20,000 groups were 200 million comparisons, and so were mounts and device nodes: seconds."""
        compared = []

        def counted(of_type):
            def equal(self, other):
                compared.append(self)
                return of_type.__eq__(self, other)

            return type("Counted", (of_type,), {"__eq__": equal, "__hash__": of_type.__hash__})

        text, number = counted(str), counted(int)
        edits = {
            "additionalGids": [number(one) for one in range(1, 201)],
            "mounts": [{"containerPath": text(f"/m/{one}"), "hostPath": "/usr"} for one in range(200)],
            "deviceNodes": [
                {"path": text(f"/dev/{one}"), "type": "c", "major": 1, "minor": 3, "fileMode": 0o600}
                for one in range(200)
            ],
        }
        there = {
            "mounts": [{"destination": text("/m/0")}] * present,
            "linux": {"devices": [{"path": text("/dev/0")}] * present},
        }
        found = inject(there, ["vendor.com/gpu=x"], of(**edits))
        assert len(found["mounts"]) == 199 + max(present, 1)
        assert len(found["linux"]["devices"]) == 199 + max(present - 1, 1)  # one goes, another is replaced
        assert len(compared) < 10 * (200 + present)
