# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI in docker's daemon.json: `features.cdi` and `cdi-spec-dirs`.

Source: moby/moby, daemon/config/config.go and cmd/dockerd/daemon.go of 25.0 to 28.5.
"""

from __future__ import annotations

from typing import Any, Optional

from ..layout import USUAL
from ..records import CdiError
from .arguments import flag, values
from .edit import json_text
from .edit.key import Path, get
from .place import CdiReading, InstalledRuntime, Setting, Source, WantedCdi, switch, texts

FEATURE: Path = ("features", "cdi")
SPEC_DIRS: Path = ("cdi-spec-dirs",)
LABELS = "selinux-enabled"  # off by default; also an option
ON_BY_DEFAULT = (28, 2, 0)  # until then off unless the feature is asked for

# Key in the file -> the option of the command line that says the same. dockerd starts with one of them only.
OPTIONS = {"features": "--feature", "cdi-spec-dirs": "--cdi-spec-dir"}


def read(place: InstalledRuntime, source: Source) -> CdiReading:
    """What dockerd does by its file and its command line. Raises CdiError for a file that it would not start with."""
    document = _document(place, source)
    files = (place.config,) if source.read(place.config) is not None else ()
    if not place.reads:
        return CdiReading(False, "none", files=files)
    labels = switch(document.get(LABELS), place.config, LABELS) or flag(place.arguments, f"--{LABELS}")
    feature, feature_by = _feature(place, document)
    dirs, dirs_by = _spec_dirs(place, document)
    dirs = () if dirs == ("",) else dirs  # this turns CDI off as well
    asked = feature if feature is not None else place.numbers >= ON_BY_DEFAULT
    if asked and not dirs:
        feature_by = dirs_by
    return CdiReading(asked and bool(dirs), feature_by, dirs, dirs_by, files, labels=bool(labels))


def settings(place: InstalledRuntime, source: Source, wanted: WantedCdi) -> tuple[Setting, ...]:
    """The keys that make it as wanted. Raises CdiError where the command line says otherwise."""
    document = _document(place, source)
    now = read(place, source)
    keys: list[tuple[Path, Any]] = []
    dirs = wanted.spec_dirs
    if wanted.enabled and dirs is None and not now.spec_dirs:
        dirs = USUAL.spec_dirs
    asked = _feature(place, document)[0]
    on = asked if asked is not None else place.numbers >= ON_BY_DEFAULT
    if on != wanted.enabled and now.enabled != wanted.enabled:
        keys.append((FEATURE, wanted.enabled))
    if wanted.enabled and dirs is not None and dirs != now.spec_dirs:
        keys.append((SPEC_DIRS, list(dirs)))
    for path, value in keys:
        option = OPTIONS[path[0]]
        if values(place.arguments, option):
            raise CdiError(
                f"{place.config}: {'.'.join(path)}: {option} is on the command line of {place.title}, which starts "
                f"with a key set there or in the file, never both; {value!r} is wanted. Remove the option "
                f"({' or '.join(place.units)}), or set it there."
            )
    return (Setting(place.config, tuple(keys)),)


def _document(place: InstalledRuntime, source: Source) -> dict[str, Any]:
    document = json_text.parse(source.read(place.config) or b"", place.config).value
    for key, option in OPTIONS.items():
        twin = next((name for name in document if name != key and name.lower() == key), None)
        if twin is not None:
            raise CdiError(f"{place.config}: found the key {twin!r}; expected {key!r}. Repair it, nothing was changed.")
        if key in document and values(place.arguments, option):
            raise CdiError(
                f"{place.config}: {key}: is set here and by {option} on the command line of {place.title}, which does "
                "not start with both. Remove one, nothing was changed."
            )
    return document


def _feature(place: InstalledRuntime, document: dict[str, Any]) -> tuple[Optional[bool], str]:
    features = document.get(FEATURE[0])
    found = switch(get(document, FEATURE), place.config, ".".join(FEATURE))
    if found is None and isinstance(features, dict) and FEATURE[1] in features:
        found = False  # null: Go's parser leaves the switch at its initial value
    if found is not None:
        return found, place.config
    for word in values(place.arguments, OPTIONS["features"]):
        name, _equals, value = word.partition("=")
        if name == "cdi":
            return value.lower() in ("", "1", "t", "true"), "command line"
    return None, "default"


def _spec_dirs(place: InstalledRuntime, document: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    listed = document.get(SPEC_DIRS[0])
    if listed is not None:
        # By the same rule a null in a list is an empty text.
        plain = ["" if item is None else item for item in listed] if isinstance(listed, list) else listed
        return texts(plain, place.config, SPEC_DIRS[0]), place.config
    given = values(place.arguments, OPTIONS[SPEC_DIRS[0]])
    return (tuple(given), "command line") if given else (USUAL.spec_dirs, "default")
