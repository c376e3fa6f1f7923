# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stale specs: a table of specs and the reasons that this host gives, on real files and nodes."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.spec.stale import LIVE, stale
from ansible_collections.fleet.cdi.tests.unit import builders

TABLE = yaml.safe_load(Path(__file__).with_name("stale.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The host of the table."""
    root, host = tmp_path_factory.mktemp("host"), TABLE["host"]
    for key, mode in (("files", 0o644), ("executables", 0o755)):
        for name in host[key]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
            (root / name).chmod(mode)
    (root / "dev").mkdir()
    for name, target in host["symlinks"].items():
        (root / name).symlink_to(target)
    for name in host["fifos"]:
        os.mkfifo(root / name)
    for directory, _directories, _files in os.walk(root):
        os.chmod(directory, 0o755)
    return root


def spec(device, whole=None):
    return builders.spec({"x": device}, version="1.1.0", containerEdits=whole or {})


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
@pytest.mark.parametrize("whole", [False, True], ids=["of a device", "of the spec"])
def test_reasons(root, case, whole):
    edits, expected = json.loads(json.dumps([case["edits"], case.get("reasons", [])]).replace("ROOT", str(root)))
    found = stale(spec({"env": ["A=1"]}, edits) if whole else spec(edits))
    above = "/containerEdits" if whole else "/devices/0/containerEdits"
    assert [list(reason) for reason in found] == [
        [rule, above + pointer, found, said] for rule, pointer, found, said in expected
    ]


def test_every_rule_has_a_case():
    """But for the two of devices, below."""
    from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.specs import STALE

    hit = {reason[0] for case in TABLE["cases"] for reason in case.get("reasons", ())}
    assert hit | {"device-gone", "device-new"} == STALE.keys()


def test_devices_that_are_gone_or_new():
    (gone,) = stale(spec({"env": ["A=1"]}), set())
    assert gone == ("device-gone", "/devices/0/name", "no such device", "x")
    (new,) = stale(spec({"env": ["A=1"]}), {"x", "y"})
    assert new == ("device-new", "/devices", "y", "no device of that name")
    assert stale(spec({"env": ["A=1"]}), {"x"}) == () == stale(spec({"env": ["A=1"]}), None)


def test_what_may_not_be_looked_at_is_told_and_ends_nothing():
    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    edits = {"deviceNodes": [{"path": "/dev/null"}], "mounts": [{"hostPath": "/a.so.1", "containerPath": "/a"}]}
    found = stale(spec(edits), host=LIVE._replace(lstat=refuse, stat=refuse, listdir=refuse))
    assert [(reason.rule, reason.found) for reason in found] == [
        ("node-missing", "something that can't be looked at (Permission denied)"),
        ("library-missing", "something that can't be looked at (Permission denied)"),
    ]


def test_a_directory_is_read_once_however_much_is_missing_there(root):
    """Quadratic it would be otherwise: a generator's directory has tens of thousands of files."""
    calls = Counter()

    def counted(name):
        def call(path):
            calls[name] += 1
            return getattr(os, name)(path)

        return call

    (root / "many").mkdir()
    for number in range(100):
        (root / f"many/{number:03}.so.2").symlink_to("nothing")
        (root / f"many/x.so.{number}").symlink_to("nothing")
    mounts = [f"many/{number:03}.so.{version}" for number in range(100) for version in (0, 1)]
    mounts += [f"many/x.so.1.{number}" for number in range(100)]
    edits = {"mounts": [{"hostPath": f"{root}/{path}", "containerPath": "/x"} for path in mounts]}
    found = stale(spec(edits), host=LIVE._replace(**{name: counted(name) for name in LIVE._fields}))
    assert {reason.rule for reason in found} == {"library-missing"} and len(found) == len(mounts)
    assert calls["listdir"] == 1
    assert calls["lstat"] <= 200  # one for each name there


def test_a_path_that_no_driver_has_costs_no_more_than_another():
    """A file of another tool may have one of megabytes: all of these calls end, and look at what is there alone."""
    looked = []

    def stat(path):
        looked.append(path)
        return os.stat(path)

    host = LIVE._replace(stat=stat, listdir=lambda _path: [])
    for path in ("/nowhere/" + "1" * 200_000, "/nowhere-1.2" + "/a" * 100_000, "/nowhere/x.so.1\0"):
        looked.clear()
        edits = {"mounts": [{"hostPath": path, "containerPath": "/x"}]}
        assert [one.rule for one in stale(spec(edits), host=host)] == ["mount-missing"]
        assert len(looked) <= 3


def test_a_reason_reads_as_a_sentence():
    (reason,) = stale(spec({"deviceNodes": [{"path": "/dev/null", "major": 510, "minor": 3}]}))
    assert str(reason) == (
        "/devices/0/containerEdits/deviceNodes/0/major: the spec says 510, the host has 1 [node-number]"
    )


def test_looking_changes_nothing(root):
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    for case in TABLE["cases"]:
        stale(spec(json.loads(json.dumps(case["edits"]).replace("ROOT", str(root)))))
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before


def test_of_other_versions_the_last_by_name_is_told(tmp_path):
    for version in ("550.1", "560.2", "555.3"):
        (tmp_path / f"libcuda.so.{version}").write_text("")
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.560.2")
    mounts = [{"hostPath": f"{tmp_path}/libcuda.so.535.4", "containerPath": "/a"}]
    (reason,) = stale({"devices": [], "containerEdits": {"mounts": mounts}})
    assert (reason.rule, reason.found) == ("driver-version", f"{tmp_path}/libcuda.so.560.2")
