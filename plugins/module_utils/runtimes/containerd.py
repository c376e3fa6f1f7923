# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI in containerd's config.toml: `enable_cdi` and `cdi_spec_dirs` of the CRI plugin.

Source: containerd/containerd, services/server/config/config.go (1.7), cmd/containerd/server/config/config.go (2.x), and
`containerd config dump` of 1.7.24, 2.1.9 and 2.3.0. How its files become one:

- 1.7: a table of a plugin in a later file takes the place of the whole earlier one; CDI is off unless enabled.
- 2.0 to 2.2: tables are merged, then the names of version 2 are changed to those of 3 if the last version said is 2.
- 2.3: each file is brought to version 4, then tables are merged.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from ..files import canonical
from ..layout import USUAL
from ..records import CdiError
from .edit import toml_text
from .edit.key import Path, get
from .place import CdiReading, InstalledRuntime, Setting, Source, WantedCdi, switch, texts

FIRST: Path = ("plugins", "cri")  # configuration version 1
SECOND: Path = ("plugins", "io.containerd.grpc.v1.cri")
THIRD: Path = ("plugins", "io.containerd.cri.v1.runtime")  # and 4
ENABLE, SPEC_DIRS = "enable_cdi", "cdi_spec_dirs"
LABELS = "enable_selinux"  # off by default
DROP_IN = "zz-fleet-cdi.toml"  # after 99-nvidia.toml, which has a copy of all keys


class File(NamedTuple):
    """One file, as containerd merges it."""

    path: str
    document: dict[str, Any]

    @property
    def version(self) -> int:
        """What it says; 0 where it says none."""
        found = self.document.get("version", 0)
        if isinstance(found, bool) or not isinstance(found, int):
            raise CdiError(f"{self.path}: version: found {found!r}; expected a whole number. Repair it.")
        return found


class EffectiveKey(NamedTuple):
    """A key in force: its value, and the file and the table from which it comes."""

    value: Any
    path: str
    table: Path


def read(place: InstalledRuntime, source: Source) -> CdiReading:
    """What containerd does by its files. Raises CdiError for files that it would not start with."""
    files = _load(place, source)
    paths = tuple(file.path for file in files)
    if not place.reads:
        return CdiReading(False, "none", files=paths)
    keys = _in_force(place, files)
    enable, dirs, labels = keys.get(ENABLE), keys.get(SPEC_DIRS), keys.get(LABELS)
    asked = switch(enable.value, enable.path, ENABLE) if enable else place.numbers >= (2, 0, 0)
    spec_dirs = texts(dirs.value, dirs.path, SPEC_DIRS) if dirs else USUAL.spec_dirs
    return CdiReading(
        bool(asked) and bool(spec_dirs),
        enable.path if enable else "default",
        spec_dirs,
        dirs.path if dirs else "default",
        paths,
        _warnings(files),
        bool(labels and switch(labels.value, labels.path, LABELS)),
    )


def settings(place: InstalledRuntime, source: Source, wanted: WantedCdi) -> tuple[Setting, ...]:
    """The keys that make it as wanted: in a drop-in file where tables are merged and one is imported, otherwise where
    they are in force. Raises CdiError where neither goes."""
    now = read(place, source)
    keys: list[tuple[str, Any]] = []
    if now.enabled != wanted.enabled:
        keys.append((ENABLE, wanted.enabled))
    dirs = wanted.spec_dirs
    if wanted.enabled and dirs is None and not now.spec_dirs:
        dirs = USUAL.spec_dirs
    if wanted.enabled and dirs is not None and dirs != now.spec_dirs:
        keys.append((SPEC_DIRS, list(dirs)))
    files = _load(place, source)
    if place.numbers >= (2, 0, 0):
        drop_in = _drop_in(place, source, files, keys)
        if drop_in is not None:
            return (drop_in,)
    if place.generated:
        raise CdiError(
            f"{place.config}: is written anew at every start of {place.installation}, and imports no directory that "
            f"{place.title} merges; {', '.join(key for key, _value in keys)} can't be set. Add it to a template of "
            f"your own beside it (config.toml.tmpl), or use a release of {place.installation} with containerd 2."
        )
    return _in_place(place, files, keys)


def _load(place: InstalledRuntime, source: Source) -> list[File]:
    """The files in the order in which containerd merges them. Raises CdiError."""
    files: list[File] = []
    if source.read(place.config) is None:
        return files
    pending, seen = [place.config], set()
    while pending:
        path = pending.pop(0)
        if path in seen:  # one that imports another that imports it: containerd reads each once
            continue
        seen.add(path)
        content = source.read(path)
        if content is None:
            by = next(file.path for file in files if path in _imports(file, source))
            raise CdiError(
                f"{by}: imports: found no file {path}; expected one, as containerd does not start without it. Repair "
                "it, nothing was changed."
            )
        file = File(path, toml_text.parse(content, path).value)
        files.append(file)
        pending += _imports(file, source)
    return files


def _imports(file: File, source: Source) -> list[str]:
    found = []
    for pattern in texts(file.document.get("imports", []), file.path, "imports"):
        path = os.path.normpath(os.path.join(os.path.dirname(file.path), pattern))
        found += source.glob(path) if "*" in path else [path]
    return found


def _in_force(place: InstalledRuntime, files: list[File]) -> dict[str, EffectiveKey]:
    """Return the keys of the CRI plugin that are in force."""
    said = [file.version for file in files if file.version]
    version = said[-1] if said else 0
    merged: dict[str, EffectiveKey] = {}
    if place.numbers < (2, 0, 0):
        name = SECOND if version > 1 else FIRST
        for file in files:
            if _table(file, name) is not None:
                merged = _keys(file, name)
    elif place.numbers < (2, 3, 0):
        second = {key: found for file in files for key, found in _keys(file, SECOND).items()} if version == 2 else {}
        third = {key: found for file in files for key, found in _keys(file, THIRD).items()}
        merged = {**second, **third}
    else:
        for file in files:
            older = {**(_keys(file, FIRST) if file.version < 2 else {}), **_keys(file, SECOND)}
            merged.update({**(older if file.version < 4 else {}), **_keys(file, THIRD)})
    return merged


def _keys(file: File, name: Path) -> dict[str, EffectiveKey]:
    table = _table(file, name) or {}
    return {key: EffectiveKey(table[key], file.path, name) for key in (ENABLE, SPEC_DIRS, LABELS) if key in table}


def _table(file: File, name: Path) -> Optional[dict[str, Any]]:
    found = get(file.document, name)
    if found is not None and not isinstance(found, dict):
        raise CdiError(f"{file.path}: {name[-1]}: found {found!r}; expected a table. Repair it, nothing was changed.")
    return found


def _drop_in(
    place: InstalledRuntime, source: Source, files: list[File], keys: list[tuple[str, Any]]
) -> Optional[Setting]:
    """A file of our own in a directory that the main file imports, if it wins there."""
    root = files[0] if files else None
    if root is None:
        return None
    # Without a version where the main file has none: one that said 2 would put other keys of that in force.
    version = root.version
    name = SECOND if version == 2 else THIRD
    first = ((("version",), version),) if version >= 2 else ()
    for pattern in texts(root.document.get("imports", []), root.path, "imports"):
        directory = os.path.normpath(os.path.join(os.path.dirname(root.path), os.path.dirname(pattern)))
        path = canonical(os.path.join(directory, DROP_IN))
        if "*" in directory or "*" not in os.path.basename(pattern):
            continue
        setting = Setting(path, tuple(((*name, key), value) for key, value in keys), first)
        sample = File(path, {"version": version, "plugins": {name[1]: dict(keys)}})
        try:
            reached = path in _imports(root, source.with_({path: b""}))
        except CdiError:
            continue
        others = [file for file in files if file.path != path]
        after = _in_force(place, _sorted([*others, sample], root, source.with_({path: b""})))
        if reached and all(after[key].path == path for key, _value in keys):
            return setting
    return None


def _sorted(files: list[File], root: File, source: Source) -> list[File]:
    """`files` in the order of loading, when one of them is new among those that `root` imports."""
    order = [root.path, *_imports(root, source)]
    known = [file for path in order for file in files if file.path == path]
    return known + [file for file in files if file.path not in order]


def _in_place(place: InstalledRuntime, files: list[File], keys: list[tuple[str, Any]]) -> tuple[Setting, ...]:
    """Each key in the file where it is in force, otherwise in that which has the table, otherwise in the main one."""
    now = _in_force(place, files)
    said = [file.version for file in files if file.version]
    version = said[-1] if said else (0 if files else _newest(place))
    # Containerd 2 reads a file without version as if its plugins were called by their newest names.
    name = THIRD if version >= 3 or (version < 2 and place.numbers >= (2, 0, 0)) else SECOND if version == 2 else FIRST
    having = [file.path for file in files if _table(file, name) is not None]
    usual = having[-1] if having else place.config
    found: dict[str, list[tuple[Path, Any]]] = {}
    for key, value in keys:
        at = now.get(key)
        found.setdefault(at.path if at else usual, []).append(((*(at.table if at else name), key), value))
    return tuple(Setting(path, tuple(these), ((("version",), version),)) for path, these in found.items())


def _newest(place: InstalledRuntime) -> int:
    """The configuration version that a new file gets."""
    return 2 if place.numbers < (2, 0, 0) else 3 if place.numbers < (2, 3, 0) else 4


def _warnings(files: list[File]) -> tuple[str, ...]:
    off = {"cri", *(".".join(name[1:]) for name in (SECOND, THIRD))}
    return tuple(
        f"{file.path}: disabled_plugins: turns the CRI plugin off, so that no kubelet can use this containerd"
        for file in files
        if off & set(texts(file.document.get("disabled_plugins", []), file.path, "disabled_plugins"))
    )
