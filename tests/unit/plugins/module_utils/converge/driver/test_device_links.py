# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links by number, to real device nodes in a directory of the test's own; no driver has the number of theirs."""

from __future__ import annotations

import json
import os
import stat

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import device_links
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import Manifest, read_manifest
from ansible_collections.fleet.cdi.tests.unit import builders

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making a device node takes root")


class Host:
    """A /dev and a /sys/dev, specs that name nodes, and a state directory."""

    def __init__(self, root):
        self.root, self.dev, self.state = root, root / "dev", str(root / "state")
        self.specs = root / "cdi"
        for directory in (self.dev, self.specs):
            directory.mkdir()

    def node(self, name, number, type_=stat.S_IFCHR):
        path = self.dev / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        try:
            os.mknod(path, type_ | 0o600, os.makedev(*number))
        except PermissionError:
            pytest.skip("no device nodes may be made here")
        return path

    def spec(self, *paths, name="vendor.com-gpu.json", **whole):
        (self.specs / name).write_text(json.dumps(builders.spec({"x": builders.nodes(*paths)}, **whole)))

    def announced(self, number, folder="char"):
        (self.root / "sys-dev" / folder / number).mkdir(parents=True)

    def keep(self, check=False, boot_id=None):
        changes = device_links.keep_links([str(self.specs)], self.state, check, boot_id)
        return {os.path.relpath(one.path, self.dev): (one.before, one.after) for one in changes}

    def links(self):
        return {str(path.relative_to(self.dev)): os.readlink(path) for path in self.dev.rglob("*") if path.is_symlink()}

    def look(self):
        specs = device_links.registry.load([str(self.specs)])
        return {os.path.basename(one.node): one for one in device_links.numbered_nodes(device_links.nodes(specs))}


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture
def linked(host):
    """A host with one device, which has a link of ours."""
    host.spec(host.node("nvidia0", (195, 0)))
    host.keep()
    assert host.links() == {"char/195:0": "../nvidia0"}
    return host


def test_every_node_of_every_spec_gets_one(host):
    more = {"path": "/dev/in-the-container", "hostPath": str(host.node("nvidia-caps/nvidia-cap1", (506, 1)))}
    host.spec(host.node("nvidia0", (195, 0)), containerEdits={"deviceNodes": [more]})
    host.spec(host.node("disk", (195, 3), stat.S_IFBLK), name="other.yaml", kind="other.com/disk")
    wanted = {"char/195:0": "../nvidia0", "char/506:1": "../nvidia-caps/nvidia-cap1", "block/195:3": "../disk"}
    assert host.keep() == {path: ("", text) for path, text in wanted.items()}
    assert host.links() == wanted
    for path in wanted:
        number = path.partition("/")[2]
        found = os.stat(host.dev / path).st_rdev
        assert f"{os.major(found)}:{os.minor(found)}" == number


def test_the_second_time_nothing_changes(linked):
    before = os.stat(linked.root / "state/manifest.json").st_mtime_ns
    assert linked.keep() == {} and os.stat(linked.root / "state/manifest.json").st_mtime_ns == before


def test_check_mode_shows_what_the_run_does(host):
    host.spec(host.node("nvidia0", (195, 0)))
    preview = host.keep(check=True)
    assert host.links() == {} and not os.path.exists(host.state)
    assert preview == host.keep() == {"char/195:0": ("", "../nvidia0")}


def test_what_the_kernel_announces_is_left_to_udev(host):
    host.spec(host.node("card0", (226, 0)))
    host.announced("226:0")
    assert host.keep() == {} and host.look()["card0"].fault == device_links.GONE


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("../nvidia0", ""),
        ("../nvidia1", "leads to ../nvidia1, which is not that device"),
        ("../nowhere", "leads to ../nowhere, which is not that device"),
    ],
)
def test_a_link_of_others_stays(host, text, fault):
    host.node("nvidia1", (195, 1))
    host.spec(host.node("nvidia0", (195, 0)))
    (host.dev / "char").mkdir()
    (host.dev / "char/195:0").symlink_to(text)
    assert host.keep() == {} and host.look()["nvidia0"].fault == fault
    assert undo(layout_beside(host.state)).removed == () and host.links() == {"char/195:0": text}


def test_a_number_that_changed_takes_the_old_link_along(linked):
    linked.node("nvidia0", (509, 0))
    assert linked.keep() == {"char/195:0": ("../nvidia0", ""), "char/509:0": ("", "../nvidia0")}
    assert linked.links() == {"char/509:0": "../nvidia0"}


def test_a_number_that_another_node_has_now(linked):
    linked.node("nvidia0", (509, 0))
    linked.spec(linked.dev / "nvidia0", linked.node("nvidia-uvm", (195, 0)))
    assert linked.keep()["char/195:0"] == ("../nvidia0", "../nvidia-uvm")
    assert linked.links() == {"char/195:0": "../nvidia-uvm", "char/509:0": "../nvidia0"}


def test_a_node_that_is_gone_loses_its_link(linked):
    (linked.dev / "nvidia0").unlink()
    assert linked.keep() == {"char/195:0": ("../nvidia0", "")}
    assert linked.links() == {} and read_manifest(linked.state).links == {}


def test_undo_takes_them_back(linked):
    assert undo(layout_beside(linked.state), check=True).removed == (str(linked.dev / "char/195:0"),)
    assert linked.links() == {"char/195:0": "../nvidia0"}
    assert undo(layout_beside(linked.state)).removed == (str(linked.dev / "char/195:0"),)
    assert linked.links() == {} and not (linked.dev / "char").exists() and not os.path.exists(linked.state)


def test_undo_leaves_what_somebody_put_in_its_place(linked):
    link = linked.dev / "char/195:0"
    link.unlink()
    link.symlink_to(linked.dev / "nvidia0")
    assert undo(layout_beside(linked.state)).removed == () and link.is_symlink()


def test_after_a_reboot_the_same_link_is_somebody_elses(linked, monkeypatch):
    monkeypatch.setattr(inventory, "boot_id", lambda *_arguments: "another boot")
    assert linked.keep() == {}
    assert undo(layout_beside(linked.state)).removed == () and linked.links() == {"char/195:0": "../nvidia0"}


def test_what_another_tool_makes_at_the_same_moment_is_theirs(host, monkeypatch):
    host.spec(host.node("nvidia0", (195, 0)))
    (host.dev / "char").mkdir()
    noted = Manifest.note_links

    def note(manifest, links):
        noted(manifest, links)
        if not host.links():
            (host.dev / "char/195:0").symlink_to("../nvidia0")

    monkeypatch.setattr(Manifest, "note_links", note)
    assert host.keep() == {} and read_manifest(host.state).links == {}


@pytest.mark.parametrize("harm", ["a directory of others", "a symlink", "a path with dots", "elsewhere", "no device"])
def test_no_link_to_what_others_could_change(host, tmp_path, harm):
    path = host.node("nvidia0", (195, 0))
    if harm == "a directory of others":
        path = host.node("shm/nvidia0", (195, 0))
        path.parent.chmod(0o1777)
    elif harm == "a symlink":
        (host.dev / "link").symlink_to("nvidia0")
        path = host.dev / "link"
    elif harm == "a path with dots":
        path = f"{host.dev}/x/../nvidia0"
    elif harm == "elsewhere":
        path = tmp_path / "nvidia0"
        os.mknod(path, stat.S_IFCHR, os.makedev(195, 0))
    else:
        path = host.dev / "file"
        path.touch()
    host.spec(path)
    assert host.keep() == {}


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_the_directory_of_links_has_to_be_roots_alone(host, mode):
    host.spec(host.node("nvidia0", (195, 0)))
    (host.dev / "char").mkdir()
    (host.dev / "char").chmod(mode)
    with pytest.raises(device_links.CdiError, match="expected a directory of root"):
        host.keep()
    assert host.links() == {}
