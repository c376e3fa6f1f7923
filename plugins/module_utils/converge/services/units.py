# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units of systemd that we install: their sandbox, the words in their texts, their files, and how they go again.

systemd.exec(5), systemd.service(5). The files are in the manifest, so that undo takes them back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from ... import files
from ...manifest import Manifest, locked_manifest
from ...records import CdiError
from ...system import systemd
from ..apply import apply
from ..change import Change, Plan, plan_file

UNIT_DIR = "/etc/systemd/system"

# Each service of ours has these lines.
SANDBOX = """\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native"""

# Those that run for long, and answer others, have these as well.
CONFINED = """\
PrivateMounts=yes
MemoryDenyWriteExecute=yes
KeyringMode=private
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
UMask=0077"""


def check_path(name: str, path: str) -> None:
    """Raise CdiError for a path that is not absolute, or would not stay on one line of a unit, or not be seen there."""
    if not path.startswith("/") or not path.isprintable():
        raise CdiError(f"{name}: found {path!r}; expected an absolute path without control characters")


def quoted(path: str) -> str:
    """A path as the first word of a command, or as one of a list of paths: "%" begins a specifier there."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def argument(text: str) -> str:
    """A text as a later word of a command, where "$" begins a variable, too."""
    return quoted(text).replace("$", "$$")


def need_systemd(otherwise: str) -> None:
    """Raise CdiError on a host without systemd; `otherwise`: what needs it, and what to do there."""
    if shutil.which("systemctl") is None:
        raise CdiError(f"systemctl: this host has no such program; {otherwise}")


def write_units(contents: Mapping[str, bytes], by: str, state_dir: str, check: bool) -> tuple[Change, ...]:
    """Write these files (path -> content) for the module `by`, or only say what would change. Raises CdiError."""

    def make_plan(manifest: Manifest) -> Plan:
        changes = (change for path, content in contents.items() for change in plan_file(path, content, manifest, by))
        return Plan(UNIT_DIR, tuple(changes), ())

    return apply(make_plan, state_dir, check).changes


def leaving(manifest: Manifest, paths: Iterable[str]) -> list[Change]:
    """The changes that take back those of `paths` that the manifest lists.

    Raises CdiError for a file that was changed since: before a unit stops whose file could not go.
    """
    changes = []
    for path in filter(manifest.record, paths):
        manifest.take_back(path, check=True)
        live = files.read(path)
        changes.append(Change(path, "", live.content if live else None, None))
    return changes


def take_back_units(changes: Iterable[Change], state_dir: str) -> None:
    """Take the files of these changes back. Raises CdiError."""
    with locked_manifest(state_dir) as manifest:
        for change in changes:
            manifest.take_back(change.path)


def forget(run: systemd.Run, live: bool, names: Sequence[str]) -> None:
    """Have a systemd that is `live` forget these units, after their files went."""
    if live and shutil.which("systemctl"):
        with suppress(CdiError):
            systemd.reload(run, names)
        run(["systemctl", "reset-failed", *names])  # fails for a unit that did not fail
