# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans: from devices and content to files, what is refused before anything is written, and undo."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.converge.apply import apply
from ansible_collections.fleet.cdi.plugins.module_utils.converge.change import Change
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import build_spec, plan_spec
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import (
    CdiError,
    ContainerEdits,
    Device,
    Health,
    Hook,
    Kind,
    Mount,
    NetDevice,
    Node,
)
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen.linked import ANY, Linked

KIND = "vendor.com/serial"


def device(number, **more):
    """A serial port with one node."""
    node = Node(f"/dev/ttyS{number}", "c", 4, 64 + number)
    return Device(f"tty:ttyS{number}", "rule", KIND, (f"port{number}",), (node,), **more)


class TestSpecOf:
    def test_a_device_under_each_of_its_names(self):
        spec = build_spec.spec_of(Kind(KIND), [device(0)._replace(names=("port0", "front"))])
        nodes = {"deviceNodes": [{"path": "/dev/ttyS0"}]}
        assert spec == {
            "cdiVersion": "0.3.0",
            "kind": KIND,
            "devices": [{"name": "port0", "containerEdits": nodes}, {"name": "front", "containerEdits": nodes}],
        }

    def test_another_path_in_the_container_needs_0_5_0(self):
        moved = device(0, env=("PORT=/dev/modem",))._replace(nodes=(Node("/dev/ttyS0", "c", 4, 64, "", "/dev/modem"),))
        spec = build_spec.spec_of(Kind(KIND), [moved])
        assert spec["cdiVersion"] == "0.5.0"
        assert spec["devices"][0]["containerEdits"] == {
            "env": ["PORT=/dev/modem"],
            "deviceNodes": [{"path": "/dev/modem", "hostPath": "/dev/ttyS0"}],
        }

    def test_no_devices_means_no_file(self):
        assert build_spec.spec_of(Kind(KIND), []) is None
        assert build_spec.spec_of(Kind(KIND), [device(0, health=Health("unhealthy", "its node is missing"))]) is None

    def test_what_all_share_stands_once_and_aggregates_join_the_rest(self):
        shared = ContainerEdits(
            env=("VENDOR=1",),
            mounts=(Mount("/usr/lib/libserial.so.1"),),
            hooks=(Hook("createContainer", "/bin/hook", ("hook", "ldcache"), ("DEBUG=1",)),),
        )
        ports = [
            device(0, env=("PORT=0", "SPEED=9600"), additional_gids=(20,)),
            device(1, env=("PORT=1", "SPEED=9600")),
        ]
        spec = build_spec.spec_of(Kind(KIND, shared, all=True, none=("VENDOR=none",), device_numbers=True), ports)
        nodes = [{"path": f"/dev/ttyS{number}", "type": "c", "major": 4, "minor": 64 + number} for number in (0, 1)]
        assert spec == {
            "cdiVersion": "0.7.0",
            "kind": KIND,
            "devices": [
                {
                    "name": "port0",
                    "containerEdits": {
                        "env": ["PORT=0", "SPEED=9600"],
                        "deviceNodes": nodes[:1],
                        "additionalGids": [20],
                    },
                },
                {"name": "port1", "containerEdits": {"env": ["PORT=1", "SPEED=9600"], "deviceNodes": nodes[1:]}},
                {
                    "name": "all",
                    "containerEdits": {"env": ["SPEED=9600"], "deviceNodes": nodes, "additionalGids": [20]},
                },
                {"name": "none", "containerEdits": {"env": ["VENDOR=none"]}},
            ],
            "containerEdits": {
                "env": ["VENDOR=1"],
                "mounts": [
                    {
                        "hostPath": "/usr/lib/libserial.so.1",
                        "containerPath": "/usr/lib/libserial.so.1",
                        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
                    }
                ],
                "hooks": [
                    {
                        "hookName": "createContainer",
                        "path": "/bin/hook",
                        "args": ["hook", "ldcache"],
                        "env": ["DEBUG=1"],
                    }
                ],
            },
        }

    def test_a_network_interface_needs_no_node(self):
        port = device(0, net_devices=(NetDevice("eth3"), NetDevice("eth4", "net0")))._replace(nodes=())
        spec = build_spec.spec_of(Kind(KIND), [port])
        assert spec["cdiVersion"] == "1.1.0"
        assert spec["devices"][0]["containerEdits"] == {
            "netDevices": [
                {"hostInterfaceName": "eth3", "name": "eth3"},
                {"hostInterfaceName": "eth4", "name": "net0"},
            ]
        }

    def test_two_nodes_at_one_place_are_no_aggregate(self):
        ports = [
            device(number)._replace(nodes=(Node(f"/dev/ttyS{number}", "c", 4, 64 + number, "", "/dev/port"),))
            for number in (0, 1)
        ]
        with pytest.raises(CdiError, match="'all' would have several nodes at /dev/port"):
            build_spec.spec_of(Kind(KIND, all=True), ports)

    @pytest.mark.parametrize("kind", ["vendor.com", "v/serial", "vendor.com/se rial"])
    def test_an_invalid_kind_is_named(self, kind):
        with pytest.raises(CdiError, match=f"kind '{kind}': found"):
            build_spec.complete(kind, {"devices": []})

    def test_everything_wrong_with_content_is_said_at_once(self):
        with pytest.raises(CdiError) as caught:
            build_spec.complete(KIND, {"devices": [{"name": "a b", "containerEdits": {}}], "colour": "red"})
        for word in ("/colour", "/devices/0/name", "/devices/0/containerEdits"):
            assert word in str(caught.value)

    def test_a_version_that_was_asked_for_is_kept(self):
        content = {"devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}]}
        assert build_spec.complete(KIND, {**content, "cdiVersion": "0.8.0"})["cdiVersion"] == "0.8.0"
        with pytest.raises(CdiError, match="minimum-version"):
            build_spec.complete(KIND, {**content, "annotations": {"a": "b"}, "cdiVersion": "0.5.0"})
        with pytest.raises(CdiError, match="/cdiVersion: found 'v0.5.0', expected a version without v"):
            build_spec.complete(KIND, {**content, "cdiVersion": "v0.5.0"})  # podman 4.3 reads 0.5.0, and not this

    def test_what_only_the_specification_forbids_is_not_written(self):
        content = {"devices": [{"name": "a", "containerEdits": {"env": ["A=1", "A=2"]}}]}
        with pytest.raises(CdiError, match="unique-environment"):
            build_spec.complete(KIND, content)

    def test_fields_that_the_newest_library_dropped_get_a_version_that_has_them(self):
        content = {"devices": [{"name": "a", "containerEdits": {"intelRdt": {"enableCMT": True}}}]}
        assert build_spec.complete(KIND, content)["cdiVersion"] == "0.7.0"
        with pytest.raises(CdiError, match="field-until"):
            build_spec.complete(KIND, {**content, "cdiVersion": "1.1.0"})

    @pytest.mark.parametrize("edits", [{"intelRdt": {"closID": "/"}}, {"env": ["A=1"], "netDevices": []}])
    def test_what_only_the_newest_library_takes_gets_its_version(self, edits):
        content = {"devices": [{"name": "a", "containerEdits": edits}]}
        assert build_spec.complete(KIND, content)["cdiVersion"] == "1.1.0"


class Host:
    """A host with two spec directories, the first of lower priority, and a state directory."""

    def __init__(self, root):
        self.root = root
        self.etc, self.run, self.state_dir = (f"{root}/{name}" for name in ("etc", "run", "state"))

    def converge(self, spec, directory=None, force=False, check=False, kind=KIND, linked=ANY):
        def make(manifest):
            known = registry.load((self.etc, self.run))
            return plan_spec.plan_spec(kind, spec, directory or self.etc, known, manifest, force, lambda: linked)

        return apply(make, self.state_dir, check)

    def put(self, directory, name, content):
        files.make_directory(directory)
        files.replace(f"{directory}/{name}", content)
        return f"{directory}/{name}"

    def everything(self):
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


SPEC = build_spec.complete(KIND, {"devices": [{"name": "port0", "containerEdits": {"env": ["A=1"]}}]})
OTHER = build_spec.complete(KIND, {"devices": [{"name": "port1", "containerEdits": {"env": ["A=1"]}}]})
FILE = "vendor.com-serial.json"


def test_the_second_time_nothing_changes(host):
    assert [change.path for change in host.converge(SPEC).changes] == [f"{host.etc}/{FILE}"]
    before = host.everything()
    assert json.loads(before[f"etc/{FILE}"]) == SPEC
    assert host.converge(SPEC).changes == ()
    assert host.everything() == before


def test_what_not_every_runtime_reads_is_written_with_a_warning(host):
    content = {"cdiVersion": "1.0.0", "devices": SPEC["devices"]}
    (warning,) = host.converge(build_spec.complete(KIND, content)).warnings
    assert warning.startswith(f"{host.etc}/{FILE}: /cdiVersion: found 1.0.0, expected 0.3.0")


def test_check_mode_answers_the_same_plan_and_touches_nothing(host):
    preview = host.converge(SPEC, check=True)
    assert host.everything() == {} and not (host.root / "etc").exists()
    assert host.converge(SPEC) == preview


def test_absent_takes_the_file_and_every_trace(host):
    host.converge(SPEC)
    assert host.converge(None).changes
    assert host.everything() == {} and list(host.root.iterdir()) == []
    assert host.converge(None).changes == ()
    assert list(host.root.iterdir()) == []


@pytest.mark.parametrize("directory", ["etc", "run"])
def test_one_that_was_deleted_and_is_not_wanted_there_is_forgotten(host, directory):
    """Without this, each `doctor` names the missing file, and no run repairs that."""
    host.converge(SPEC)
    os.unlink(f"{host.etc}/{FILE}")
    spec, where = (None, host.etc) if directory == "etc" else (SPEC, host.run)
    preview = host.converge(spec, where, check=True)
    assert Change(f"{host.etc}/{FILE}", KIND, None, None) in preview.changes
    assert host.converge(spec, where) == preview
    assert f"{host.etc}/{FILE}" not in read_manifest(host.state_dir).files
    assert host.converge(spec, where).changes == ()


def test_one_that_was_deleted_is_forgotten_once_where_undo_has_a_file_to_put_back(host):
    host.put(host.etc, FILE, b"theirs")
    host.converge(SPEC, force=True)
    os.unlink(f"{host.etc}/{FILE}")
    assert host.converge(None).changes and host.converge(None).changes == ()
    undo(layout_beside(host.state_dir))
    assert host.everything() == {f"etc/{FILE}": b"theirs"}


def test_a_mode_that_rootless_runtimes_cannot_read_is_mended(host):
    host.converge(SPEC)
    (host.root / "etc" / FILE).chmod(0o600)
    assert host.converge(SPEC).changes
    assert files.read(f"{host.etc}/{FILE}").mode == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away: needs root")
def test_one_of_another_owner_is_written_anew(host):
    host.converge(SPEC)
    os.chown(f"{host.etc}/{FILE}", 1000, -1)
    assert host.converge(SPEC, check=True).changes and host.converge(SPEC).changes
    assert files.read(f"{host.etc}/{FILE}").uid == 0 and host.converge(SPEC).changes == ()


def test_a_foreign_file_stays_unless_forced_and_undo_brings_it_back(host):
    path = host.put(host.etc, FILE, b"theirs")
    before = host.everything()
    for spec in (SPEC, None):
        with pytest.raises(CdiError, match=f"{path}: is not ours"):
            host.converge(spec)
    assert host.everything() == before
    host.converge(SPEC, force=True)
    host.converge(OTHER)
    assert undo(layout_beside(host.state_dir))[:3] == ((), (path,), ())
    assert host.everything() == before


def test_a_file_with_our_very_content_becomes_ours_again_after_a_lost_manifest(host):
    """No other program writes these bytes under this name. Undo then removes it, as it would have before the loss."""
    before = host.everything()
    host.converge(SPEC)
    shutil.rmtree(host.state_dir)
    assert [change.before == change.after for change in host.converge(SPEC, check=True).changes] == [True]
    assert len(host.converge(SPEC).changes) == 1 and host.converge(SPEC).changes == ()
    assert undo(layout_beside(host.state_dir)).removed == (f"{host.etc}/{FILE}",)
    (host.root / "etc").rmdir()  # its record is lost, too
    assert host.everything() == before


def test_a_directory_that_becomes_a_link_keeps_our_files_ours(host):
    host.converge(SPEC)
    (host.root / "etc").rename(host.root / "moved")
    (host.root / "etc").symlink_to("moved")
    assert host.converge(SPEC).changes == ()
    assert [change.path for change in host.converge(OTHER).changes] == [f"{host.etc}/{FILE}"]
    assert undo(layout_beside(host.state_dir)).removed == (f"{host.root}/moved/{FILE}",)


def test_drift_is_mended(host):
    host.converge(SPEC)
    host.put(host.etc, FILE, b"edited")
    assert [change.before for change in host.converge(SPEC).changes] == [b"edited"]


def test_a_symlink_as_target_is_refused(host):
    outside = host.put(f"{host.root}/outside", "x.json", b"theirs")
    files.make_directory(host.etc)
    (host.root / "etc" / FILE).symlink_to(outside)
    with pytest.raises(CdiError, match=f"{FILE}: is a symlink to {outside}"):
        host.converge(SPEC)
    assert (host.root / "outside" / "x.json").read_bytes() == b"theirs"


class TestOtherSpecs:
    """A runtime resolves neither of two definitions in one directory, and only the later directory's of two."""

    def test_the_same_name_in_the_same_directory_is_refused(self, host):
        other = host.put(host.etc, "other.json", json.dumps(SPEC).encode())
        before = host.everything()
        with pytest.raises(CdiError, match=f"{KIND}=port0 is also in {other}: a runtime would resolve neither"):
            host.converge(SPEC)
        assert host.everything() == before

    def test_every_file_in_the_way_is_named(self, host):
        others = [host.put(host.etc, name, json.dumps(SPEC).encode()) for name in ("one.json", "two.yaml")]
        with pytest.raises(CdiError, match="port0 is also in {}, {}: a runtime".format(*others)):
            host.converge(SPEC)

    def test_a_conflict_below_takes_ours_away_too_so_it_is_refused(self, host):
        others = [host.put(host.etc, name, json.dumps(SPEC).encode()) for name in ("one.json", "two.json")]
        with pytest.raises(CdiError, match="port0 is also in {}, {}: a runtime".format(*others)):
            host.converge(SPEC, host.run)

    def test_a_symlink_to_our_file_would_offer_the_new_names_too(self, host):
        host.converge(SPEC)
        link = host.root / "etc" / "link.json"
        link.symlink_to(FILE)
        with pytest.raises(CdiError, match=f"other0 is also in {link}: a runtime would resolve neither"):
            host.converge({**SPEC, "devices": [{**SPEC["devices"][0], "name": "other0"}]})

    def test_a_symlink_to_a_spec_that_moves_away_is_no_conflict(self, host):
        host.converge(SPEC)
        (host.root / "run").mkdir()
        (host.root / "run" / "link.json").symlink_to(f"{host.etc}/{FILE}")
        assert [change.path for change in host.converge(SPEC, host.run).changes] == [
            f"{host.run}/{FILE}",
            f"{host.etc}/{FILE}",
        ]

    def test_another_name_of_the_same_kind_is_fine(self, host):
        host.put(host.etc, "other.json", json.dumps(OTHER).encode())
        assert host.converge(SPEC).warnings == ()

    def test_a_name_that_a_later_directory_overrules_is_refused(self, host):
        other = host.put(host.run, "other.json", json.dumps(SPEC).encode())
        with pytest.raises(CdiError, match=f"{KIND}=port0 would have no effect: {other} defines it"):
            host.converge(SPEC)

    def test_overruling_somebody_else_is_said(self, host):
        other = host.put(host.etc, "other.json", json.dumps(SPEC).encode())
        assert host.converge(SPEC, host.run).warnings == (
            f"{host.run}/{FILE}: {KIND}=port0 takes the place of the one in {other}",
        )

    @pytest.mark.parametrize(
        ("linked", "more", "refused"),
        [
            # A field that is newer than the declared version: only releases before 0.5.4 don't mind.
            ("0.5.1", {"containerEdits": {"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "x"}]}}, True),
            ("0.8.0", {"containerEdits": {"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "x"}]}}, False),
            ("newer", {"cdiVersion": "1.2.0"}, True),
            ("1.1.1", {"containerEdits": {"deviceNodes": [{"path": "/dev/a", "permissions": "none"}]}}, True),
            ("1.1.0", {"containerEdits": {"deviceNodes": [{"path": "/dev/a", "permissions": "none"}]}}, False),
        ],
    )
    def test_a_file_that_we_refuse_and_a_runtime_reads_is_in_the_way(self, host, linked, more, refused):
        other = host.put(host.etc, "vendor.json", json.dumps({**SPEC, **more}).encode())
        before, here = host.everything(), [Linked("podman 9.9", linked)]
        if refused:
            with pytest.raises(CdiError, match=f"port0 is also in {other}: podman 9.9 would resolve neither"):
                host.converge(SPEC, linked=here)
            assert host.everything() == before
        else:
            host.converge(SPEC, linked=here)

    def test_what_a_newer_runtime_would_read_is_said(self, host):
        other = host.put(host.etc, "vendor.json", json.dumps({**SPEC, "cdiVersion": "1.2.0"}).encode())
        (warning,) = host.converge(SPEC, linked=[Linked("podman 5.4.2", "0.8.0")]).warnings
        assert f"port0 is also in {other}: a newer runtime would resolve neither" in warning

    def test_a_file_whose_names_can_not_be_told_stops_a_write_of_its_kind_alone(self, host):
        other = host.put(host.etc, "vendor.yaml", f"cdiVersion: 0.3.0\nkind: !x {KIND}\n".encode())
        with pytest.raises(CdiError, match=f"can't tell which devices of {KIND} {other} defines: the tag '!x'"):
            host.converge(SPEC)
        host.converge({**SPEC, "kind": "other.com/serial"}, kind="other.com/serial")

    def test_a_file_that_may_make_a_runtime_crash_stops_every_write(self, host):
        other = host.put(host.etc, "vendor.yaml", "cdiVersion: 0.3.0\nkind: a/gpu\n".encode("utf-16"))
        with pytest.raises(CdiError, match=f"can't tell what {other} does to runtimes: it is UTF-16"):
            host.converge(SPEC)

    def test_a_file_that_makes_the_runtime_crash_stops_every_write(self, host):
        crash = {**SPEC, "kind": "a.com/b", "cdiVersion": "0.5.0", "containerEdits": {"hooks": [None]}}
        other = host.put(host.run, "vendor.json", json.dumps(crash).encode())
        with pytest.raises(CdiError, match=f"{other} makes the CDI library of podman 5 and docker 28 crash"):
            host.converge(SPEC, linked=[Linked("podman 5", "0.8.0"), Linked("docker 28", "1.0.0")])
        host.converge(SPEC, linked=[Linked("podman 4.1", "0.4.0")])  # does not know that version

    def test_a_link_to_where_our_file_will_be_is_in_the_way(self, host):
        files.make_directory(host.etc)
        link = host.root / "etc" / "link.json"
        link.symlink_to(FILE)
        with pytest.raises(CdiError, match=f"port0 is also in {link}: a runtime would resolve neither"):
            host.converge(SPEC)

    def test_a_directory_that_is_a_link_is_refused_where_a_runtime_does_not_follow_it(self, host):
        (host.root / "real").mkdir()
        (host.root / "etc").symlink_to("real")
        old, new = Linked("podman 5.4.2", "0.8.0"), Linked("docker 29", "1.1.0", follows_links=True)
        with pytest.raises(CdiError, match=f"podman 5.4.2 would not find it: {host.etc} is a symlink; make it"):
            host.converge(SPEC, linked=[old, new])
        assert not (host.root / "real" / FILE).exists()
        assert host.converge(SPEC, linked=[new]).warnings == ()

    def test_a_directory_that_is_a_link_to_another_one_is_read_there(self, host):
        """/etc/cdi leads to /var/run/cdi: who does not follow it finds the file all the same."""
        (host.root / "run").mkdir()
        (host.root / "etc").symlink_to("run")
        known = registry.load([host.run, host.run])._replace(unread=registry.hidden([host.etc, host.run]))
        place = (host.run, known, read_manifest(host.state_dir), False, lambda: [Linked("podman 5.4.2", "0.8.0")])
        assert plan_spec.plan_spec(KIND, SPEC, *place).warnings == ()

    def test_of_a_runtime_newer_than_all_known_it_is_a_warning(self, host):
        (host.root / "real").mkdir()
        (host.root / "etc").symlink_to("real")
        (warning,) = host.converge(SPEC, linked=[Linked("podman 9.9", name) for name in ("1.1.0", "newer")]).warnings
        assert warning.endswith(f"podman 9.9 may not find it: {host.etc} is a symlink")

    def test_a_missing_directory_is_refused_where_a_runtime_then_reads_no_later_one(self, host):
        with pytest.raises(CdiError, match=f"podman 4.1.1 would not find it: {host.etc} is missing; make it"):
            host.converge(SPEC, host.run, linked=[Linked("podman 4.1.1", "0.4.0")])
        assert host.converge(SPEC, host.run, linked=[Linked("podman 5.4.2", "0.8.0")]).warnings == ()

    def test_our_own_spec_moves_with_the_directory(self, host):
        host.converge(SPEC)
        assert [change.path for change in host.converge(SPEC, host.run).changes] == [
            f"{host.run}/{FILE}",
            f"{host.etc}/{FILE}",
        ]
        assert sorted(host.everything()) == [f"run/{FILE}", "state/.lock", "state/manifest.json"]


class TestUndo:
    def test_takes_back_exactly_what_we_wrote(self, host):
        theirs = host.put(host.etc, "theirs.json", b"{}")
        host.converge(SPEC)
        assert undo(layout_beside(host.state_dir), check=True).removed == (f"{host.etc}/{FILE}",)
        assert undo(layout_beside(host.state_dir)).removed == (f"{host.etc}/{FILE}",)
        assert list(host.everything()) == ["etc/theirs.json"] and files.read(theirs).content == b"{}"
        assert not any(undo(layout_beside(host.state_dir)))

    def test_keeps_what_somebody_changed_since_and_says_so_until_it_is_forced(self, host):
        host.converge(SPEC)
        path = host.put(host.etc, FILE, b"edited")
        for _time in range(2):
            (kept,) = undo(layout_beside(host.state_dir)).kept
            assert kept[0] == path and "was changed since fleet.cdi wrote it" in kept[1]
        assert undo(layout_beside(host.state_dir), force=True).removed == (path,)
        assert host.everything() == {}

    def test_says_what_only_a_newer_release_can_undo(self, host):
        host.converge(SPEC)
        manifest = host.root / "state/manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "claims": {"a": 1}}))
        for _time in range(2):
            ((path, why),) = undo(layout_beside(host.state_dir)).kept
            assert (
                path == str(manifest)
                and why == "has 'claims', which a newer release noted: undo that with the newer one"
            )
        assert not (host.root / "etc").exists()


@given(st.lists(st.sampled_from([SPEC, OTHER, None]), max_size=6))
def test_after_any_sequence_the_file_says_what_was_wanted_last_and_undo_leaves_nothing(tmp_path_factory, wanted):
    host = Host(tmp_path_factory.mktemp("host"))
    for spec in wanted:
        host.converge(spec)
    live = files.read(f"{host.etc}/{FILE}")
    assert (json.loads(live.content) if live else None) == (wanted[-1] if wanted else None)
    undo(layout_beside(host.state_dir))
    assert list(host.root.iterdir()) == []
