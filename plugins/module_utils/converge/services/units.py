# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install, stop and remove our systemd units: the quoting in their texts, their files.

systemd.exec(5), systemd.service(5). The manifest lists the files, so undo removes them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from ... import files, layout
from ...lost_records import OURS
from ...manifest import Manifest, locked_manifest
from ...records import CdiError
from ...system import systemd
from ..apply import apply
from ..change import Change, Plan, plan_file

UNIT_DIR = layout.UNIT_DIR
MODPROBE = "/sbin/modprobe"  # as in systemd's modprobe@.service


def check_path(name: str, path: str) -> None:
    """Raise CdiError for a path that is not absolute, or that has characters that break or hide in a line of a unit."""
    if not path.startswith("/") or not path.isprintable():
        raise CdiError(f"{name}: found {path!r}; expected an absolute path without control characters")


def quoted(path: str) -> str:
    """Quote a path as the first word of a command, or as one of a list of paths: "%" begins a specifier there."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def argument(text: str) -> str:
    """Quote a text as a later word of a command, where "$" also begins a variable."""
    return quoted(text).replace("$", "$$")


def need_systemd(otherwise: str) -> None:
    """Raise CdiError on a host without systemd; `otherwise`: what needs systemd, and what to do without it."""
    if shutil.which("systemctl") is None:
        raise CdiError(f"systemctl: this host has no such program; {otherwise}")


def write_units(contents: Mapping[str, bytes], by: str, state_dir: str, check: bool) -> tuple[Change, ...]:
    """Write these files (path -> content) for the module `by`; `check`: only return the changes. Raises CdiError."""

    def make_plan(manifest: Manifest) -> Plan:
        changes = (
            change
            for path, content in contents.items()
            for change in plan_file(path, content, manifest, by, has_our_form=lambda live: live.startswith(OURS))
        )
        return Plan(UNIT_DIR, tuple(changes), ())

    return apply(make_plan, state_dir, check).changes


def leaving(manifest: Manifest, paths: Iterable[str]) -> list[Change]:
    """Return the changes that remove those of `paths` that the manifest lists.

    Raises CdiError for a file that was changed, so that no unit is stopped whose file has to stay.
    """
    changes = []
    for path in filter(manifest.record, paths):
        manifest.take_back(path, check=True)
        live = files.read(path)
        changes.append(Change(path, "", live.content if live else None, None))
    return changes


def take_back_units(changes: Iterable[Change], state_dir: str) -> None:
    """Remove the files of these changes, or put the earlier ones back. Raises CdiError."""
    with locked_manifest(state_dir) as manifest:
        for change in changes:
            if change.path in manifest.files:  # an undo may have come before the lock
                manifest.take_back(change.path)


def start(run: systemd.Run, live: bool, names: Sequence[str], stale: Sequence[str] = ()) -> None:
    """Enable these units and, if systemd is `live`, restart those that are `stale`. Raises CdiError."""
    systemd.enable(run, names)
    if live and stale:
        systemd.do(run, ["systemctl", "restart", *stale])


def stop(run: systemd.Run, live: bool, names: Sequence[str], disabled: Sequence[str], must_end: bool = False) -> None:
    """Stop the units `names` if systemd is `live`, and disable those in `disabled`, before their files go.

    Ignores errors, as of a unit without a file. With `must_end` raise CdiError, and disable nothing, while one runs.
    """
    if not shutil.which("systemctl"):
        return
    if live:
        _status, said = run(["systemctl", "stop", *names])
        running = systemd.active(run, names) if must_end else ()
        if running:
            raise CdiError(f"{', '.join(running)}: can't be stopped: {' '.join(said.split())}")
    systemd.disable(run, disabled)


def forget(run: systemd.Run, live: bool, names: Sequence[str]) -> None:
    """Make systemd, if it is `live`, forget these units, after their files went."""
    if live and shutil.which("systemctl"):
        with suppress(CdiError):
            systemd.reload(run, names)
        run(["systemctl", "reset-failed", *names])  # fails for a unit that did not fail
