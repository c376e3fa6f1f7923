# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spec of a claim: which CDI devices the granted nodes are, and their edits as one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.claims.claim_spec import (
    checked_spec,
    claim_spec,
    granted_names,
    nodes_spec,
)
from ansible_collections.fleet.cdi.plugins.module_utils.claims.device_name import device_name, spec_file
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Node
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, inject, registry


def nodes(*paths):
    return [{"path": path} for path in paths]


GPUS = {
    "cdiVersion": "0.5.0",
    "kind": "vendor.com/gpu",
    "containerEdits": {
        "env": ["DRIVER=1"],
        "deviceNodes": nodes("/dev/ctl"),
        "mounts": [{"hostPath": "/usr/lib/libgpu.so", "containerPath": "/usr/lib/libgpu.so", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/hook", "env": ["PATH=/usr/bin"]}],
    },
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": nodes("/dev/gpu0"), "env": ["GPU=0", "DRIVER=2"]}},
        {"name": "1", "containerEdits": {"deviceNodes": nodes("/dev/gpu1"), "env": ["GPU=1"]}},
        {"name": "0:1", "containerEdits": {"deviceNodes": nodes("/dev/gpu0", "/dev/cap1")}},
        {"name": "0:2", "containerEdits": {"deviceNodes": nodes("/dev/gpu0", "/dev/cap2")}},
        {"name": "uuid-0", "containerEdits": {"deviceNodes": nodes("/dev/gpu0"), "env": ["GPU=0"]}},
        {"name": "all", "containerEdits": {"deviceNodes": nodes("/dev/gpu0", "/dev/gpu1")}},
    ],
}
OURS = {
    "cdiVersion": "0.3.0",
    "kind": "fleet.cdi/gpu",
    "devices": [{"name": "x", "containerEdits": {"deviceNodes": nodes("/dev/gpu1"), "env": ["OURS=1"]}}],
}
OTHER_CLAIM = {
    "cdiVersion": "0.3.0",
    "kind": "fleet.cdi/claim",
    "devices": [{"name": "a", "containerEdits": {"deviceNodes": nodes("/dev/gpu0")}}],
}

# granted nodes -> the CDI devices that they are
NAMES = {
    ("/dev/gpu0", "/dev/ctl"): ("vendor.com/gpu=0",),
    ("/dev/gpu0", "/dev/gpu1"): ("fleet.cdi/gpu=x", "vendor.com/gpu=0"),
    ("/dev/gpu0", "/dev/cap1", "/dev/ctl"): ("vendor.com/gpu=0:1",),
    ("/dev/gpu0", "/dev/cap1", "/dev/cap2"): ("vendor.com/gpu=0:1", "vendor.com/gpu=0:2"),
    ("/dev/cap1",): (),
    ("/dev/tty13",): (),
    (): (),
}


@pytest.fixture
def specs(tmp_path):
    """The specs of this file, with one of ours."""
    for name, document in (("gpu.json", GPUS), ("ours.json", OURS), (spec_file("a"), OTHER_CLAIM)):
        (tmp_path / name).write_text(json.dumps(document))
    return registry.load([str(tmp_path)]), {str(tmp_path / "ours.json")}


@pytest.mark.parametrize("granted", NAMES, ids=" ".join)
def test_names_of_granted_nodes(specs, granted):
    assert granted_names(granted, *specs) == NAMES[granted]


def document(content):
    return codec.decode(content, "claim.json")


def test_a_name_of_one_letter_is_kept_from_libraries_that_crash_at_it(specs):
    given = (Node("/dev/tty13", "c", 4, 13),)
    versions = [document(claim_spec(id_, given, (), specs[0]))["cdiVersion"] for id_ in ("a", "ab")]
    assert versions == ["0.5.0", "0.3.0"]


def test_two_devices_with_one_path_in_a_container_are_refused(tmp_path):
    """A runtime would give the last one alone."""
    renamed = {"deviceNodes": [{"path": "/dev/b", "hostPath": "/dev/a"}]}
    spec = {"cdiVersion": "0.5.0", "kind": "v.com/x", "devices": [{"name": "a", "containerEdits": renamed}]}
    (tmp_path / "x.json").write_text(json.dumps(spec))
    given = (Node("/dev/a", "c", 1, 1), Node("/dev/b", "c", 1, 2))
    known = registry.load([str(tmp_path)])
    with pytest.raises(CdiError, match="/dev/a and /dev/b have the same path in a container, /dev/b"):
        claim_spec("one", given, ("v.com/x=a",), known)
    assert claim_spec("one", given[:1], ("v.com/x=a",), known)


def test_edits_of_all_devices_and_the_other_nodes(specs):
    given = (Node("/dev/gpu0", "c", 226, 0), Node("/dev/ctl", "c", 10, 5), Node("/dev/tty13", "c", 4, 13))
    spec = document(claim_spec("job-42", given, ("vendor.com/gpu=0",), specs[0]))
    assert (spec["cdiVersion"], spec["kind"]) == ("0.3.0", "fleet.cdi/claim")
    (device,) = spec["devices"]
    assert device["name"] == "job-42"
    edits = device["containerEdits"]
    assert edits["env"] == ["DRIVER=2", "GPU=0"]
    assert [(one["path"], one["type"], one["major"], one["minor"]) for one in edits["deviceNodes"]] == [
        ("/dev/ctl", "c", 10, 5),
        ("/dev/gpu0", "c", 226, 0),
        ("/dev/tty13", "c", 4, 13),
    ]
    assert edits["mounts"] == GPUS["containerEdits"]["mounts"]
    assert edits["hooks"] == GPUS["containerEdits"]["hooks"]


def test_a_container_gets_the_same_as_by_the_devices_names(specs, tmp_path):
    names = ("vendor.com/gpu=0", "vendor.com/gpu=1")
    paths = ("/dev/ctl", "/dev/gpu0", "/dev/gpu1")
    given = [Node(path, "c", 1, 3) for path in paths]
    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / spec_file("b")).write_bytes(claim_spec("b", given, names, specs[0]))
    both = registry.load([str(tmp_path), str(tmp_path / "claim")])
    found = [edits for _path, edits in inject.resolve_edits(["fleet.cdi/claim=b"], both)]
    wanted = inject.resolve_edits(names, specs[0])
    env = dict(item.split("=") for _path, edits in wanted for item in edits.get("env", ()))
    assert dict(item.split("=") for item in found[-1]["env"]) == env
    assert [one["path"] for one in found[-1]["deviceNodes"]] == [*paths]


def test_the_lowest_version(specs):
    spec = document(claim_spec("42", (Node("/dev/tty13", "c", 4, 13),), (), specs[0]))
    assert spec["cdiVersion"] == "0.5.0"  # its name starts with a digit


@pytest.mark.parametrize("rdt", [{"closID": "/"}, {"closID": "a", "enableMonitoring": False}])
def test_what_needs_the_newest_version_and_the_library_does_not_count(tmp_path, rdt):
    """The root class of resctrl, and an empty field that older libraries refuse."""
    edits = {"deviceNodes": nodes("/dev/gpu0"), "intelRdt": rdt}
    spec = {"cdiVersion": "1.1.0", "kind": "vendor.com/gpu", "devices": [{"name": "0", "containerEdits": edits}]}
    (tmp_path / "gpu.json").write_text(json.dumps(spec))
    given = [Node("/dev/gpu0", "c", 1, 3)]
    found = document(claim_spec("job", given, ("vendor.com/gpu=0",), registry.load([str(tmp_path)])))
    assert (found["cdiVersion"], found["devices"][0]["containerEdits"]["intelRdt"]) == ("1.1.0", rdt)


def test_nothing_to_give_and_unknown_devices_are_refused(specs):
    with pytest.raises(CdiError, match="its spec would not be valid"):
        claim_spec("empty", (), (), specs[0])
    with pytest.raises(CdiError, match="no spec defines this device"):
        claim_spec("gone", (), ("vendor.com/gpu=9",), specs[0])


def test_file_name_of_the_reference_library():
    assert spec_file("job-42") == "fleet.cdi-claim_job-42.json"


PATHS = st.lists(st.text("abz09_-./é\x7f", min_size=1, max_size=9).map("/dev/{}".format), min_size=1, unique=True)
HOOK = {"hookName": "createRuntime", "path": "/bin/hook", "args": ["hook", "use-claim"], "env": ["PATH=/bin"]}


@given(st.text("aZ09-.:@é", min_size=1, max_size=5), PATHS, st.booleans())
def test_the_short_way_for_granted_nodes_alone_is_the_long_way(id_, paths, hooked):
    listed = [{"path": path, "type": "c", "major": 4, "minor": index} for index, path in enumerate(paths)]
    edits = {"deviceNodes": listed, **({"hooks": [HOOK]} if hooked else {})}
    spec = {"cdiVersion": "0.3.0", "kind": "fleet.cdi/claim"}
    spec["devices"] = [{"name": device_name(id_), "containerEdits": edits}]
    plain = "".join(paths).isascii() and "\x7f" not in "".join(paths)
    assert nodes_spec(spec) == (checked_spec(spec) if plain else b"")
    assert claim_spec(id_, [Node(*one.values()) for one in listed], (), None, [HOOK] if hooked else []) == checked_spec(
        spec
    )
