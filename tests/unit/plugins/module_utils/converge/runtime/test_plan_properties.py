# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Enable, somebody else's edit, absent: what is left is their edit alone, byte for byte, for thousands of files."""

from __future__ import annotations

import json
import random

import configurations
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime.plan import plan_runtime
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import Manifest
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import podman
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit.key_edits import same
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import (
    InstalledRuntime,
    Source,
    WantedCdi,
    satisfied,
)
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import CONFIGURATIONS

tomllib = pytest.importorskip("tomllib")  # new in Python 3.11

EXAMPLES = 700  # of each of the four runtimes
CONFIG = {
    "docker": "/none/daemon.json",
    "containerd": "/none/config.toml",
    "cri-o": "/none/crio.conf",
    "podman": "/none/containers.conf",
}


def place_of(name, numbers):
    version = ".".join(map(str, numbers))
    return InstalledRuntime(
        name, "system", version, numbers, "1.0.0", f"/usr/bin/{name}", CONFIG[name], ("some.service",)
    )


def docker(pick):
    made = configurations.daemon_json(pick)
    wanted = WantedCdi(pick.random() < 0.8, pick.choice([None, None, ("/etc/cdi",), ("/opt/cdi", "/run/cdi")]))
    if not wanted.enabled:
        wanted = WantedCdi(False)
    return place_of("docker", pick.choice([(25, 0, 0), (26, 1, 5), (28, 2, 0), (29, 0, 1)])), made, wanted


def containerd(pick):
    numbers = pick.choice([(1, 7, 24), (1, 7, 24), (2, 1, 9), (2, 3, 0)])
    newest = 2 if numbers < (2, 0, 0) else 3 if numbers < (2, 3, 0) else 4
    version = pick.choice([number for number in (0, 1, 2, 3, 4) if number <= newest])
    keys = {}
    if pick.random() < 0.5:
        keys["enable_cdi"] = pick.choice(["true", "false"])
    if pick.random() < 0.4:
        keys["cdi_spec_dirs"] = pick.choice(['["/etc/cdi", "/var/run/cdi"]', "[ '/opt/cdi' , '/run/cdi' ]", "[]"])
    imports = ['imports = ["/none/conf.d/*.toml"]'] if pick.random() < 0.3 else []
    table = ("plugins", configurations.PLUGINS[version or 1])
    made = configurations.toml(pick, version, table, keys, imports)
    wanted = WantedCdi(pick.random() < 0.7, pick.choice([None, None, ("/etc/cdi",), ("/opt/cdi", "/run/cdi")]))
    return place_of("containerd", numbers), made, wanted if wanted.enabled else WantedCdi(False)


def list_of_directories(name, numbers, table):
    def make(pick):
        keys = {"cdi_spec_dirs": '["/opt/cdi"]'} if pick.random() < 0.5 else {}
        wanted = WantedCdi(True, pick.choice([None, ("/etc/cdi",), ("/opt/cdi",)]))
        return place_of(name, numbers), configurations.toml(pick, 0, table, keys, []), wanted

    return make


MAKERS = {
    "docker": docker,
    "containerd": containerd,
    "cri-o": list_of_directories("cri-o", (1, 33, 0), ("crio", "runtime")),
    "podman": list_of_directories("podman", (5, 8, 0), ("engine",)),
}


class Host:
    """Files in memory and a manifest that is never written."""

    def __init__(self, place, content):
        self.place, self.manifest = place, Manifest("/none/state", {})
        self.files = {place.config: content, podman.VENDOR: None}

    def run(self, wanted):
        made = plan_runtime(self.place, wanted, self.manifest, Source(self.files))
        for change in made.changes:
            self.files[change.path] = change.after
            self.manifest.edits.pop(change.path, None)
            if change.record is not None:
                self.manifest.edits[change.path] = change.record
        return made

    @property
    def reading(self):
        return CONFIGURATIONS[self.place.name].read(self.place, Source(self.files))


def values(place, content):
    """What the runtime's own language makes of it."""
    if content is None:
        return {}
    if place.name == "docker":
        return json.loads(content.decode("utf-8-sig") or "{}") if content.decode("utf-8-sig").strip() else {}
    return tomllib.loads(content.decode())


def without_cdi(value):
    """Without our keys, and without tables that hold nothing but them."""
    if not isinstance(value, dict):
        return value
    ours = {"enable_cdi", "cdi_spec_dirs", "cdi-spec-dirs"}
    left = {key: without_cdi(item) for key, item in value.items() if key not in ours}
    if isinstance(left.get("features"), dict):
        left["features"] = {key: item for key, item in left["features"].items() if key != "cdi"}
    return {key: item for key, item in left.items() if item != {}}


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_enable_their_edit_and_absent_is_their_edit_alone(name, seed):
    place, made, wanted = MAKERS[name](random.Random(seed))
    original = made.text.encode()
    host = Host(place, original)
    before = host.reading
    done = host.run(wanted)
    if satisfied(before, wanted):
        assert not done.changes, "there was nothing to do"
    assert satisfied(host.reading, wanted)
    for path, content in host.files.items():
        old = original if path == place.config else None
        new = values(place, content)
        if old is None:
            new.pop("version", None)  # what a file of ours needs
        assert same(without_cdi(values(place, old)), without_cdi(new))
    assert not host.run(wanted).changes, "once is enough"

    enabled = host.files[place.config].decode()
    host.files[place.config] = made.edit(enabled).encode()
    host.run(None)
    assert host.files[place.config] == made.edit(made.text).encode(), made.what
    assert not [path for path, content in host.files.items() if content is not None and path != place.config]
    assert host.manifest.edits == {}


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_what_others_gave_another_value_is_theirs(name, seed):
    place, made, wanted = MAKERS[name](random.Random(seed))
    host = Host(place, made.text.encode())
    host.run(wanted)
    theirs = {}
    for path, record in host.manifest.edits.items():
        text = host.files[path].decode()
        for key in record["keys"]:
            literal = json.dumps(key["value"])
            other = '["/their/own"]' if literal.startswith("[") else "false" if literal == "true" else "true"
            assume(text.count(literal) == 1)
            text = text.replace(literal, other)
        theirs[path] = host.files[path] = text.encode()
    warnings = host.run(None).warnings
    assert {path: host.files[path] for path in theirs} == theirs
    assert bool(warnings) == bool(theirs)
