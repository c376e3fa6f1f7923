# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What needs the release, by the manifest and the specs of a host, and a release that stays because of it."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard, host_release, host_release_info
from ansible_collections.fleet.cdi.plugins.module_utils.release.needed_by import Need, needed_by, said

PREFIX = "/opt/cdi"
FILE = {"applied": [None], "kind": "", "by": "device_plugin_config", "prior": None}
KEYS = {"for": "docker", "syntax": "json", "created": False, "keys": [], "first": [], "by": "runtime"}
KIND = {
    "wanted": {"entries": {}, "by": "cdi_host"},
    "directory": "/etc/cdi",
    "inventory": "",
    "offered": {},
    "gone": {},
}

CASES = {
    "nothing": ({}, {}, []),
    "directories of ours": ({"directories": ["/etc/cdi"]}, {}, []),
    "a file": ({"files": {"/etc/x": FILE}}, {}, [Need("/etc/x", "file", "device_plugin_config")]),
    "a kind": ({"kinds": {"a.com/b": KIND}}, {}, [Need("a.com/b", "kind", "cdi_host")]),
    "keys in a file of another tool": ({"edits": {"/etc/d": KEYS}}, {}, [Need("/etc/d", "keys", "runtime")]),
    "a link": (
        {"links": {"/dev/char/1:3": {"target": "../null", "boot_id": "x"}}},
        {},
        [Need("/dev/char/1:3", "link", "")],
    ),
    "what a newer release noted": ({"later": {"a": 1}}, {}, [Need("later", "record", "")]),
    "a spec with the hook": ({}, {"a.json": json.dumps({"path": f"{PREFIX}/bin/cdi-hook"})}, ["a.json"]),
    "written in another way": ({}, {"a.json": '"\\/opt\\/cdi\\/bin\\/cdi-hook"'}, ["a.json"]),
    "in YAML": ({}, {"a.yaml": f"path: {PREFIX}/bin/cdi-hook"}, ["a.yaml"]),
    "another hook": ({}, {"a.json": '{"path": "/usr/bin/nvidia-cdi-hook"}'}, []),
    "a file that is not a spec": ({}, {"a.txt": f"{PREFIX}/bin/cdi-hook"}, []),
}


@pytest.mark.parametrize(("manifest", "specs", "wanted"), CASES.values(), ids=CASES)
def test_what_needs_the_release(tmp_path, manifest, specs, wanted):
    (tmp_path / "state").mkdir()
    (tmp_path / "cdi").mkdir()
    if manifest:
        document = {"version": 1, "files": {}, **manifest}
        (tmp_path / "state/manifest.json").write_text(json.dumps(document))
    for name, text in specs.items():
        (tmp_path / "cdi" / name).write_text(text)
    expected = [one if isinstance(one, Need) else Need(str(tmp_path / "cdi" / one), "hook", "") for one in wanted]
    dirs = [str(tmp_path / "cdi"), str(tmp_path / "gone")]
    assert list(needed_by(str(tmp_path / "state"), dirs, PREFIX)) == expected


def test_a_directory_or_a_link_to_nothing_among_the_specs_is_skipped(tmp_path):
    (tmp_path / "a.json").mkdir()
    (tmp_path / "b.json").symlink_to(tmp_path / "gone")
    assert needed_by(str(tmp_path / "state"), [str(tmp_path)], PREFIX) == ()


def test_a_message_names_some():
    needs = [Need(f"/{number}", "file", "") for number in range(8)]
    assert said(needs[:2]) == "/0, /1"
    assert said(needs) == "/0, /1, /2, /3, /4 and 3 more"


@pytest.mark.usefixtures("bare_host")
class TestRemoval:
    """Of a release that is still needed, or not."""

    @pytest.fixture
    def options(self, target, tmp_path):
        target.install(target.release())
        (tmp_path / "state").mkdir()
        document = {"version": 1, "files": {"/etc/x": FILE}}
        (tmp_path / "state/manifest.json").write_text(json.dumps(document))
        places = {"prefix": target.prefix, "state_dir": str(tmp_path / "state"), "spec_dirs": []}
        return {**places, "state": "absent", "supported_only": False, "on_needed": "keep", "release": None}

    def test_it_stays_with_a_warning(self, target, options):
        for check in (True, False):
            result, (warning,) = host_release.answer(options, check)
            assert not result["changed"] and result["release"] == guard.active(target.prefix)
            assert result["needed_by"] == [{"name": "/etc/x", "reason": "file", "by": "device_plugin_config"}]
            assert warning == (
                f"{target.prefix}: the on-host code is still needed by: /etc/x. It stays. Remove these first, or "
                "run playbook fleet.cdi.remove, which removes everything."
            )

    def test_or_is_refused(self, target, options):
        with pytest.raises(CdiError, match="still needed by: /etc/x.*Nothing was removed"):
            host_release.answer({**options, "on_needed": "fail"}, False)
        assert guard.active(target.prefix)

    def test_or_goes_all_the_same(self, target, options):
        result, warnings = host_release.answer({**options, "on_needed": "drop"}, False)
        assert result["changed"] and result["release"] is None and not warnings and not guard.active(target.prefix)
        assert host_release.answer(options, False)[0]["changed"] is False

    def test_and_the_info_module_says_so(self, target, options):
        info = {**options, "release": guard.active(target.prefix)}
        result, warnings = host_release_info.answer(info, False)
        assert not warnings and result["current"] and result["faults"] == []
        assert result["releases"] == [guard.active(target.prefix)] == [result["release"]] and result["previous"] is None
        assert result["needed_by"][0]["name"] == "/etc/x" and "fleet-cdi" in result["commands"]
        (target.lib / guard.active(target.prefix) / "bin/fleet-cdi").write_text("changed")
        result, _warnings = host_release_info.answer({**info, "release": "9-000000000000"}, False)
        assert not result["current"] and [fault["path"] for fault in result["faults"]]
