# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a spec no longer agrees with the host: what it names that is gone, or is another one. Private API of fleet.cdi.

Only what a runtime would trip over, or silently get wrong: numbers count where a runtime trusts them (the reference's
fillMissingInfo reads them anew if major is absent or 0), and a startContainer hook not at all, because its path is one
in the container.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from typing import Any, Callable, NamedTuple, Optional

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

NODE_TYPES = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}

_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?\Z")
_VERSION = re.compile(r"(?<=\.so\.)[0-9]+(?:\.[0-9]+)*|[0-9]+(?:\.[0-9]+)+")
_ANY_VERSION = r"[0-9]+(?:\.[0-9]+)*"


class Reason(NamedTuple):
    """One disagreement: at `pointer` (RFC 6901, in the spec) the spec says `expected`, and the host has `found`."""

    rule: str
    pointer: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.pointer}: the spec says {self.expected}, the host has {self.found} [{self.rule}]"


class Host(NamedTuple):
    """How to look at the host; each raises OSError."""

    lstat: Callable[[str], os.stat_result] = os.lstat
    stat: Callable[[str], os.stat_result] = os.stat
    listdir: Callable[[str], list[str]] = os.listdir


LIVE = Host()


def stale(spec: dict[str, Any], wanted: Optional[Collection[str]] = None, host: Host = LIVE) -> tuple[Reason, ...]:
    """Every reason why the valid `spec` is stale; none for one that agrees with the host.

    `wanted` are the names of the devices of its kind that there are now; None if nobody knows. Raises nothing.
    """
    reasons = list(of_edits(spec.get("containerEdits") or {}, "/containerEdits", host))
    listed = [device["name"] for device in spec["devices"]]
    for index, device in enumerate(spec["devices"]):
        if wanted is not None and device["name"] not in wanted:
            reasons.append(Reason("device-gone", f"/devices/{index}/name", "no such device", device["name"]))
        reasons += of_edits(device["containerEdits"], f"/devices/{index}/containerEdits", host)
    for name in wanted or ():
        if name not in listed:
            reasons.append(Reason("device-new", "/devices", name, "no device of that name"))
    return tuple(reasons)


def of_edits(edits: dict[str, Any], pointer: str, host: Host) -> Iterator[Reason]:
    """The reasons in one object of container edits, which stands at `pointer`."""
    for key, check in _CHECKS.items():
        for index, item in enumerate(edits.get(key) or ()):
            yield from check(item, f"{pointer}/{key}/{index}", host)


def _node(node: dict[str, Any], pointer: str, host: Host) -> Iterator[Reason]:
    field = "hostPath" if node.get("hostPath") else "path"
    path = node[field]
    try:
        status = host.lstat(path)  # as the reference: a symlink is no node
    except (OSError, ValueError) as error:
        yield Reason("node-missing", f"{pointer}/{field}", _absence(error), path)
        return
    live = NODE_TYPES.get(stat.S_IFMT(status.st_mode))
    said = "c" if node.get("type") == "u" else node.get("type")  # mknod: u is a character device, too
    if live is None:
        yield Reason("node-missing", f"{pointer}/{field}", f"no device node ({stat.filemode(status.st_mode)})", path)
    elif said and said != live:
        yield Reason("node-type", f"{pointer}/type", live, node["type"])
    elif node.get("major") and live != "p":
        numbers = {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
        for key, number in numbers.items():
            if (node.get(key) or 0) != number:
                yield Reason("node-number", f"{pointer}/{key}", str(number), str(node.get(key) or 0))


def _mount(mount: dict[str, Any], pointer: str, host: Host) -> Iterator[Reason]:
    # The source of anything else, of a tmpfs say, is no path on the host.
    if mount.get("type") in (None, "", "none", "bind") or {"bind", "rbind"} & set(mount.get("options") or ()):
        rule = "library-missing" if _LIBRARY.search(mount["hostPath"]) else "mount-missing"
        yield from _path(rule, mount["hostPath"], f"{pointer}/hostPath", host)


def in_container(hook: dict[str, Any]) -> bool:
    """Whether the program of a hook is one of the container (OCI runtime specification, "POSIX-platform Hooks")."""
    return bool(hook["hookName"] == "startContainer")


def _hook(hook: dict[str, Any], pointer: str, host: Host) -> Iterator[Reason]:
    if not in_container(hook):
        missing = list(_path("hook-missing", hook["path"], f"{pointer}/path", host))
        yield from missing
        mode = 0 if missing else host.stat(hook["path"]).st_mode
        if not missing and not (stat.S_ISREG(mode) and mode & 0o111):
            found = f"a file that can't be executed ({stat.filemode(mode)})"
            yield Reason("hook-not-executable", f"{pointer}/path", found, hook["path"])


def _interface(device: dict[str, Any], pointer: str, host: Host) -> Iterator[Reason]:
    name = device["hostInterfaceName"]
    try:
        host.lstat(f"/sys/class/net/{name}")
    except (OSError, ValueError):
        yield Reason("interface-missing", f"{pointer}/hostInterfaceName", "no such interface", name)


_CHECKS = {"deviceNodes": _node, "netDevices": _interface, "mounts": _mount, "hooks": _hook}


def _path(rule: str, path: str, pointer: str, host: Host) -> Iterator[Reason]:
    try:
        host.stat(path)
    except (OSError, ValueError) as error:
        other = _other_version(path, host)
        yield Reason("driver-version" if other else rule, pointer, other or _absence(error), path)


def _other_version(path: str, host: Host) -> str:
    """The path that only differs from the missing `path` in a version: libcuda.so.550.1 for libcuda.so.535.1, or ""."""
    above, name = os.path.split(path)
    while name:
        try:
            siblings = host.listdir(above)
            break
        except (OSError, ValueError):
            above, name = os.path.split(above)
    else:
        return ""
    same = re.compile(_ANY_VERSION.join(map(re.escape, _VERSION.split(name))) + r"\Z")
    for sibling in sorted(siblings, reverse=True):
        found = os.path.join(above, sibling)
        # libcuda.so.1, a symlink to any version, is no version itself.
        if sibling != name and same.match(sibling) and not _is_symlink(found, host):
            return found
    return ""


def _is_symlink(path: str, host: Host) -> bool:
    try:
        return stat.S_ISLNK(host.lstat(path).st_mode)
    except OSError:
        return True  # gone just now


def _absence(error: Exception) -> str:
    if isinstance(error, (FileNotFoundError, NotADirectoryError, ValueError)):
        return "nothing"
    return f"something that can't be looked at ({getattr(error, 'strerror', error)})"
