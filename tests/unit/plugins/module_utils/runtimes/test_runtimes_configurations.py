# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runtimes make of configurations, and the least edit of each: the table in configurations.yml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import plan
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import Manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import podman, table
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import InstalledRuntime, Source, WantedCdi
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import CONFIGURATIONS

CASES = yaml.safe_load(Path(__file__).with_name("configurations.yml").read_text(encoding="utf-8"))
# A file that is {digits: text} or {parts: text} has something long in the place of "@".
LONG = {"digits": "9" * 5000, "parts": ".".join(["a"] * 3000)}
CONFIG = {
    "docker": "daemon.json",
    "containerd": "config.toml",
    "cri-o": "crio.conf",
    "podman": "containers.conf",
}


def _content(text):
    if isinstance(text, dict):
        [(sort, pattern)] = text.items()
        text = pattern.replace("@", LONG[sort])
    return text if isinstance(text, bytes) else text.encode()


class Host:
    """The files of a case on disk, below `root`."""

    def __init__(self, root, case):
        self.root = root
        for path, text in case.get("files", {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(_content(text))
        name, version = case["runtime"], case["version"]
        numbers = table.numbers(version)
        installation = case.get("installation", "system")
        self.place = InstalledRuntime(
            name,
            installation,
            version,
            numbers,
            table.reads(name, numbers),
            f"/usr/bin/{name}",
            str(root / CONFIG[name]),
            ("some.service",),
            generated=installation == "k3s",
            arguments=tuple(case.get("arguments", ())),
        )
        self.manifest = Manifest("/none/state", {})

    @property
    def source(self):
        return Source({podman.VENDOR: None})

    @property
    def content(self):
        found = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes().decode() for path in found}

    def run(self, wanted):
        made = plan.plan_runtime(self.place, wanted, self.manifest, self.source)
        for change in made.changes:
            path = Path(change.path)
            if change.after is None:
                path.unlink()
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(change.after)
            self.manifest.edits.pop(change.path, None)
            if change.record is not None:
                self.manifest.edits[change.path] = change.record
        return made


def relative(value, root):
    """Paths without the case's directory."""
    if isinstance(value, tuple):
        return [relative(item, root) for item in value]
    return value.replace(f"{root}/", "") if isinstance(value, str) and value.startswith(f"{root}/") else value


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case, tmp_path):
    host = Host(tmp_path, case)
    before = host.content if case.get("error") != "is not valid UTF-8" else {}
    read = CONFIGURATIONS[case["runtime"]].read
    if "error" in case:
        for attempt in (
            lambda: read(host.place, host.source),
            lambda: host.run(WantedCdi(True)),
            lambda: host.run(None),
        ):
            with pytest.raises(CdiError) as raised:
                attempt()
            assert case["error"].replace("{}", str(tmp_path)) in str(raised.value)
            assert "\n" not in str(raised.value)
        return
    reading = read(host.place, host.source)
    for field, wanted in case.get("reading", {}).items():
        expected = [text.replace("{}/", "") for text in wanted] if isinstance(wanted, list) else wanted
        assert relative(getattr(reading, field), tmp_path) == expected, field
    if "wanted" not in case:
        return
    wanted = WantedCdi(case["wanted"]["enabled"], tuple(case["wanted"].get("spec_dirs", ())) or None)
    if "refused" in case:
        with pytest.raises(CdiError, match=".") as raised:
            host.run(wanted)
        assert case["refused"] in str(raised.value)
        assert host.content == before
        return
    host.run(wanted)
    assert host.content == {**before, **case["becomes"]}
    assert not host.run(wanted).changes
    host.run(None)
    assert host.content == before
