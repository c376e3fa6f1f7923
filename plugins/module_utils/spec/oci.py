# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container edits on an OCI runtime spec, one function per sort of edit.

The semantics are those of the reference library's release 1.1.1 (pkg/cdi/container-edits.go, Apply; oci.go;
internal/ociedit).
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from typing import Any, Callable, Optional

from ..records import CdiError
from ..system.device_nodes import TYPES
from .errors import MissingResource
from .stale import FileView

Document = dict[str, Any]

# The parts of an OCI runtime spec that edits read or change: JSON pointer -> its type, and that of its items.
OCI_PARTS: dict[str, tuple[type, Optional[type]]] = {
    "/process": (dict, None),
    "/process/env": (list, str),
    "/process/user": (dict, None),
    "/process/user/uid": (int, None),
    "/process/user/gid": (int, None),
    "/process/user/additionalGids": (list, int),
    "/mounts": (list, dict),
    "/hooks": (dict, None),
    "/hooks/prestart": (list, dict),
    "/hooks/createRuntime": (list, dict),
    "/hooks/createContainer": (list, dict),
    "/hooks/startContainer": (list, dict),
    "/hooks/poststart": (list, dict),
    "/hooks/poststop": (list, dict),
    "/linux": (dict, None),
    "/linux/namespaces": (list, dict),
    "/linux/devices": (list, dict),
    "/linux/netDevices": (dict, None),
    "/linux/resources": (dict, None),
    "/linux/resources/devices": (list, dict),
    "/linux/intelRdt": (dict, None),
}

# The fields of items in lists that edits compare, or that name what an item is: each is a text, where it is there.
_TEXTS = {
    "/mounts": "destination",
    "/linux/devices": "path",
    "/linux/namespaces": "type",
    **dict.fromkeys((pointer for pointer in OCI_PARTS if pointer.startswith("/hooks/")), "path"),
}

_CALLED = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


def checked_copy(oci: Any) -> Document:
    """`oci` with copies of all that edits may change. Raises CdiError where that has not the type it must have."""
    if not isinstance(oci, dict):
        raise CdiError(f"the OCI spec: found {_called(oci)}; expected an object, as in config.json of a bundle")
    result = dict(oci)
    for pointer, (type_, of) in OCI_PARTS.items():
        *above, last = pointer.split("/")[1:]
        parent: Any = result
        for key in above:
            parent = parent.get(key) or {}
        value = parent.get(last)
        if value is None:
            parent.pop(last, None)  # null is the same as nothing
            continue
        wrong = [value] if not _is(value, type_) else [item for item in value if not _is(item, of)] if of else []
        if wrong:
            expected = _CALLED[type_] + (f" of which each item is {_CALLED[of]}" if of else "")
            raise CdiError(f"the OCI spec: {pointer}: found {_called(wrong[0])}; expected {expected}")
        if pointer in _TEXTS:
            _check_texts(value, pointer, _TEXTS[pointer])
        parent[last] = value if type_ is int else type_(value)
    return result


def _check_texts(items: list[Document], pointer: str, key: str) -> None:
    """Raise CdiError unless `key` of each item is a string, null or missing."""
    for index, item in enumerate(items):
        found = item.get(key)
        if found is not None and not _is(found, str):
            where = f"{pointer}/{index}/{key}"
            raise CdiError(f"the OCI spec: {where}: found {_called(found)}; expected {_CALLED[str]}")


def _is(value: Any, type_: Optional[type]) -> bool:
    return type_ is not None and isinstance(value, type_) and not isinstance(value, bool)


def _called(value: Any) -> str:
    return next((text for type_, text in _CALLED.items() if _is(value, type_)), repr(value))


def set_intel_rdt(oci: Document, intel_rdt: Document) -> None:
    """Replace the present value as a whole."""
    _part(oci, "/linux")["intelRdt"] = dict(intel_rdt)


def _part(oci: Document, pointer: str) -> Any:
    """Return the object or list at `pointer`; make it if it is missing."""
    here, path = oci, ""
    for key in pointer.split("/")[1:]:
        path += "/" + key
        here = here.setdefault(key, OCI_PARTS[path][0]())
    return here


def _env(oci: Document, items: list[str], _host: FileView) -> None:
    env = _part(oci, "/process/env")
    at = {item.partition("=")[0]: index for index, item in enumerate(env)}
    for item in items:
        name = item.partition("=")[0]
        if name in at:
            env[at[name]] = item
        else:
            at[name] = len(env)
            env.append(item)


def _device_nodes(oci: Document, items: list[Document], host: FileView) -> None:
    user = (oci.get("process") or {}).get("user") or {}
    present, devices = _part(oci, "/linux/devices"), []
    for item in items:
        device = _device(item, host)
        for key in ("uid", "gid"):
            if item.get(key) is not None:
                device[key] = item[key]
            elif user.get(key, 0) > 0:
                device[key] = user[key]
        devices.append(device)
        if device["type"] in ("b", "c"):
            access = {"": "rwm", "none": ""}.get(item.get("permissions") or "", item.get("permissions"))
            rule = {"allow": True, **{key: device[key] for key in ("type", "major", "minor")}, "access": access}
            _part(oci, "/linux/resources/devices").append(rule)
    present[:] = _with_devices(present, devices)


def is_complete(node: Document) -> bool:
    """Whether the spec says all of a node, which then need not be there (fillMissingInfo, hasMinimalSpecification)."""
    return bool(node.get("type") and (node.get("major") or node["type"] == "p"))


def _device(node: Document, host: FileView) -> Document:
    """The node as an OCI device (fillMissingInfo): what a spec trusts is taken as written, the rest from the host."""
    path = node.get("hostPath") or node["path"]
    type_, major, minor = node.get("type") or "", node.get("major") or 0, node.get("minor") or 0
    mode = node.get("fileMode")
    try:
        status = host.lstat(path)
        live = TYPES.get(stat.S_IFMT(status.st_mode), "")
    except (OSError, ValueError):
        live = ""
    if not live and not is_complete(node):
        raise MissingResource(f"{path}: found no device node; expected one, or its type and major in the spec", (path,))
    if live and mode is None:
        mode = stat.S_IMODE(status.st_mode)
    if not is_complete(node):
        if type_ and type_ != live:
            raise MissingResource(f"{path}: found a node of type {live}; expected {type_}, as the spec says", (path,))
        type_ = live
        if not major and live != "p":
            major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    device = {"path": node["path"], "type": type_, "major": major, "minor": minor}
    return device if mode is None else {**device, "fileMode": mode}


def _with_devices(present: list[Document], given: list[Document]) -> list[Document]:
    """`present` with the devices `given`, as if they came one by one (RemoveDevice, AddDevice).

    A device removes the first one that has its path. Then it replaces the next one with this path, or is added at the
    end. So n devices with one path remove the first n, and only the last of these devices stays.
    """
    left = Counter(device["path"] for device in given)  # of a path, so many go
    last: dict[Optional[str], Document] = {}
    for device in given:
        last.pop(device["path"], None)  # its place is the end
        last[device["path"]] = device
    result = []
    for device in present:
        path = device.get("path")
        if left[path]:
            left[path] -= 1
        else:
            result.append(last.pop(path, device))
    return [*result, *last.values()]


def _net_devices(oci: Document, items: list[Document], _host: FileView) -> None:
    for item in items:
        _part(oci, "/linux/netDevices")[item["hostInterfaceName"]] = {"name": item["name"]}


def _mounts(oci: Document, items: list[Document], _host: FileView) -> None:
    mounts = _part(oci, "/mounts")
    in_user_namespace = any(one.get("type") == "user" for one in (oci.get("linux") or {}).get("namespaces") or ())
    given = []
    for item in items:
        mount = {"destination": item["containerPath"], "source": item["hostPath"]}
        mount.update({key: item[key] for key in ("type", "options") if item.get(key)})
        option = _id_map(mount) if in_user_namespace else ""
        if option:
            mount["options"] = [*mount.get("options", ()), option]
        given.append(mount)
    mounts[:] = sorted(_with_mounts(mounts, given), key=lambda mount: _depth(mount.get("destination") or ""))


def _with_mounts(present: list[Document], given: list[Document]) -> list[Document]:
    """`present` with the mounts `given`, as if they came one by one: each takes the first at its destination out.

    So of n mounts the first n go there, of those present and given; one less where none was present.
    """
    there = {mount.get("destination") for mount in present}
    left = Counter(mount["destination"] for mount in given)
    left.subtract(destination for destination in list(left) if destination not in there)
    result = []
    for mount in [*present, *given]:
        destination = mount.get("destination")
        if left[destination]:
            left[destination] -= 1
        else:
            result.append(mount)
    return result


def _id_map(mount: Document) -> str:
    """The option that a bind mount needs in a user namespace (oci.go, withIDMapForBindMount), or ""."""
    option = "idmap" if mount.get("type") == "bind" else ""
    for given in mount.get("options", ()):
        if given in ("idmap", "ridmap"):
            return ""
        option = {"bind": "idmap", "rbind": "ridmap"}.get(given, option)
    return option


def _depth(destination: str) -> int:
    clean = os.path.normpath(destination)
    return clean.count("/") - clean.startswith("//")  # POSIX keeps two slashes at the start, Go doesn't


def _hooks(oci: Document, items: list[Document], _host: FileView) -> None:
    for item in items:
        hook = {key: item[key] for key in ("path", "args", "env", "timeout") if item.get(key) is not None}
        _part(oci, f"/hooks/{item['hookName']}").append(hook)


def _additional_gids(oci: Document, items: list[int], _host: FileView) -> None:
    gids = dict.fromkeys(gid for gid in items if gid)
    if gids:
        present = _part(oci, "/process/user/additionalGids")
        known = set(present)
        present += [gid for gid in gids if gid not in known]


# In the reference's order. intelRdt, which is one object, comes before additionalGids there; nothing depends on it.
APPLY: dict[str, Callable[[Document, list[Any], FileView], None]] = {
    "env": _env,
    "deviceNodes": _device_nodes,
    "netDevices": _net_devices,
    "mounts": _mounts,
    "hooks": _hooks,
    "additionalGids": _additional_gids,
}
