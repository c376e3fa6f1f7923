# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What releases of the reference library take a file for, and of which files that can't be told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen import releases, seen
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen.linked import ANY, by_release
from ansible_collections.fleet.cdi.tests.unit.limits import settle

TABLE = yaml.safe_load(Path(__file__).with_name("seen.yml").read_text(encoding="utf-8"))


def as_file(case):
    if "json" in case:
        return "a.json", json.dumps({**TABLE["defaults"], **case["json"]}).encode()
    return ("a.json", case["text"].encode()) if "text" in case else ("a.yaml", case["yaml"].encode())


def names_of(text):
    """`from 0.5.4` as the releases from there on."""
    if not isinstance(text, str):
        return set(text)
    names = list(releases.BY_NAME)
    return set(names[names.index(text.removeprefix("from ")) :])


@pytest.mark.parametrize("case", TABLE["cases"].values(), ids=list(TABLE["cases"]))
def test_case(case):
    name, content = as_file(case)
    for reading in (None, codec.read(content, name)):
        sight = seen.read_sight(content, name, reading)
        assert sight.crashes == set(case.get("crashes", ()))
        assert case["unclear"] in sight.unclear.why if "unclear" in case else sight.unclear is None
        found = {" ".join(device["name"] for device in one.spec["devices"]): one.by for one in sight.taken}
        assert found == {names: names_of(who) for names, who in case.get("seen", {}).items()}


@pytest.mark.parametrize(
    ("text", "may"),
    [
        (b'kind: !x "a.com/gpu"', True),
        (b'kind: "a.\\x63om/g\\u0070u"', True),
        (b'kind: "a.com\\/gpu"', True),
        (b'kind: "a.com/\\\n  gpu"', True),
        (b"kind: !!binary YS5jb20vZ3B1", True),
        (b"kind: !!str a.com/nic", False),
        (b'kind: !!str "a.com/gp\\x75"', True),
        (b'kind: "a.com\\_gpu"', False),
        (b"a: !!str b\rkind: !!binary YS5jb20vZ3B1", True),
        (b"kind: a.com/gpus", True),  # it may be a key of something else, and to be asked for costs little
        (b"kind: a.com/nic: b", False),
        (b"{", False),
        (b'kind: "a.com\\\n  /gpu"', True),
        (b'kind: "a.com\\\r\n  /gpu"', True),
        (b'kind: "a.com\\\r /gpu"', True),
        (b'kind: "a.com\\\xc2\x85/gpu"', True),
        (b'kind: "a.com\\\xe2\x80\xa8/gpu"', True),
    ],
)
def test_a_file_that_is_unclear_may_define_only_kinds_that_are_in_it(text, may):
    content = b"cdiVersion: 0.3.0\n" + text
    assert unclear(content).may_define("a.com/gpu") is may
    assert unclear(content.decode().encode("utf-16")).may_define("a.com/gpu") is may
    assert unclear(text).may_define("a.com/gpu") is (b"binary" in text)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("kind: a/gpu", True),
        ("kind: a.com/g", True),
        ('kind: "a.com\\/g"', True),
        ('"mounts": [null]', True),
        ("mounts: [~]", True),
        ("mounts:\n-\n", True),
        ("mounts:\n- &x # nothing", True),
        ("mounts:\n- &x !!map \n", True),
        ("mounts:\r\n-\r\n", True),
        ("mounts:\r-\r", True),
        ("mounts:\u2028-\u2028", True),
        (f"mounts:\n- {40000 * '&'} b", False),  # in a time that grows with the length, and no faster
        (f"mounts:\n- {40000 * '&x '} b", False),
        (f"mounts:\n- {40000 * '- '} b", False),
        ("kind: a.com/gpu\nmounts:\n- hostPath: /a/b\n  containerPath: /dev/c", False),
    ],
)
def test_a_file_that_is_unclear_may_crash_only_for_what_is_in_it(text, may):
    assert unclear(f"cdiVersion: 0.3.0\n{text}".encode()).may_crash(["0.5.0", "1.1.1"]) is may
    assert unclear(f"cdiVersion: 0.3.0\n{text}".encode()).may_crash(["0.4.0", "1.1.1"])  # of a name of one letter


def unclear(content):
    return seen.Unclear("", seen._text(content))


class TestRegistry:
    """Two files of one directory that no release reads both are no conflict, for whatever runtime."""

    def put(self, directory, name, **more):
        (directory / name).write_text(json.dumps({**TABLE["defaults"], **more}))

    def test_a_conflict_is_one_for_the_releases_that_read_both(self, tmp_path):
        self.put(tmp_path, "a.json")
        self.put(tmp_path, "b.json", cdiVersion="1.2.0")
        found = registry.load([str(tmp_path)])
        assert found.devices == {"a.com/gpu=a0": f"{tmp_path}/a.json"} and not found.conflicts
        assert "1.2.0" in found.errors[f"{tmp_path}/b.json"]
        assert [sorted(file.seen_by)[-1] for file in found.specs] == ["newer", "newer"]
        found = registry.load([str(tmp_path)], ANY)
        assert found.devices == {} and list(found.conflicts) == ["a.com/gpu=a0"]

    def test_what_only_some_release_reads_counts_for_that_one(self, tmp_path):
        self.put(
            tmp_path, "a.json", containerEdits={"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "c"}]}
        )
        path = f"{tmp_path}/a.json"
        found = registry.load([str(tmp_path)], by_release(["0.5.1"]))
        assert found.devices == {"a.com/gpu=a0": path}
        (file,) = found.specs
        assert (file.qualified_names, file.seen_by) == (["a.com/gpu=a0"], {"0.4.0", "0.5.0", "0.5.1"})
        assert registry.load([str(tmp_path)], by_release(["0.5.4"])).devices == {}
        assert "minimum-version" in registry.load([str(tmp_path)]).errors[path]

    def test_a_file_that_can_not_be_told_is_named_and_the_others_resolve(self, tmp_path):
        self.put(tmp_path, "a.json")
        (tmp_path / "b.yaml").write_text("kind: !x a.com/gpu\n")
        self.put(tmp_path, "c.json", kind="b.com/x", cdiVersion="1.1.0", containerEdits={"hooks": [None]})
        settle()
        found = registry.load([str(tmp_path)])
        assert list(found.devices) == ["a.com/gpu=a0"]
        assert "the tag" in found.unclear[f"{tmp_path}/b.yaml"].why
        assert "1.1.0" in found.crashes[f"{tmp_path}/c.json"]
        assert not registry.changed(found)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("a.yaml", "annotations: {1: x}\ncontainerEdits: null\n"),
            ("a.json", '"annotations": {"' + 300 * "k" + '": "x"}, "containerEdits": null'),
        ],
    )
    def test_a_valid_file_is_never_unclear(self, tmp_path, name, text):
        """Else nobody would name it: it has no fault, and is in no list."""
        fields = {"cdiVersion": "0.6.0", "kind": "a.com/gpu", "devices": TABLE["defaults"]["devices"]}
        whole = yaml.safe_dump(fields) + text if name == "a.yaml" else json.dumps(fields)[:-1] + f", {text}}}"
        (tmp_path / name).write_text(whole)
        reading = codec.read(whole.encode(), name)
        assert reading.spec is not None and "null" in {one.rule for one in reading.findings}
        found = registry.load([str(tmp_path)])
        assert list(found.devices) == ["a.com/gpu=a0"] and not found.unclear
        assert found.specs[0].seen_by == names_of("from 0.6.0")

    def test_directories_that_some_releases_do_not_read(self, tmp_path):
        for name in ("real", "run"):
            (tmp_path / name).mkdir()
            self.put(tmp_path / name, "a.json", kind=f"{name}.com/gpu")
        (tmp_path / "etc").symlink_to("real")
        (tmp_path / "file").write_text("")
        etc, run = f"{tmp_path}/etc", f"{tmp_path}/run"
        for directories, name, kinds in (
            ([etc, run], "1.1.0", {"run"}),
            ([etc, run], "1.1.1", {"real", "run"}),
            ([f"{tmp_path}/none", run], "0.5.0", set()),
            ([f"{tmp_path}/none", run], "0.5.1", {"run"}),
            ([f"{tmp_path}/file", run], "1.1.0", {"run"}),
            ([f"{tmp_path}/file", run], "1.1.1", set()),
        ):
            found = registry.load(directories, by_release([name])).devices
            assert {qualified.partition(".com")[0] for qualified in found} == kinds, (directories, name)
