# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a spec no longer agrees with the host: what it names that is gone, or is another one.

Only what a runtime would trip over, or silently get wrong: numbers count where a runtime trusts them (the reference's
fillMissingInfo reads them anew if major is absent or 0), and a startContainer hook not at all, because its path is one
in the container.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Callable, NamedTuple, Optional

from ..system import device_nodes

# What a runtime fails on; the other rules are about edits that it applies, wrongly.
MISSING = frozenset(
    {
        "node-missing",
        "mount-missing",
        "library-missing",
        "hook-missing",
        "hook-not-executable",
        "driver-version",
        "interface-missing",
    }
)

_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?\Z")
_VERSION = re.compile(r"(?<=\.so\.)[0-9]+(?:\.[0-9]+)*|(?<![0-9])[0-9]+(?:\.[0-9]+)+")


class Reason(NamedTuple):
    """One disagreement: at `pointer` (RFC 6901, in the spec) the spec says `expected`, and the host has `found`."""

    rule: str
    pointer: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.pointer}: the spec says {self.expected}, the host has {self.found} [{self.rule}]"


class FileView(NamedTuple):
    """How to look at the host; each raises OSError."""

    lstat: Callable[[str], os.stat_result] = os.lstat
    stat: Callable[[str], os.stat_result] = os.stat
    listdir: Callable[[str], list[str]] = os.listdir


LIVE = FileView()


class Glance:
    """One look at a host: it reads each directory once, however many paths are missing there."""

    def __init__(self, host: FileView = LIVE) -> None:
        self.lstat = host.lstat
        self.stat = host.stat
        self._listdir = host.listdir
        self._shapes: dict[str, dict[str, list[str]]] = {}  # directory -> shape -> its names, last first
        self._directories: set[str] = set()  # known to be some
        self._files: dict[tuple[str, str], tuple[str, ...]] = {}  # directory, shape -> the first files of these

    def other_version(self, path: str) -> str:
        """The path that differs from the missing one in a version alone: libcuda.so.550.1 for libcuda.so.535.1, or "".

        Where its directory is missing, too, that may be what differs.
        """
        if not path.startswith("/") or not _VERSION.search(path):
            return ""
        above, name = self._first_missing(path)
        if above not in self._shapes:
            self._shapes[above] = self._of(above)
        found = self._first(above, _shape(name), self._shapes[above])
        return next((os.path.join(above, one) for one in found if one != name), "")

    def _first_missing(self, path: str) -> tuple[str, str]:
        """The last directory on the way to a missing path, and the name that it lacks. Looks at nothing behind it."""
        above = "/"
        for name in filter(None, path.split("/")):
            below = os.path.join(above, name)
            if not self._is_directory(below):
                return above, name
            above = below
        return above, ""

    def _is_directory(self, path: str) -> bool:
        if path not in self._directories:
            try:
                is_one = stat.S_ISDIR(self.stat(path).st_mode)
            except (OSError, ValueError):
                is_one = False
            if not is_one:
                return False
            self._directories.add(path)
        return True

    def _of(self, directory: str) -> dict[str, list[str]]:
        """The names with a version in a directory, by their shape; none where it can't be read."""
        try:
            names = sorted(self._listdir(directory), reverse=True)
        except OSError:
            return {}
        shapes: dict[str, list[str]] = {}
        for name in names:
            if _VERSION.search(name):
                shapes.setdefault(_shape(name), []).append(name)
        return shapes

    def _first(self, directory: str, shape: str, shapes: dict[str, list[str]]) -> tuple[str, ...]:
        """The first two names of a shape: one may be that of the missing path, where that has a file in its way."""
        key = directory, shape
        if key not in self._files:
            # libcuda.so.1, a symlink to any version, does not count as a version.
            files = (one for one in shapes.get(shape, ()) if not self._is_symlink(os.path.join(directory, one)))
            self._files[key] = tuple(islice(files, 2))
        return self._files[key]

    def _is_symlink(self, path: str) -> bool:
        try:
            return stat.S_ISLNK(self.lstat(path).st_mode)
        except OSError:
            return True  # gone just now


def stale(spec: dict[str, Any], wanted: Optional[Collection[str]] = None, host: FileView = LIVE) -> tuple[Reason, ...]:
    """Every reason why the valid `spec` is stale; none for one that agrees with the host.

    `wanted` are the names of the devices of its kind that there are now; None if they are unknown.
    """
    glance = Glance(host)
    reasons = list(of_edits(spec.get("containerEdits") or {}, "/containerEdits", glance))
    listed = {device["name"] for device in spec["devices"]}
    for index, device in enumerate(spec["devices"]):
        if wanted is not None and device["name"] not in wanted:
            reasons.append(Reason("device-gone", f"/devices/{index}/name", "no such device", device["name"]))
        reasons += of_edits(device["containerEdits"], f"/devices/{index}/containerEdits", glance)
    for name in wanted or ():
        if name not in listed:
            reasons.append(Reason("device-new", "/devices", name, "no device of that name"))
    return tuple(reasons)


def of_edits(edits: dict[str, Any], pointer: str, host: Glance) -> Iterator[Reason]:
    """The reasons in one object of container edits, which stands at `pointer`."""
    for key, check in _CHECKS.items():
        for index, item in enumerate(edits.get(key) or ()):
            yield from check(item, f"{pointer}/{key}/{index}", host)


def _node(node: dict[str, Any], pointer: str, host: Glance) -> Iterator[Reason]:
    field = "hostPath" if node.get("hostPath") else "path"
    path = node[field]
    try:
        found = device_nodes.read(path, host.lstat)
    except (OSError, ValueError) as error:
        yield Reason(device_nodes.MISSING, f"{pointer}/{field}", _absence(error), path)
        return
    said = "c" if node.get("type") == "u" else node.get("type")  # mknod: u is a character device, too
    expected = found._replace(type=said or found.type)
    if node.get("major"):
        expected = expected._replace(major=node["major"], minor=node.get("minor") or 0)
    for key, (is_, should) in device_nodes.differences(found, expected).items():
        yield Reason(device_nodes.RULES[key], f"{pointer}/{key}", is_, node["type"] if key == "type" else should)


def _mount(mount: dict[str, Any], pointer: str, host: Glance) -> Iterator[Reason]:
    # The source of other mounts, such as a tmpfs, does not name a path of the host.
    if mount.get("type") in (None, "", "none", "bind") or {"bind", "rbind"} & set(mount.get("options") or ()):
        rule = "library-missing" if _LIBRARY.search(mount["hostPath"]) else "mount-missing"
        yield from _path(rule, mount["hostPath"], f"{pointer}/hostPath", host)


def in_container(hook: dict[str, Any]) -> bool:
    """Whether the program of a hook is one of the container (OCI runtime specification, "POSIX-platform Hooks")."""
    return bool(hook["hookName"] == "startContainer")


def _hook(hook: dict[str, Any], pointer: str, host: Glance) -> Iterator[Reason]:
    if not in_container(hook):
        missing = list(_path("hook-missing", hook["path"], f"{pointer}/path", host))
        yield from missing
        mode = 0 if missing else host.stat(hook["path"]).st_mode
        if not missing and not (stat.S_ISREG(mode) and mode & 0o111):
            found = f"a file that can't be executed ({stat.filemode(mode)})"
            yield Reason("hook-not-executable", f"{pointer}/path", found, hook["path"])


def _interface(device: dict[str, Any], pointer: str, host: Glance) -> Iterator[Reason]:
    name = device["hostInterfaceName"]
    try:
        host.lstat(f"/sys/class/net/{name}")
    except (OSError, ValueError):
        yield Reason("interface-missing", f"{pointer}/hostInterfaceName", "no such interface", name)


_CHECKS = {"deviceNodes": _node, "netDevices": _interface, "mounts": _mount, "hooks": _hook}


def _path(rule: str, path: str, pointer: str, host: Glance) -> Iterator[Reason]:
    try:
        host.stat(path)
    except (OSError, ValueError) as error:
        other = host.other_version(path)
        yield Reason("driver-version" if other else rule, pointer, other or _absence(error), path)


def _shape(name: str) -> str:
    """A name without its versions, which is the same for all versions of a file."""
    return _VERSION.sub("\0", name)


def _absence(error: Exception) -> str:
    if isinstance(error, device_nodes.NoNode):
        return f"no device node ({error.mode})"
    if isinstance(error, (FileNotFoundError, NotADirectoryError, ValueError)):
        return "nothing"
    return f"something that can't be looked at ({getattr(error, 'strerror', error)})"
