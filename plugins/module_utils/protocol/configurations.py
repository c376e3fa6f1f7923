# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the configurations of a host: <directory>/<resource-type>.d/<name>.conf (CDI proposal 2017, "Configuration")."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from .. import documents
from ..layout import USUAL
from ..records import CdiError
from . import errors, messages
from .errors import ProtocolError
from .messages import Config

DIRECTORY = USUAL.config_dir


class Configuration(NamedTuple):
    """A valid configuration."""

    path: str
    content: bytes  # for the plugin's stdin
    config: Config


class Configurations(NamedTuple):
    """The valid configurations in the order of use, and the errors of others, and of directories, by path."""

    configurations: tuple[Configuration, ...]
    errors: dict[str, ProtocolError]


def find(
    directory: str = DIRECTORY, resource_type: str = "", planned: Optional[Mapping[str, Optional[bytes]]] = None
) -> Configurations:
    """Return all configurations, or those of one resource-type, sorted by type and file name.

    `planned` are contents by path that files of `directory` will have; None: there will be no such file.
    """
    planned = planned or {}
    failed: dict[str, ProtocolError] = {}
    paths = [
        os.path.join(directory, folder, name)
        for folder in _names(directory, f"{resource_type}.d" if resource_type else ".d", failed, bool(resource_type))
        for name in _names(os.path.join(directory, folder), ".conf", failed)
    ]
    new = [path for path in planned if os.path.dirname(os.path.dirname(path)) == directory]
    found = []
    for path in sorted({*paths, *new}, key=os.path.split):
        try:
            content = planned[path] if path in planned else _content(path)
            if content is not None:
                found.append(parsed(path, content))
        except ProtocolError as error:
            failed[path] = error
    return Configurations(tuple(found), failed)


def directories(written: Iterable[str], usual: str = DIRECTORY) -> tuple[str, ...]:
    """Return the directories of configurations: `usual`, and those of configurations among the `written` paths."""
    others = {
        os.path.dirname(os.path.dirname(path))
        for path in written
        if path.endswith(".conf") and os.path.dirname(path).endswith(".d")
    }
    return (usual, *sorted(others - {usual}))


def may_be_of(resource_type: str, path: str) -> bool:
    """Return True if a configuration of this type may be at `path`, which can't be read, or in that directory."""
    folder = os.path.dirname(path) if path.endswith(".conf") else path
    return not folder.endswith(".d") or os.path.basename(folder) == f"{resource_type}.d"


def read(path: str) -> Configuration:
    """Read the configuration at `path`. Raises ProtocolError 2 for its version, 107 for other errors."""
    return parsed(path, _content(path))


def parsed(path: str, content: bytes) -> Configuration:
    """Return the configuration at `path` if this is its content. Raises ProtocolError as `read` does."""
    config = messages.config(messages.load(content))
    folder = os.path.basename(os.path.dirname(path))
    if folder != f"{config.type}.d":
        raise ProtocolError(
            errors.CONTENT, f"config: 'type' is {config.type!r}, but it is in {folder}; expected {config.type}.d"
        )
    return Configuration(path, content, config)


def _content(path: str) -> bytes:
    """Return the content of the configuration at `path`. Raises ProtocolError 107."""
    try:
        content = documents.content(path, messages.LARGEST)
    except CdiError as error:
        raise ProtocolError(errors.CONTENT, f"config: {error}") from None
    if content is None:
        raise ProtocolError(errors.CONTENT, f"config: can't be read ({os.strerror(errno.ENOENT)})")
    return content


def _names(directory: str, ending: str, failed: dict[str, ProtocolError], whole: bool = False) -> list[str]:
    """Return the names in a directory with this ending, or equal to it if `whole`, sorted; [] without the directory.

    If it can't be read, note in `failed` why.
    """
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        failed[directory] = ProtocolError(errors.CONTENT, f"config: can't be read ({error.strerror})")
        return []
    return [name for name in names if (name == ending if whole else name.endswith(ending))]
