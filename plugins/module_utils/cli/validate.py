# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi validate: find errors in CDI specs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from .. import documents
from ..explanations.explanation import id_of_rule
from ..explanations.spec_rules import EXPLANATIONS
from ..layout import Layout
from ..records import CdiError
from ..spec import codec, versions
from ..spec.model import VERSIONS
from ..spec.names import ENDINGS, list_specs
from ..spec.validate import WARNING, Finding
from . import operand
from .terminal import say, say_document


def run(arguments: Any, paths: Layout) -> int:
    """Check the named files, or all files of the spec directories; return 1 for an error in one."""
    files = list(map(_checked, arguments.path)) if arguments.path else list(_everything(paths.spec_dirs))
    if arguments.json:
        say_document({"files": files}, sort_keys=False)
    else:
        for file in files:
            _show(file)
        if not files:
            say(f"No specs in {' '.join(paths.spec_dirs)}.")
    return 0 if all(file["valid"] for file in files) else 1


def _everything(directories: Sequence[str]) -> Iterator[dict[str, Any]]:
    found = list_specs(directories)
    for path, error in found.errors.items():
        yield _document(path, None, [Finding("unreadable", "", error, "a directory that can be listed")])
    for _priority, path in found.paths:
        yield _checked(path, _content)


def _content(path: str) -> bytes:
    """The content of a file of a spec directory, where other programs may put a pipe or a device. Raises CdiError."""
    content = documents.content(path, operand.LIMIT)
    if content is None:
        raise documents.failed("read", path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    return content


def _checked(path: str, read: Callable[[str], bytes] = operand.read) -> dict[str, Any]:
    try:
        content = read(path)
        spec, findings = codec.read(content, operand.name_of_spec(path, content))
    except CdiError as error:
        return _document(path, None, [Finding("unreadable", "", str(error), "a file that can be read")])
    if path != "-" and not path.endswith(ENDINGS):
        ending = Finding("file-name", "", path, "a name that ends in .json or .yaml; runtimes skip others", WARNING)
        findings = [*findings, ending]
    return _document(path, spec, findings)


def _document(path: str, spec: Any, findings: Sequence[Finding]) -> dict[str, Any]:
    head = {"path": path, "valid": spec is not None}
    if spec is not None:
        head["kind"] = spec["kind"]
        head["cdi_version"] = spec["cdiVersion"]
        head["minimum_version"] = versions.lowest_version(spec)
        head["names"] = [device["name"] for device in spec["devices"]]
    return {
        **head,
        "findings": [{**one._asdict(), "explanation": id_of_rule(one.rule, EXPLANATIONS)} for one in findings],
    }


def _show(file: dict[str, Any]) -> None:
    called = operand.called(file["path"])
    if file["valid"]:
        declared, lowest = file["cdi_version"].removeprefix("v"), file["minimum_version"]
        less = f" ({lowest} is enough)" if VERSIONS.index(lowest) < VERSIONS.index(declared) else ""
        count = len(file["names"])
        head = f"{file['kind']}, CDI {file['cdi_version']}{less}, {count} device{'' if count == 1 else 's'}"
        say(f"valid: {called}: {head}")
    for one in file["findings"]:
        finding = Finding(*(one[key] for key in Finding._fields))
        text = finding.found if finding.rule == "unreadable" else f"{called}: {finding}"
        say(f"{finding.severity}: {text} [{one['explanation']}]")
