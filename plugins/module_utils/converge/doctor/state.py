# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the directories that fleet.cdi writes to, the manifest, and the record of devices out of service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from ...claims.ended import checksum_path
from ...layout import device_state_path
from . import advice
from .rule import DoctorRule, Symptom
from .view import HostView


def _full(view: HostView) -> Iterator[Symptom]:
    for one in view.written.places:
        if one.full:
            yield Symptom(one.path, f"its file system has {one.full}, so nothing here can be written")


def _read_only(view: HostView) -> Iterator[Symptom]:
    """Find directories of files that change between two runs of the role."""
    ours = {view.places.state_dir, *(memory.directory for memory in view.wanted.kinds.values())}
    for one in view.written.places:
        if one.read_only and one.path in ours:
            yield Symptom(one.path, "its file system is read-only, so nothing here can be written")


def _manifest_unusable(denied: bool, view: HostView) -> Iterator[Symptom]:
    yield from _unusable(denied, view.wanted.manifest.path, view.wanted.manifest_error, view)


def _disabled_unusable(denied: bool, view: HostView) -> Iterator[Symptom]:
    path = device_state_path(os.path.dirname(view.wanted.manifest.path))
    yield from _unusable(denied, path, view.wanted.disabled_error, view)


def _unusable(denied: bool, path: str, error: str, view: HostView) -> Iterator[Symptom]:
    """Find a file that can't be used: one that this user may not read, or (not `denied`) another one."""
    if error and (error in view.wanted.denied) == denied:
        yield Symptom(path, error)


def _manifest_gone(view: HostView) -> Iterator[Symptom]:
    if view.wanted.lost:
        yield Symptom(view.wanted.manifest.path, view.wanted.lost)


def _manifest_changed(view: HostView) -> Iterator[Symptom]:
    if view.wanted.manifest_changed:
        yield Symptom(view.wanted.manifest.path, "was changed since fleet.cdi saved it: by an editor, or by a backup")


def _irregular(view: HostView) -> Iterator[Symptom]:
    for path, problem in view.written.irregular.items():
        yield Symptom(path, problem, explains=(path, path.removesuffix("-journal")))


def _untrusted(view: HostView) -> Iterator[Symptom]:
    for path, problem in view.written.untrusted.items():
        yield Symptom(path, problem)


def _ended_lost(view: HostView) -> Iterator[Symptom]:
    paths = (view.places.ended_claims, checksum_path(view.places.ended_claims))
    if view.written.ended_lost and view.written.irregular.keys().isdisjoint(paths):
        yield Symptom(view.places.ended_claims, view.written.ended_lost)


def _unused_damaged(view: HostView) -> Iterator[Symptom]:
    if view.written.unused_damaged:
        yield Symptom(view.places.unused_claims, view.written.unused_damaged)


AS_ROOT = "run `sudo fleet-cdi doctor`"
RESTORE = "restore it from a backup; or move it away (`mv {subject} {subject}.old`), and "

RULES = (
    DoctorRule("disk-full", _full, "free some space (`df {subject}`, `df -i {subject}`); then " + advice.PROVISION),
    DoctorRule("read-only", _read_only, "`findmnt -T {subject}` shows the mount; then " + advice.PROVISION),
    DoctorRule("manifest-unread", partial(_manifest_unusable, True), AS_ROOT),
    DoctorRule("manifest-damaged", partial(_manifest_unusable, False), RESTORE + advice.PROVISION),
    DoctorRule("manifest-gone", _manifest_gone, "restore it from a backup; or " + advice.PROVISION),
    DoctorRule("manifest-changed", _manifest_changed, f"look at it; then {advice.PROVISION}, which saves it again"),
    DoctorRule(
        "irregular-file",
        _irregular,
        "move it away (`mv {subject} {subject}.old`), since nobody can lock or write it; fleet.cdi makes locks and "
        "notes again, and `fleet-cdi refresh` makes lists of devices",
    ),
    DoctorRule(
        "untrusted-directory",
        _untrusted,
        "change the owner and mode of the directory that is named (`namei -l {subject}` shows all on the way)",
    ),
    DoctorRule(
        "ended-claims-lost",
        _ended_lost,
        "a name that ended may be used again while a container knows it: give each new claim a new name until the next "
        "reboot (`systemctl reboot`), which ends this",
    ),
    DoctorRule(
        "unused-claims-damaged",
        _unused_damaged,
        "`fleet-cdi claim gc --idle-for SECONDS` writes it anew, and counts the seconds of each claim from then on",
    ),
    DoctorRule("device-state-unread", partial(_disabled_unusable, True), AS_ROOT),
    DoctorRule(
        "device-state-damaged",
        partial(_disabled_unusable, False),
        RESTORE + "take out of service again what must not be used: `fleet-cdi device disable DEVICE --reason TEXT`",
    ),
)
