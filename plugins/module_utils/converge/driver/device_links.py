# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the links to device nodes by their numbers, /dev/char/195:0 -> ../nvidia0, that udev does not make.

Some runtimes tell systemd only about devices that have such a link (runtimes/oci_runtimes.py): a container loses the
others at the next `systemctl daemon-reload`. udev makes a link for every device of the kernel's device model. NVIDIA's
driver keeps its devices outside of that model, so we make links for nodes without an entry in /sys/dev.

The manifest records each link before it is made. Links that fleet.cdi did not make are never touched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Optional

from ... import directories, files
from ...discovery import inventory
from ...manifest import Manifest, locked_manifest, read_before_look
from ...records import CdiError
from ...spec import registry
from ...spec.registry import Registry
from .. import module_diff

FOLDERS = {stat.S_IFCHR: "char", stat.S_IFBLK: "block"}  # below /dev and /sys/dev
GONE = "is not there"


class DeviceFolders(NamedTuple):
    """The directories in which the kernel shows devices."""

    dev: str = "/dev"
    sysfs: str = "/sys/dev"


HOST = DeviceFolders()


class Numbered(NamedTuple):
    """A device node, and the link by its numbers."""

    node: str
    link: str
    fault: str  # "" if the link leads to the device; GONE; or a text that tells where it leads
    in_sysfs: bool  # the kernel announces the device, so udev has to make the link


class LinkChange(NamedTuple):
    """A link to make or remove: the text of the symlink before and after; "" for no link."""

    path: str
    before: str
    after: str


def nodes(specs: Registry) -> list[str]:
    """Return the paths on the host of all device nodes in the specs."""
    found: dict[str, None] = {}
    for file in specs.specs:
        for edits in _edits(file.spec):
            for node in edits.get("deviceNodes") or ():
                found[node.get("hostPath") or node.get("path") or ""] = None
    return sorted(found)


def numbered_nodes(paths: Iterable[str], places: Optional[DeviceFolders] = None) -> tuple[Numbered, ...]:
    """Return the device nodes at `paths` that are below /dev, in directories that only root can change.

    Of several nodes with one number the first counts. Paths that can't be read are left out.
    """
    found: dict[str, Numbered] = {}
    for path in paths:
        with suppress(OSError, ValueError, CdiError):
            one = _look(path, places or HOST)
            if one is not None:
                found.setdefault(one.link, one)
    return tuple(found.values())


def plan_links(found: Iterable[Numbered], manifest: Manifest, boot_id: str) -> tuple[LinkChange, ...]:
    """Return the links to make, and those of ours to remove or replace.

    A link of ours goes when it no longer leads to its device: numbers change when a driver is loaded again.
    """
    changes = {}
    for path, text in ours(manifest, boot_id).items():
        if not _leads_to_its_number(path):
            changes[path] = LinkChange(path, text, "")
    for one in found:
        if not one.in_sysfs and (one.fault == GONE or one.link in changes):
            text = os.path.relpath(one.node, os.path.dirname(one.link))
            before = changes[one.link].before if one.link in changes else ""
            changes[one.link] = LinkChange(one.link, before, text)
    return tuple(changes.values())


def ours(manifest: Manifest, boot_id: Optional[str] = None) -> dict[str, str]:
    """Return path -> text of the links that we made in this boot and that are unchanged."""
    boot = boot_id or inventory.boot_id()
    made = {path: link["target"] for path, link in manifest.links.items() if link["boot_id"] == boot}
    return {path: text for path, text in made.items() if _text(path) == text}


def keep_links(
    spec_dirs: Sequence[str],
    state_dir: str,
    check: bool,
    boot_id: Optional[str] = None,
    places: Optional[DeviceFolders] = None,
) -> tuple[LinkChange, ...]:
    """Make the links that the nodes of all specs in `spec_dirs` lack.

    Returns what changed, or with `check` would change. Raises CdiError.
    """
    boot = boot_id or inventory.boot_id()

    def planned(manifest: Manifest) -> tuple[LinkChange, ...]:
        return plan_links(numbered_nodes(nodes(registry.load(spec_dirs)), places), manifest, boot)

    before = read_before_look(state_dir)
    changes = planned(before.manifest)
    if check:
        for change in changes:
            files.check_directory(os.path.dirname(change.path))
    if check or not changes:
        return changes
    with locked_manifest(state_dir) as manifest:
        if not before.still_counts(manifest):
            changes = planned(manifest)
        known = {path: {"target": text, "boot_id": boot} for path, text in ours(manifest, boot).items()}
        wanted = {change.path: {"target": change.after, "boot_id": boot} for change in changes if change.after}
        for folder in sorted({os.path.dirname(path) for path in wanted}):
            manifest.directories += files.missing(folder)
        manifest.note_links({**known, **wanted})
        made = tuple(change for change in changes if _carry_out(change))
        left = {change.path for change in changes if change not in made or not change.after}
        manifest.note_links({path: link for path, link in manifest.links.items() if path not in left})
    return made


def take_back_links(manifest: Manifest) -> None:
    """Remove the links that we made, and forget them. Raises CdiError."""
    for path, text in ours(manifest).items():
        _carry_out(LinkChange(path, text, ""))
    manifest.note_links({})


def shown(changes: Iterable[LinkChange]) -> list[dict[str, Any]]:
    """Return the changes as parts of a module's diff."""
    return [
        module_diff.diff(one.path, *(f"symlink to {text}\n" if text else "" for text in (one.before, one.after)))
        for one in changes
    ]


def _edits(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield spec.get("containerEdits") or {}
    for device in spec["devices"]:
        yield device.get("containerEdits") or {}


def _look(path: str, places: DeviceFolders) -> Optional[Numbered]:
    """Return the node at `path` with its link; None if it is not a device node below /dev.

    Raises OSError, ValueError, CdiError.
    """
    if not path.startswith(f"{places.dev}/") or os.path.normpath(path) != path:
        return None
    os.close(directories.opened(os.path.dirname(path)))
    status = os.lstat(path)
    folder = FOLDERS.get(stat.S_IFMT(status.st_mode))
    if folder is None:
        return None
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    link = f"{places.dev}/{folder}/{number}"
    return Numbered(path, link, _fault(link), os.path.lexists(f"{places.sysfs}/{folder}/{number}"))


def _fault(link: str) -> str:
    if not os.path.lexists(link):
        return GONE
    return "" if _leads_to_its_number(link) else f"leads to {_text(link) or 'something else'}, which is not that device"


def _leads_to_its_number(link: str) -> bool:
    folder, number = link.split("/")[-2:]
    try:
        status = os.stat(link)
    except OSError:
        return False
    found = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return FOLDERS.get(stat.S_IFMT(status.st_mode)) == folder and found == number


def _text(link: str) -> str:
    """Return the text of a symlink; "" if it can't be read."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _carry_out(change: LinkChange) -> bool:
    """Make the change. Return False if another process changed or made the link meanwhile. Raises CdiError."""
    folder, name = os.path.split(change.path)
    try:
        if change.after:
            files.make_directory(folder)
        at = directories.opened(folder)
        try:
            if change.before:
                if os.readlink(name, dir_fd=at) != change.before:
                    return False
                os.unlink(name, dir_fd=at)
            if change.after:
                os.symlink(change.after, name, dir_fd=at)
        finally:
            os.close(at)
    except (FileExistsError, FileNotFoundError):
        return False
    except OSError as error:
        raise CdiError(f"{change.path}: can't change this link: {error.strerror}. Run as root.") from None
    return True
