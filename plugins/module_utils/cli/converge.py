# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi converge: bring this host to the state of a file of settings, without a controller."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from .. import directories, files
from ..converge import module_diff
from ..converge.host.cdi_host import PARTS, converge_host, new_run
from ..converge.host.settings import parse_settings, read_settings
from ..layout import Layout
from ..records import CdiError
from ..release.guard import active
from ..schema import unknown
from .change_log import log_result
from .operand import called, read
from .step_line import StepLine
from .terminal import complain, say, say_document


def run(arguments: Any, paths: Layout) -> int:
    """Converge and print the changes; return 1 if a part of that could not be done. Raises CdiError."""
    settings = _settings(arguments.settings, paths)
    parts = PARTS if arguments.part is None else arguments.part.split(",")
    for name in parts:
        if name not in PARTS:
            raise CdiError(f"--part: {unknown('part', name, PARTS)}")
    release = active(paths.prefix)
    if release is None:
        raise CdiError(f"{paths.prefix}/lib/current: no release is active; run the role cdi_host once, or host_release")
    known = new_run(settings, release, arguments.check, source=_path(arguments.settings))
    with StepLine("begins") as line:
        told = known._replace(tell=lambda part: line.step(f"converges {part.replace('_', ' ')}"))
        result, warnings = converge_host(told, parts)
    if not arguments.check:
        log_result("converge", result)
    diff = [module_diff.brief(dict(part)) for part in result.pop("diff")]
    if result.get("missing_packages"):
        warnings.append(f"{', '.join(result['missing_packages'])}: is missing; install it from the distribution")
    if arguments.json:
        more = {"diff": diff} if arguments.diff else {}
        say_document({**result, **more, "warnings": warnings, "check": arguments.check})
    else:
        _tell(result, warnings, arguments.check)
        for part in diff if arguments.diff else ():
            say(*_lines(part))
    return 1 if result["problems"] else 0


def _settings(path: str, paths: Layout) -> dict[str, Any]:
    """Return the settings in a file, JSON or YAML. Its paths count, also against those of the command line.

    The release and the packages of a host come from its controller or its image. Raises CdiError.
    """
    if path is None:
        raise CdiError("--settings: is missing; name a file with the settings of this host, or - for standard input")
    if _path(path) and os.geteuid() == 0:
        _refuse_open(path)
    where = called(path)
    document = parse_settings(read(path), where)
    usual = {"prefix": paths.prefix, "state_dir": paths.state_dir, "device_list": paths.inventory}
    given = {**usual, **document} if isinstance(document, Mapping) else document
    return {**read_settings(given, where), "install_packages": False}


def _path(settings: str) -> str:
    """Return the path of the file of the settings; "" for standard input."""
    return "" if settings == "-" else settings


def _refuse_open(path: str) -> None:
    """Raise CdiError for a file of settings that other users can change, because root does what it says.

    Raises OSError if the check fails.
    """
    with suppress(NotADirectoryError):  # each directory and link on the way is well, and the last name is of a file
        directories.check(path)
    live = files.read(os.path.realpath(path))
    if live and (live.uid != 0 or live.mode & 0o022):
        raise CdiError(
            f"{path}: found owner {live.uid}, mode {live.mode:04o}, so other users can change these settings of root; "
            f"expected a file of root that nobody else can write: `chown root: {path} && chmod go-w {path}`"
        )


def _tell(result: Mapping[str, Any], warnings: list[str], check: bool) -> None:
    """Print changed parts on stdout, and problems on stderr."""
    for text in warnings:
        complain(f"warning: {text}")
    for one in result["problems"]:
        complain(f"failed: {one['part']}: {one['message']}")
    for name, changed in result["parts"].items():
        if changed:
            say(f"{'would be changed' if check else 'changed'}: {name}")
    for name in result["pending"]:
        say(f"pending: {name} reads its changed configuration at its next restart")
    if not result["changed"]:
        say("Nothing to change.")


def _lines(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one part of a diff."""
    if "prepared" in part:
        yield from str(part["prepared"]).splitlines()
        return
    from difflib import unified_diff  # here: it takes longer than all else

    before, after = (_text(part[side]).splitlines() for side in ("before", "after"))
    yield from unified_diff(before, after, part["before_header"], part["after_header"], lineterm="", n=1)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True)
