# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about single devices: unhealthy, out of service, dropped by the settings while they are held, open in a process
although no request holds them, or kept from containers by SELinux."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import Device
from ...safe_text import one_line
from ...system.mandatory_access import OPEN, SWITCHES, DeniedNode, type_of
from ...system.openers import named_openers
from ..kinds.memory import DROPPED
from .rule import NOTES, DoctorRule, Symptom
from .view import HostView


def _unhealthy(view: HostView) -> Iterator[Symptom]:
    kinds = {file.path: file.spec["kind"] for file in view.written.registry.specs}
    gone = {f"{kinds[path]}={one.expected}" for path, reasons in view.live.stale.items() for one in reasons}
    for device in view.live.ill:
        # A stale spec says more, and a device that is leaving has no fault.
        if gone.isdisjoint(device.qualified_names) and not view.wanted.is_leaving(device):
            yield Symptom(_cause(device), "not handed out", device.qualified_names[0])


def _cause(device: Device) -> str:
    """Return why a device is unhealthy, without its own name before it: many devices may have one cause."""
    what, _colon, fault = device.health.reason.partition(": ")
    own = {device.pci_address, *(node.path for node in device.nodes)}
    return fault if fault and what in own else device.health.reason


def _dropped(view: HostView) -> Iterator[Symptom]:
    for kind, memory in view.wanted.kinds.items():
        for id_ in sorted(memory.leaving):
            yield Symptom(kind, f"{DROPPED}, so it stays in its spec", f"{kind}={memory.offered[id_][0]}")


def _disabled(view: HostView) -> Iterator[Symptom]:
    for name, one in view.wanted.disabled.items():
        until = f"until {one.until}" if one.until else "until it is enabled"
        yield Symptom(one.reason or "no reason was given", f"out of service since {one.since}, {until}", name)


def _occupied(view: HostView) -> Iterator[Symptom]:
    for one in view.running.occupied:
        yield Symptom(one_line(named_openers(one.openers)), "has devices open that nobody holds", one.device)


# These are notes: a container of root has nodes of its own, and not every host has others.


def _cannot_open(view: HostView) -> Iterator[DeniedNode]:
    """Yield the nodes that containers can't open; none if no runtime of this host gives its containers labels."""
    found = view.live.denials
    return (one for one in found.nodes if set(one.denied) & set(OPEN)) if _who(view) else iter(())


def _boolean_off(view: HostView) -> Iterator[Symptom]:
    for one in _cannot_open(view):
        name = _boolean_for(one, view)
        if name:
            yield Symptom(name, f"this boolean of SELinux is off, so containers {_who(view)} can't open", one.path)


def _without_boolean(view: HostView) -> Iterator[Symptom]:
    domain = type_of(view.live.denials.container)
    for one in _cannot_open(view):
        if not _boolean_for(one, view):
            problem = f"SELinux lets no {domain}, so no container {_who(view)}, open devices of this label"
            yield Symptom(type_of(one.label) or "unlabeled_t", problem, one.path)


def _boolean_for(one: DeniedNode, view: HostView) -> str:
    """Return the boolean that opens a node to containers and is off; "" without one."""
    return next((name for name in view.live.denials.off if SWITCHES[name] in ("", type_of(one.label))), "")


def _not_mapped(view: HostView) -> Iterator[Symptom]:
    for one in view.live.denials.nodes if _who(view) else ():
        if not set(one.denied) & set(OPEN):
            label = type_of(one.label)
            yield Symptom(label, f"containers {_who(view)} can open but not map devices of this label", one.path)


def _who(view: HostView) -> str:
    """Return which containers SELinux denies nodes of the host: "" if no runtime of this host gives them labels."""
    names = [one.place.title for one in view.running.runtimes if one.reading and one.reading.labels]
    return f"of {', '.join(names)} in a user namespace (those of ordinary users, for one)" if names else ""


# container-selinux has this type, for "a container which needs to be allowed to use any device".
ONE = "; or, with container-selinux, for one container: `--security-opt label=type:container_device_t`"

RULES = (
    DoctorRule(
        "unhealthy",
        _unhealthy,
        "repair what the reason names; or `fleet-cdi device disable NAME --reason TEXT` until then",
    ),
    DoctorRule(
        "occupied",
        _occupied,
        "end the process that is named (`fleet-cdi grants list --open` shows all); or name its program in "
        "occupied_ignore of the configuration, if it does not use the device",
    ),
    DoctorRule(
        "device-leaving",
        _dropped,
        "nothing: it goes with the refresh after a request gave it back (`fleet-cdi grants list`), and with the next "
        "provisioning after a container that has it was removed (`podman ps --all`, `docker ps --all`), or an engine "
        "answers that could not be asked; on_held 'drop' takes it now",
        status=NOTES,
    ),
    DoctorRule("disabled", _disabled, "`fleet-cdi device enable NAME` when it may be used again"),
    DoctorRule(
        "selinux-devices-off", _boolean_off, "`setsebool -P {subject} on`, for all containers" + ONE, status=NOTES
    ),
    DoctorRule(
        "selinux-denied",
        _without_boolean,
        "`restorecon -R -v /dev` repairs wrong labels; otherwise load a module of the policy that allows it; or, for "
        "one container, `--security-opt label=disable`",
        status=NOTES,
    ),
    DoctorRule(
        "selinux-map-denied",
        _not_mapped,
        "nothing if your programs work; ROCm, for one, needs it: `setsebool -P container_use_devices on`",
        status=NOTES,
    ),
)
