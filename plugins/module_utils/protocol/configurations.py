# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configurations of a host: <directory>/<resource-type>.d/<name>.conf.

CDI proposal 2017, "Configuration".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import NamedTuple

from .. import documents
from ..layout import USUAL
from ..records import CdiError
from . import errors, messages
from .errors import ProtocolError
from .messages import Config

DIRECTORY = USUAL.config_dir


class Configuration(NamedTuple):
    """One that is right."""

    path: str
    content: bytes  # as the plugin is to get it on stdin
    config: Config


class Configurations(NamedTuple):
    """The configurations in the order in which they are tried, and why others are none: by path."""

    configurations: tuple[Configuration, ...]
    errors: dict[str, ProtocolError]


def find(directory: str = DIRECTORY, resource_type: str = "") -> Configurations:
    """All configurations, or those of one resource-type, by type and by file name. Raises nothing."""
    found = []
    failed = {}
    for folder in _names(directory, f"{resource_type}.d" if resource_type else ".d", bool(resource_type)):
        for name in _names(os.path.join(directory, folder), ".conf"):
            path = os.path.join(directory, folder, name)
            try:
                found.append(read(path))
            except ProtocolError as error:
                failed[path] = error
    return Configurations(tuple(found), failed)


def directories(written: Iterable[str], usual: str = DIRECTORY) -> tuple[str, ...]:
    """Where this host's configurations are: in `usual`, and where those among `written` (paths, of any files) are."""
    others = {
        os.path.dirname(os.path.dirname(path))
        for path in written
        if path.endswith(".conf") and os.path.dirname(path).endswith(".d")
    }
    return (usual, *sorted(others - {usual}))


def read(path: str) -> Configuration:
    """The configuration at `path`. Raises ProtocolError 2 for its version, 107 for anything else."""
    try:
        content = documents.content(path, messages.LARGEST)
    except CdiError as error:
        raise ProtocolError(errors.CONTENT, f"config: {error}") from None
    if content is None:
        raise ProtocolError(errors.CONTENT, f"config: can't be read ({os.strerror(errno.ENOENT)})")
    config = messages.config(messages.load(content))
    folder = os.path.basename(os.path.dirname(path))
    if folder != f"{config.type}.d":
        raise ProtocolError(
            errors.CONTENT, f"config: 'type' is {config.type!r}, but it is in {folder}; expected {config.type}.d"
        )
    return Configuration(path, content, config)


def _names(directory: str, ending: str, whole: bool = False) -> list[str]:
    """The names in a directory that end so, or are that, sorted; none where there is no such directory."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [name for name in names if (name == ending if whole else name.endswith(ending))]
