# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI in CRI-O: always on from 1.24; `cdi_spec_dirs` of [crio.runtime], in a drop-in file.

Source: cri-o/cri-o, crio.conf(5) and crio.conf.d(5): files of the directory overrule the main one, by name, and the
command line overrules all.
"""

from __future__ import annotations

from ..layout import USUAL
from ..records import CdiError
from .arguments import flag, values
from .edit import toml_text
from .edit.key import Path, get
from .place import CdiReading, InstalledRuntime, Setting, Source, WantedCdi, always_on, last, switch, texts

SPEC_DIRS: Path = ("crio", "runtime", "cdi_spec_dirs")
LABELS: Path = ("crio", "runtime", "selinux")  # off by default; packages for RHEL and Fedora turn it on
OPTION = "--cdi-spec-dirs"
DIRECTORY_OPTIONS = ("--config-dir", "-d")
DROP_IN = "zz-fleet-cdi.conf"


def read(place: InstalledRuntime, source: Source) -> CdiReading:
    """What CRI-O does by its files and its command line. Raises CdiError for a file that it would not start with."""
    dirs: tuple[str, ...] = USUAL.spec_dirs
    by, labels, files = "default", False, []
    for path in (place.config, *source.below(directory(place))):
        content = source.read(path)
        if content is not None:
            files.append(path)
            document = toml_text.parse(content, path).value
            found = get(document, SPEC_DIRS)
            if found is not None:
                dirs, by = texts(found, path, SPEC_DIRS[-1]), path
            said = switch(get(document, LABELS), path, ".".join(LABELS))
            labels = labels if said is None else said
    if not place.reads:
        return CdiReading(False, "none", files=tuple(files))
    given = values(place.arguments, OPTION)
    if given:
        dirs, by = tuple(part for word in given for part in word.split(",")), "command line"
    said = flag(place.arguments, "--selinux")
    return CdiReading(True, "always", dirs, by, tuple(files), labels=labels if said is None else said)


def settings(place: InstalledRuntime, source: Source, wanted: WantedCdi) -> tuple[Setting, ...]:
    """The keys that make it as wanted. Raises CdiError where that can't be."""
    if not wanted.enabled:
        raise always_on(place)
    if values(place.arguments, OPTION):
        raise CdiError(
            f"{place.config}: cdi_spec_dirs: {OPTION} on the command line of {place.title} overrules every file; "
            f"{list(wanted.spec_dirs or ())} is wanted. Remove the option ({place.units[0]}), or set it there."
        )
    path = last(f"{directory(place)}/{DROP_IN}", read(place, source))
    return (Setting(path, ((SPEC_DIRS, list(wanted.spec_dirs or ())),)),)


def directory(place: InstalledRuntime) -> str:
    """Return the directory of its drop-in files."""
    named = values(place.arguments, *DIRECTORY_OPTIONS)
    return named[-1] if named else f"{place.config}.d"
