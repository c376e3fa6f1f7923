# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a container's root directory, id and process in the state that its runtime gives to a hook.

OCI runtime specification, "State" and "Root".
"""

from __future__ import annotations

import os

from .error import HookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 4 << 20  # bytes, of a state or a config.json: no process can be started with a larger environment
BLANKS = " \t\r\n"
LONGEST_ID = 128  # characters; ids of podman, docker and CRI have 64
MARKS = "_-.+"  # that an id may have besides letters and digits


def container_root(file: str) -> bytes:
    """Return the root directory of the container whose state is in `file`, or on stdin. Raises HookError."""
    state = _object(_read(file), file or "standard input")
    bundle = _text(state, "bundle")
    path = _text(state, "root")  # crun's state has it: config.json may not be readable in a user namespace
    if not path:
        if not bundle.startswith("/"):
            raise HookError(f"standard input: found bundle {bundle!r}; expected the state of a container (OCI)")
        config = os.path.join(bundle, "config.json")
        inner = _object(_read(config), config).get("root")
        path = _text(inner, "path") if isinstance(inner, dict) else ""
        if not path:
            raise HookError(f"{config}: has no root.path; expected the root directory of a container")
    path = os.path.normpath(os.path.join(bundle, path))
    if not path.startswith("/") or path.strip("/") == "":
        raise HookError(f"the root directory of the container: found {path!r}; expected another one than the host's")
    return path.encode("utf-8", "surrogateescape")


def container_process(file: str) -> tuple[str, int]:
    """Return (id, pid) of the container whose state is in `file`, or on stdin. The id can be a file's name.

    Raises HookError.
    """
    where = file or "standard input"
    state = _object(_read(file), where)
    id_, pid = _text(state, "id"), state.get("pid")
    if not 0 < len(id_) <= LONGEST_ID or not id_[0].isalnum() or not id_.isascii() or not _is_word(id_):
        raise HookError(f"{where}: found id {id_[:LONGEST_ID]!r}; expected the id of a container")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 1 << 31:
        found = repr(pid)[:40]
        raise HookError(f"{where}: found pid {found}; expected the container's process, as at createRuntime")
    return id_, pid


def _is_word(text: str) -> bool:
    return all(character.isalnum() or character in MARKS for character in text)


def _read(file: str) -> bytes:
    content = bytearray()
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC) if file else 0
        try:
            while len(content) <= LARGEST:
                chunk = os.read(handle, 1 << 16)
                if not chunk:
                    return bytes(content)
                content += chunk
        finally:
            if file:
                os.close(handle)
    except OSError as error:
        raise HookError(f"{file or 'standard input'}: can't be read: {error.strerror}") from None
    raise HookError(f"{file or 'standard input'}: is larger than {LARGEST >> 20} MiB; expected a JSON object")


def _text(document: dict[str, Any], key: str) -> str:
    found = document.get(key)
    return found if isinstance(found, str) and _is_path(found) else ""


def _is_path(text: str) -> bool:
    """Whether a call of the system takes it: without a NUL, and without half of a character."""
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except ValueError:
        return False


def _object(content: bytes, where: str) -> dict[str, Any]:
    try:
        document = loads(content.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise HookError(f"{where}: is not a JSON object; expected the state of a container from an OCI runtime")
    return document


class _Terms:
    """The attributes that the scanner of the standard library needs (json/decoder.py, JSONDecoder)."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def loads(text: str) -> Any:
    """Return the value of a JSON text, with the scanner of `json`: importing `json` takes nearly as long as a start.

    9 ms beside 10.5 ms of CPU (Python 3.11, tests/bench/hooks.py).

    Raises ValueError and RecursionError.
    """
    try:
        from _json import make_scanner

        scan = make_scanner(_Terms)  # type: ignore[arg-type]  # has the attributes of a decoder that the scanner reads
    except (ImportError, AttributeError, TypeError):  # a Python with another scanner
        import json

        return json.loads(text)
    try:
        value, end = scan(text, len(text) - len(text.lstrip(BLANKS)))
    except (StopIteration, SystemError):  # SystemError: before Python 3.10, because json.decoder is not loaded
        raise ValueError("no JSON") from None
    if text[end:].strip(BLANKS):
        raise ValueError("something after the JSON")
    return value
