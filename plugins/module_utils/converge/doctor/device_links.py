# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about links to device nodes by their numbers. Without them some runtimes lose devices to systemd."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...runtimes.oci_runtimes import needs_link
from ..driver.device_links import GONE, Numbered
from .rule import DoctorRule, Symptom
from .view import HostView

LOSS = "with systemd cgroups lose a device without one at the next `systemctl daemon-reload`"


def _missing(in_sysfs: bool, view: HostView) -> Iterator[Symptom]:
    for one in view.live.numbered:
        who = _losing(view, one)
        if who and one.fault == GONE and one.in_sysfs == in_sysfs:
            folder = one.link.rpartition("/")[0]
            yield Symptom(folder, f"no link by their numbers, and containers of {who} {LOSS}", one.node)


def _wrong(view: HostView) -> Iterator[Symptom]:
    for one in view.live.numbered:
        who = _losing(view, one)
        if who and one.fault not in ("", GONE):
            yield Symptom(one.link, f"{one.fault}, {one.node}; containers of {who} {LOSS}")


def _losing(view: HostView, one: Numbered) -> str:
    """Return the runtimes of this host whose containers lose the device."""
    return ", ".join(found.label for found in view.running.oci_runtimes if needs_link(found, one.in_sysfs))


ANEW = "; then start the containers again that have the device, as a link helps only those that start after it"

RULES = (
    DoctorRule("device-link-missing", partial(_missing, False), "`fleet-cdi refresh` as root makes it" + ANEW),
    DoctorRule("device-link-of-udev", partial(_missing, True), "`udevadm trigger --settle` has udev make it" + ANEW),
    DoctorRule("device-link-wrong", _wrong, "`rm {subject}`; then `fleet-cdi refresh` as root, which makes it" + ANEW),
)
