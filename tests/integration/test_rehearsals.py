# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What day 2 brings: two controllers with two releases at once, an upgrade while devices are granted, a spec directory
without room, and a refresh while containers start.

The host is this machine, in directories of its own. Controllers run module cdi_host as its action plugin does.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, contents, host

MODULE_UTILS = Path(records.__file__).parent
FROM_ARCHIVE = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from ansible_collections.fleet.cdi.plugins.module_utils.cli.call import main; sys.exit(main(sys.argv[2]))"
)
NODES = ["/dev/full", "/dev/kmsg", "/dev/null"]  # podman gives each container all but kmsg
KIND = "rehearsal.example/mem"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes a release of root: needs root")


class RehearsedHost:
    """The host, and the releases that controllers have."""

    def __init__(self, top):
        self.top, self.spec = top, top / "cdi/rehearsal.example-mem.json"
        here = host.distribution()
        self.settings = {
            "spec_dir": str(top / "cdi"),
            "state_dir": str(top / "state"),
            "device_list": str(top / "run/inventory.json"),
            "prefix": str(top / "opt"),
            "python": "/usr/bin/python3",
            "command_link": False,
            "install_packages": False,
            "refresh": False,
            "distributions": {here["id"]: [here["version_id"]]},
        }
        first = build.build(str(MODULE_UTILS))
        layout = next(name for name in first.sources if name.endswith("/module_utils/layout.py"))
        sources = {**first.sources, layout: first.sources[layout] + b"# Another release.\n"}
        second = build.Release(contents.identify(sources), sources)
        self.releases = [self._pack("first", first), self._pack("second", second)]

    def _pack(self, name, release):
        archive = self.top / f"{name}.zip"
        archive.write_bytes(build.pack(release))
        return release.id, archive

    def move_specs(self, directory):
        """Have the specs elsewhere."""
        self.settings["spec_dir"] = directory
        self.spec = Path(directory, self.spec.name)

    def entry(self, *nodes):
        match = {"subsystem": "mem", "node": list(nodes)}
        return {"profile": "rule", "kind": KIND, "match": match, "group_by": "none", "name_by": ["sysname"]}

    def provision(self, controller, nodes=tuple(NODES), **more):
        """One run of a controller; return its result, or its error as {"error": ...}."""
        release, archive = self.releases[controller]
        settings = {**self.settings, "devices": {"mem": self.entry(*nodes)}, **more}
        options = {"settings": settings, "state": "present", "parts": None, "prefix": settings["prefix"]}
        options |= {"state_dir": None, "release": release, "archive": None}
        while True:
            launcher = self.top / f"opt/lib/{release}/bin/fleet-cdi"
            command = [str(launcher), "call", "cdi_host"]
            if options["archive"] or not launcher.exists():
                options["archive"] = str(archive)
                command = ["/usr/bin/python3", "-I", "-c", FROM_ARCHIVE, str(archive), "cdi_host"]
            request = json.dumps({"options": options, "check": False})
            done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
            assert done.stdout, done.stderr
            answer = json.loads(done.stdout)
            result = answer.get("result", {"error": answer.get("error", "")})
            if not result.pop("again", False):
                return result
            options["archive"] = None

    def command(self, *words, stdin=""):
        command = [str(self.top / "opt/bin/fleet-cdi"), "--state-dir", self.settings["state_dir"]]
        command += ["--inventory", self.settings["device_list"], "--spec-dir", self.settings["spec_dir"], *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def names(self):
        return [one["name"] for one in json.loads(self.spec.read_text())["devices"]]


@pytest.fixture
def rehearsed(tmp_path):
    found = RehearsedHost(tmp_path)
    yield found
    found.command("undo", "--force")


def test_two_controllers_with_two_releases_at_once(rehearsed):
    """The last one is right. No run ends with half a release, and the next run of either changes nothing more."""
    results = [[], []]

    def runs(controller):
        for _time in range(4):
            results[controller].append(rehearsed.provision(controller))

    threads = [threading.Thread(target=runs, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in (*results[0], *results[1]):
        # A run that finds the other release active refuses, names it, and has changed nothing.
        assert "error" not in result, result
        assert not result.get("failed") or "release" in result["msg"], result
    for controller in (0, 1):
        last = rehearsed.provision(controller)
        assert not last.get("failed"), last
        assert os.readlink(rehearsed.top / "opt/lib/current") == rehearsed.releases[controller][0]
        assert not rehearsed.provision(controller)["changed"]
    assert rehearsed.names() == ["full", "kmsg", "null"]
    assert not [path for path in (rehearsed.top / "opt/lib").iterdir() if path.name.startswith(".partial")]


def test_an_upgrade_keeps_what_is_granted(rehearsed):
    """The new release knows the grant of the old one, offers the device no second time, and takes it back."""
    plugins = {"gpu/rule": {"plugin": "rule", "args": {"match": {"subsystem": "mem", "node": NODES}}}}
    first = rehearsed.provision(0, plugins=plugins)
    assert not first.get("failed"), first
    added = rehearsed.command("claim", "add", "job", "gpu:2")
    assert added.returncode == 0, added.stderr
    before = json.loads(rehearsed.command("grants", "list", "--json").stdout)["grants"]
    assert len(before) == 1

    second = rehearsed.provision(1, plugins=plugins)
    assert not second.get("failed"), second
    assert os.readlink(rehearsed.top / "opt/lib/current") == rehearsed.releases[1][0]
    assert json.loads(rehearsed.command("grants", "list", "--json").stdout)["grants"] == before
    assert rehearsed.command("claim", "add", "more", "gpu:2").returncode == 2  # one is left
    assert rehearsed.command("claim", "add", "last", "gpu:1").returncode == 0
    for name in ("job", "last"):
        assert rehearsed.command("claim", "del", name).returncode == 0
    assert json.loads(rehearsed.command("grants", "list", "--json").stdout)["grants"] == []
    assert not [path for path in glob.glob("/var/run/cdi/*") if "job" in path]


def test_a_spec_directory_without_room(rehearsed):
    """The old spec stays whole, the reason is told, and the next run with room writes the new one."""
    (rehearsed.top / "cdi").mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "rehearsal", str(rehearsed.top / "cdi")], check=True
    )
    try:
        assert not rehearsed.provision(0, NODES[:1]).get("failed")
        before = rehearsed.spec.read_bytes()
        filler = rehearsed.top / "cdi/filler"
        with pytest.raises(OSError, match="No space left"), open(filler, "wb", 0) as file:
            while True:
                file.write(bytes(4096))
        full = rehearsed.provision(0)
        assert full["failed"] and "No space left on device" in full["msg"] and str(rehearsed.spec) in full["msg"], full
        assert rehearsed.spec.read_bytes() == before
        assert sorted(path.name for path in (rehearsed.top / "cdi").iterdir()) == ["filler", rehearsed.spec.name]
        refreshed = rehearsed.command("refresh")
        assert refreshed.returncode == 2 and "No space left on device" in refreshed.stderr
        assert rehearsed.spec.read_bytes() == before
        filler.unlink()
        written = rehearsed.provision(0)
        assert written["changed"] and not written.get("failed") and rehearsed.names() == ["full", "kmsg", "null"]
    finally:
        subprocess.run(["umount", str(rehearsed.top / "cdi")], check=True)


@pytest.mark.counterpart("podman", "runc")
def test_a_refresh_while_containers_start(rehearsed, container):
    """Each container that starts while specs are written anew sees its device: a spec is old or new, never a half."""
    rehearsed.move_specs("/etc/cdi")  # podman before 5.5 reads no other directory; conftest.py makes it this test's own
    assert not rehearsed.provision(0).get("failed")
    without = container("test -c /dev/kmsg")
    assert without.returncode == 1, (without.returncode, without.stderr)  # no container has the node anyway
    stop, written = threading.Event(), set()

    def refresh():
        while not stop.is_set():
            for words in (["disable", f"{KIND}=null", "--reason", "rehearsal"], ["enable", f"{KIND}=null"]):
                assert rehearsed.command("device", *words).returncode == 0
                written.add(rehearsed.spec.stat().st_ino)

    thread = threading.Thread(target=refresh)
    thread.start()
    try:
        for _turn in range(12):
            done = container("test -c /dev/kmsg", "--device", f"{KIND}=kmsg")
            assert done.returncode == 0, (done.returncode, done.stderr)
    finally:
        stop.set()
        thread.join()
    assert len(written) > 2, "the spec was not written anew"
