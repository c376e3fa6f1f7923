# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor: devices that SELinux keeps from containers."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import rule, view
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import CdiReading
from ansible_collections.fleet.cdi.plugins.module_utils.system import mandatory_access
from ansible_collections.fleet.cdi.plugins.module_utils.system.mandatory_access import Denials, DeniedNode, WrongLabel
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import runtime

CONTAINER = "system_u:system_r:container_t:s0"
OFF = ("container_use_devices",)
ALL = ("open", "read", "write", "map")
CARDS = tuple(DeniedNode(f"/dev/nvidia{n}", "system_u:object_r:xserver_misc_device_t:s0", ALL) for n in (0, 1))
KFD = DeniedNode("/dev/kfd", "system_u:object_r:hsa_device_t:s0", ("map",))
BARE = DeniedNode("/dev/uio0", "", ALL)


def with_labels(name, version, labels=True):
    one = runtime(name, version, "0.8.0")
    return one._replace(reading=CdiReading(True, "always", ("/etc/cdi",), labels=labels))


PODMAN = with_labels("podman", "5.4.2")
DOCKER = with_labels("docker", "28.2.0", labels=False)


def findings(host, nodes, off, *runtimes):
    """The findings about SELinux, by rule and subject."""
    seen = host.view(*runtimes)
    seen = seen._replace(live=seen.live._replace(denials=Denials(CONTAINER, nodes, off)))
    found = rule.find_problems(RULES, seen)
    return {(one.rule, one.subject): one for one in found if one.rule.startswith("selinux-")}


def test_one_finding_says_that_the_boolean_is_off(host):
    found = findings(host, CARDS, OFF, PODMAN)
    assert set(found) == {("selinux-devices-off", "container_use_devices")}
    (one,) = found.values()
    assert one.details == ("/dev/nvidia0", "/dev/nvidia1") and one.status == rule.NOTES
    assert one.problem == (
        "this boolean of SELinux is off, so containers of podman 5.4.2 in a user namespace (those of ordinary users, "
        "for one) can't open: /dev/nvidia0, /dev/nvidia1"
    )
    assert one.next.startswith("`setsebool -P container_use_devices on`")


def test_where_no_boolean_helps_each_label_is_named_with_its_nodes(host):
    found = findings(host, (*CARDS, BARE), (), PODMAN, DOCKER)
    assert {key: one.details for key, one in found.items()} == {
        ("selinux-denied", "xserver_misc_device_t"): ("/dev/nvidia0", "/dev/nvidia1"),
        ("selinux-denied", "unlabeled_t"): ("/dev/uio0",),
    }
    first = found["selinux-denied", "xserver_misc_device_t"]
    assert first.problem.startswith("SELinux lets no container_t, so no container of podman 5.4.2 in a user namespace")
    assert first.next.startswith("`restorecon -R -v /dev`")


def test_the_boolean_of_one_type_helps_no_other(host):
    dri = DeniedNode("/dev/dri/card0", "system_u:object_r:dri_device_t:s0", ALL)
    found = findings(host, (dri, *CARDS), ("container_use_dri",), PODMAN)
    assert {key: one.details for key, one in found.items()} == {
        ("selinux-devices-off", "container_use_dri"): ("/dev/dri/card0",),
        ("selinux-denied", "xserver_misc_device_t"): ("/dev/nvidia0", "/dev/nvidia1"),
    }
    assert found["selinux-devices-off", "container_use_dri"].next.startswith("`setsebool -P container_use_dri on`")


def test_a_node_that_can_only_not_be_mapped_is_a_note(host):
    (one,) = findings(host, (KFD,), OFF, PODMAN).values()
    assert (one.rule, one.subject, one.details, one.status) == (
        "selinux-map-denied",
        "hsa_device_t",
        ("/dev/kfd",),
        rule.NOTES,
    )


def test_runtimes_that_give_no_labels_are_not_concerned(host):
    assert findings(host, (*CARDS, KFD), OFF, DOCKER) == {}
    assert findings(host, (*CARDS, KFD), OFF) == {}


def test_files_with_a_wrong_label_are_one_finding_for_each_place(host, monkeypatch):
    path = host.put("etc/a.json", "x", ours=True)
    places = host.view().places
    labels = (f"{places.prefix}/bin/fleet-cdi", "usr_t", "bin_t"), (f"{places.prefix}/bin", "usr_t", "bin_t")
    labels = (*map(WrongLabel._make, labels), WrongLabel(path, "", "etc_t"))
    asked = []
    monkeypatch.setattr(mandatory_access, "wrong_labels", lambda paths, _run: asked.append(paths) or labels)
    monkeypatch.setattr(mandatory_access, "enforcing", lambda *_places: True)
    found = {one.subject: one for one in host.diagnose() if one.rule == "selinux-label"}
    assert set(found) == {places.prefix, path} and asked == [[places.prefix, places.state_dir, path]]
    assert found[places.prefix].problem == (
        f"has the label usr_t; SELinux's policy wants bin_t: {places.prefix}/bin/fleet-cdi, {places.prefix}/bin"
    )
    assert found[path].problem == f"has the label (none); SELinux's policy wants etc_t: {path}"
    assert found[path].next == f"`restorecon -R -v {path}`"


def test_the_kernel_is_asked_about_the_nodes_of_specs_where_it_enforces(host, monkeypatch):
    host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/null"}])
    places, asked = host.view().places, []
    denials = Denials(CONTAINER, CARDS)
    monkeypatch.setattr(mandatory_access, "denials", lambda nodes: asked.append(list(nodes)) or denials)
    monkeypatch.setattr(mandatory_access, "enforcing", lambda *_places: False)
    assert view.take(places, booted=False).live.denials == mandatory_access.NONE and not asked
    monkeypatch.setattr(mandatory_access, "enforcing", lambda *_places: True)
    assert view.take(places, booted=False).live.denials == denials and asked == [["/dev/null"]]
