# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host at one moment: what specs, inventory, devices and ledger say together."""

from __future__ import annotations

import errno
import gc
import json
import os
import stat

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import UnitsRefused, Want, take
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import filesystem
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Unusable
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.dra_keeper import Keeper
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.faults import class_of
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.observer import Viewer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health import held_elsewhere
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled, render_disabled
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry as specs_of_host
from ansible_collections.fleet.cdi.tests.unit.limits import settle
from ansible_collections.fleet.cdi.tests.unit.trees import specs

NIC = "acme.com/nic"


def write(directory, devices):
    """The spec, of the version that knows interfaces."""
    (directory / "cdi/nic.json").write_text(json.dumps({**specs.spec(NIC, devices), "cdiVersion": "1.1.0"}))


@pytest.fixture
def viewer(tmp_path):
    """Of a host with two interfaces, a and b, of which it has only b now."""
    (tmp_path / "sys/class/net/b").mkdir(parents=True)
    (tmp_path / "cdi").mkdir()
    write(tmp_path, {"a": ["net:a"], "b": ["net:b"]})
    document = {"version": 1, "root": str(tmp_path), "spec_dirs": [f"{tmp_path}/cdi"]}
    paths = {name: f"{tmp_path}/{name}" for name in ("state_dir", "inventory")}
    return Viewer(configuration.parse({**document, **paths}, "c"), Ledger(paths["state_dir"], "boot-1"))


def troubles(viewer):
    """Unit -> class of what is wrong with it."""
    return {name: class_of(why) for name, why in viewer.look().troubles[NIC].items()}


def hold(viewer, *names, name="acme.com/other"):
    (resource,) = viewer.look().offer.resources
    wants = [Want(unit.id, unit.device) for unit in resource.units if unit.id in names]
    take(Ledger(viewer.settings.state_dir, "boot-1"), name, wants)


def test_an_interface_is_not_missing_that_moved_to_whoever_holds_it(viewer):
    """Else the device would have to prove itself, as after a fault, each time that it is given back."""
    assert troubles(viewer) == {"a": "interface-missing"}
    hold(viewer, "a", "b")
    assert troubles(viewer) == {"a": "taken", "b": "taken"}


def test_a_fault_is_told_whoever_holds_the_device(viewer, tmp_path):
    os.mkfifo(tmp_path / "x")
    write(tmp_path, {"a": ["/x"], "b": ["net:b"]})
    assert troubles(viewer) == {}
    hold(viewer, "a")
    assert troubles(viewer) == {"a": "taken"}
    (tmp_path / "x").unlink()
    assert troubles(viewer) == {"a": "node-missing"}


@pytest.mark.parametrize("path", ["/d\0ev/a", "/proc/1/root/dev/a"])
def test_a_path_that_is_none_in_a_spec_of_others_costs_no_other_device(viewer, tmp_path, monkeypatch, path):
    """/proc/1/root is a link that a confined process may not read."""

    def readlink(name, *_words, **_more):
        if name.startswith("/proc/1/root"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(name, *_words, **_more)

    real = os.readlink
    monkeypatch.setattr(os, "readlink", readlink)
    monkeypatch.setattr(viewer, "settings", viewer.settings._replace(root="/"))
    odd = {**specs.spec("odd.com/odd", {"x": ["/x"]}), "cdiVersion": "1.1.0"}
    odd["devices"][0]["containerEdits"]["deviceNodes"][0]["path"] = path
    (tmp_path / "cdi/odd.json").write_text(json.dumps(odd))
    write(tmp_path, {"a": ["net:a"], "b": ["/dev/null"]})
    assert set(viewer.look().troubles["odd.com/odd"]) == {"x"}
    assert troubles(viewer) == {"a": "interface-missing"}


def test_what_could_not_be_read_once_is_read_again(viewer, tmp_path, monkeypatch):
    """One failed read of a file that does not change, as by a full table of open files."""
    (tmp_path / "inventory").write_bytes(inventory.render(inventory.Inventory(()), inventory.boot_id()))

    def fails(*_all, **_more):
        raise CdiError("can't be read: Too many open files in system")

    with monkeypatch.context() as patch:
        patch.setattr(inventory, "read", fails)
        assert str(tmp_path / "inventory") in viewer.look().problems
    assert viewer.look().problems == {}


def test_what_is_damaged_is_not_read_at_each_look(viewer, tmp_path, monkeypatch):
    (tmp_path / "cdi/broken.json").write_text("{")
    settle()
    assert viewer.look().problems
    reads = []
    real = specs_of_host.load
    monkeypatch.setattr(specs_of_host, "load", lambda *given: reads.append(given) or real(*given))
    for _look in range(3):
        assert viewer.look().problems
    assert len(reads) == 1


class TestLedgerThatCanNotBeRead:
    """Allocate would refuse what nobody has; it is Unhealthy before that, and back as soon as it can be had."""

    @pytest.fixture
    def viewer(self, viewer, tmp_path):
        (tmp_path / "sys/class/net/a").mkdir()
        assert troubles(viewer) == {}
        return viewer

    def test_from_the_start(self, viewer, tmp_path):
        hold(viewer, "a", name=NIC)
        os.chmod(tmp_path / "state_dir", 0o777)
        viewer = Viewer(viewer.settings, Ledger(viewer.settings.state_dir, "boot-1"))
        assert troubles(viewer) == {"a": "taken", "b": "taken"}
        view = viewer.look()
        assert "the ledger can't be used: " in view.troubles[NIC]["b"]
        assert "nobody else can write to" in view.problems["ledger"]
        os.chmod(tmp_path / "state_dir", 0o700)
        assert troubles(viewer) == {}

    def test_what_somebody_was_known_to_have_stays_so(self, viewer, tmp_path):
        hold(viewer, "a", name=NIC)
        hold(viewer, "b")
        assert troubles(viewer) == {"b": "taken"}
        before = viewer.look().troubles
        os.chmod(tmp_path / "state_dir", 0o777)
        assert viewer.look().troubles[NIC] == before[NIC]  # a is a pod's, whose device is well
        os.chmod(tmp_path / "state_dir", 0o700)
        assert viewer.look().troubles == before

    def test_not_where_others_only_take_long(self, viewer, monkeypatch):
        hold(viewer, "b")
        before = viewer.look().troubles

        def busy(_ledger):
            raise Unusable("others keep it locked", "busy")

        monkeypatch.setattr(held_elsewhere, "read_ledger", busy)
        view = viewer.look()
        assert view.troubles == before
        assert view.problems["ledger"] == "others keep it locked"


@pytest.mark.parametrize("kind", ["nfs4", "fuse.anything", "autofs"])
def test_what_may_hang_with_its_server_is_left_to_looks(viewer, tmp_path, monkeypatch, kind):
    """Who follows directories looks at them in the event loop, which nobody may hold up."""
    (tmp_path / "cdi/nic.json").unlink()
    edits = [{"mounts": [{"hostPath": f"{tmp_path}/{one}/x", "containerPath": "/x"}]} for one in ("near", "far")]
    devices = [{"name": f"d{number}", "containerEdits": one} for number, one in enumerate(edits)]
    (tmp_path / "cdi/a.json").write_text(json.dumps({**specs.spec(NIC, {}), "devices": devices}))
    assert viewer.look().directories == (f"{tmp_path}/far", f"{tmp_path}/near")
    assert len(viewer.look().offer.resources[0].units) == 2
    monkeypatch.setattr(filesystem, "type_of", lambda path: kind if "/far" in path else "ext4")
    os.utime(tmp_path / "cdi/a.json", (0, 0))
    assert viewer.look().directories == (f"{tmp_path}/near",)


def test_what_is_out_of_service_stays_so_where_nobody_can_read_on(viewer, tmp_path):
    (tmp_path / "sys/class/net/a").mkdir()
    (tmp_path / "state_dir").mkdir()
    (resource,) = viewer.look().offer.resources
    path = tmp_path / "state_dir/device-state.json"
    path.write_bytes(render_disabled({resource.units[1].device.id: Disabled("it smells", "2026-01-01T00:00:00Z")}))
    assert troubles(viewer) == {"b": "reserved"}
    path.write_text("{")
    assert troubles(viewer) == {"b": "reserved"}
    assert "is damaged" in viewer.look().problems["disabled"]
    path.unlink()
    assert troubles(viewer) == {}


class TestClaims:
    """Of DRA drivers: NIC b is in the transient spec of one."""

    UID = "9d1c0c2e-5b7a-4a3e-8a39-77a8a1d5c001"

    @pytest.fixture
    def keeping(self, viewer, tmp_path):
        write(tmp_path, {"b": ["net:b"]})
        spec = {**specs.spec("k8s.nic.acme.com/nic", {f"{self.UID}-b": ["net:b"]}), "cdiVersion": "1.1.0"}
        (tmp_path / f"cdi/k8s.nic.acme.com-nic_{self.UID}.json").write_text(json.dumps(spec))
        ledger = Ledger(viewer.settings.state_dir, "boot-1")
        return Viewer(viewer.settings, ledger, Keeper(ledger))

    def test_a_look_holds_and_tells(self, keeping):
        who = f"claim uid:{self.UID} of DRA driver nic.acme.com"
        assert keeping.look().troubles[NIC] == {"b": f"taken: {who} holds net:b"}
        assert [event.what for event in keeping.keeper.events] == ["claim-held"]

    def test_who_only_looks_holds_nothing(self, keeping):
        view = Viewer(keeping.settings, Ledger(keeping.settings.state_dir, "boot-1")).look()
        assert "nic.acme.com has net:b" in view.troubles[NIC]["b"]
        assert not os.path.exists(keeping.settings.state_dir)

    def test_it_is_told_where_the_ledger_can_not_hold_it(self, keeping, monkeypatch):
        def busy(*_given):
            raise Unusable("others are at it", "busy")

        monkeypatch.setattr(keeping.keeper, "look", busy)
        view = keeping.look()
        assert "nic.acme.com has net:b" in view.troubles[NIC]["b"] and "others are at it" in view.problems["ledger"]


def test_no_collection_of_garbage_stops_others_during_a_look(viewer, tmp_path):
    """One walks over every record of every device while no other thread can work."""
    write(tmp_path, {f"d{number}": [f"net:d{number}"] for number in range(1000)})
    begun = []

    def note(phase, _info):
        begun.append(phase)

    gc.callbacks.append(note)
    try:
        viewer.look()
        during = list(begun)
    finally:
        gc.callbacks.remove(note)
    assert during.count("start") <= 1  # of what is new, when the look is over
    assert gc.isenabled()


OURS, THEIRS = "acme.com/gpu", "other.com/gpu"


class TestOneDeviceUnderTwoPaths:
    """Another tool's spec gives a device node under another path than the inventory or the spec of a third one."""

    @pytest.fixture
    def make(self, tmp_path):
        """Of a host with /dev/gpu0 and /dev/gpu1: makes the viewer; `edits` are those of THEIRS=x."""
        if os.geteuid() != 0:
            pytest.skip("only root can make device nodes")
        for minor, name in enumerate(("gpu0", "gpu1")):
            self.node(tmp_path, f"dev/{name}", minor)

        def made(edits, known):
            (tmp_path / "cdi").mkdir()
            ours = specs.spec(OURS, {"0": ["/dev/gpu0"], "1": ["/dev/gpu1"]})
            theirs = {**specs.spec(THEIRS, {"x": []}), "devices": [{"name": "x", "containerEdits": edits}]}
            (tmp_path / "cdi/ours.json").write_text(json.dumps(ours))
            (tmp_path / "cdi/theirs.json").write_text(json.dumps(theirs))
            paths = {name: f"{tmp_path}/{name}" for name in ("state_dir", "inventory")}
            nodes = [{"id": f"pci:{n}", "kind": OURS, "names": [n], "nodes": [f"/dev/gpu{n}"]} for n in range(2)]
            nodes = [{**one, "nodes": [[one["nodes"][0], "c", 240, n]]} for n, one in enumerate(nodes)]
            if known:
                (tmp_path / "inventory").write_bytes(inventory.render(specs.inventory(nodes), inventory.boot_id()))
            document = {"version": 1, "root": str(tmp_path), "spec_dirs": [f"{tmp_path}/cdi"], **paths}
            return Viewer(configuration.parse(document, "c"), Ledger(paths["state_dir"], "boot-1"))

        return made

    @staticmethod
    def node(root, path, minor):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(root / path, stat.S_IFCHR | 0o600, os.makedev(240, minor))

    @staticmethod
    def taken(view, name):
        return sorted(view.troubles.get(name, {}))

    @staticmethod
    def hold(viewer, name, unit):
        view = viewer.look()
        (resource,) = (one for one in view.offer.resources if one.name == name)
        take(
            Ledger(viewer.settings.state_dir, "boot-1"),
            name,
            [Want(one.id, one.device) for one in resource.units if one.id == unit],
        )

    def second(self, root):
        self.node(root, "run/driver/dev/gpu0", 0)
        return {"path": "/dev/gpu0", "hostPath": "/run/driver/dev/gpu0"}

    def link(self, root):
        (root / "dev/by-path").mkdir()
        (root / "dev/by-path/pci-1").symlink_to("../gpu0")
        return {"path": "/dev/by-path/pci-1"}

    def numbered(self, _root):
        return {"path": "/dev/accel", "type": "c", "major": 240, "minor": 0}

    @pytest.mark.parametrize("known", [True, False])
    @pytest.mark.parametrize("way", [second, link, numbered])
    def test_who_has_one_has_the_other(self, make, tmp_path, known, way):
        viewer = make({"deviceNodes": [way(self, tmp_path)]}, known)
        self.hold(viewer, OURS, "0")
        view = viewer.look()
        assert {one.name for one in view.offer.resources} == {OURS, THEIRS}
        assert self.taken(view, THEIRS) == ["x"]
        with pytest.raises(UnitsRefused):  # what keeps it from pods even if its faults are ignored
            self.hold(viewer, THEIRS, "x")
        assert "offer 1 of the same devices" in " ".join(view.offer.warnings)
        assert self.taken(view, OURS) == []

    @pytest.mark.parametrize("known", [True, False])
    def test_the_other_way_around(self, make, tmp_path, known):
        viewer = make({"deviceNodes": [self.second(tmp_path)]}, known)
        self.hold(viewer, THEIRS, "x")
        assert self.taken(viewer.look(), OURS) == ["0"]

    def test_a_device_that_comes_later_is_known_then(self, make, tmp_path):
        """No spec and no inventory changes; only a node appears."""
        viewer = make({"deviceNodes": [{"path": "/dev/late"}]}, True)
        self.hold(viewer, OURS, "0")
        assert viewer.look().troubles[THEIRS]["x"].startswith("node-missing")
        self.node(tmp_path, "dev/late", 0)
        assert class_of(viewer.look().troubles[THEIRS]["x"]) == "taken"
        (tmp_path / "dev/late").unlink()
        self.node(tmp_path, "dev/late", 9)
        assert self.taken(viewer.look(), THEIRS) == []

    @pytest.mark.parametrize("known", [True, False])
    def test_a_resource_of_both_kinds_has_the_device_once(self, make, tmp_path, known):
        viewer = make({"deviceNodes": [self.second(tmp_path)]}, known)
        both = ResourceSettings("acme.com/any", (OURS, THEIRS))
        viewer.settings = viewer.settings._replace(resources={both.name: both})
        (resource,) = viewer.look().offer.resources
        assert [unit.id for unit in resource.units] == ["acme.com:gpu:0", "acme.com:gpu:1"]
        assert "is not offered: it is the hardware of acme.com/gpu=0" in " ".join(viewer.look().offer.warnings)

    @pytest.mark.parametrize("known", [True, False])
    def test_two_names_of_one_kind_are_one_device(self, make, tmp_path, known):
        viewer = make({"deviceNodes": [self.second(tmp_path)]}, known)
        spec = json.loads((tmp_path / "cdi/theirs.json").read_text())
        spec["devices"].append({"name": "y", "containerEdits": {"deviceNodes": [self.link(tmp_path)]}})
        (tmp_path / "cdi/theirs.json").write_text(json.dumps(spec))
        (units,) = [one.units for one in viewer.look().offer.resources if one.name == THEIRS]
        assert len(units) == 1


def test_what_the_daemon_holds_itself_wakes_no_look_and_what_others_hold_does(tmp_path):
    """Else each Allocate would start a look at the host, which would slow the next Allocate."""
    ours, theirs = (Ledger(str(tmp_path / "state"), "boot-1") for _time in range(2))
    found = configuration.PluginSettings(
        spec_dirs=(str(tmp_path),), state_dir=str(tmp_path / "state"), inventory=str(tmp_path / "i")
    )
    subjects = Viewer(found, ours).subjects()

    def states():
        return [subject.look(subject.path) for subject in subjects]

    def hold(ledger, name):
        take(ledger, NIC, [Want(name, Device(f"tty:{name}", "rule", NIC, (name,), ()))])

    hold(ours, "d0")
    settle()
    before = states()
    hold(ours, "d1")
    hold(ours, "d1")
    assert states() == before
    hold(theirs, "d2")
    assert states() != before


class TestInventoryOfAnotherBoot:
    """Where no refresh ran in this boot, a spec may be that of another boot, and ids in the ledger tell no node."""

    @pytest.fixture
    def viewer(self, viewer, tmp_path):
        (tmp_path / "sys/class/net/a").mkdir()
        return viewer

    @staticmethod
    def refresh(tmp_path, *devices):
        known = specs.inventory([{"id": f"pci:{name}", "kind": NIC, "nets": [name]} for name in devices])
        (tmp_path / "inventory").write_bytes(inventory.render(known, inventory.boot_id()))

    def test_a_kind_that_we_write_waits_for_the_refresh(self, viewer, tmp_path):
        assert troubles(viewer) == {}  # another tool's spec needs none
        entry = {"wanted": {"entries": {}}, "directory": f"{tmp_path}/cdi", "offered": {}, "gone": {}}
        path = tmp_path / "cdi/nic.json"
        with locked_manifest(viewer.settings.state_dir) as manifest:
            manifest.remember({NIC: {**entry, "inventory": f"{tmp_path}/inventory"}})
            assert troubles(viewer) == {}  # a kind of ours, served by another tool
            manifest.write(str(path), path.read_bytes(), NIC)
        assert troubles(viewer) == {"a": "unresolved", "b": "unresolved"}
        assert "run `fleet-cdi refresh`" in viewer.look().troubles[NIC]["a"]
        self.refresh(tmp_path, "a")  # it was cut off before it wrote the other one
        assert troubles(viewer) == {"b": "unresolved"}
        self.refresh(tmp_path, "a", "b")
        assert troubles(viewer) == {}

    def test_what_is_out_of_service_may_be_any_device(self, viewer, tmp_path):
        os.makedirs(viewer.settings.state_dir, 0o700)
        state = render_disabled({"pci:a": Disabled("broken fan", "2026-11-26T10:00:00Z")})
        (tmp_path / "state_dir/device-state.json").write_bytes(state)
        assert troubles(viewer) == {"a": "reserved", "b": "reserved"}
        self.refresh(tmp_path, "a", "b")
        assert troubles(viewer) == {"a": "reserved"}

    def test_where_the_manifest_can_not_be_read_any_kind_may_be_ours(self, viewer, tmp_path):
        os.makedirs(viewer.settings.state_dir, 0o700)
        (tmp_path / "state_dir/manifest.json").write_text("{")
        assert "is damaged" in viewer.look().problems["manifest"]
        assert troubles(viewer) == {"a": "unresolved", "b": "unresolved"}
        (tmp_path / "state_dir/manifest.json").unlink()
        assert troubles(viewer) == {}
        (tmp_path / "state_dir/manifest.json").write_text("{")
        assert troubles(viewer) == {}  # as when it could be read
        self.refresh(tmp_path, "a", "b")
        assert viewer.look().problems == {}  # it is not needed
