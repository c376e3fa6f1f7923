# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell the git commit of the release that a host runs, and prove as far as a host can that its files are that release.

The chain: byte code is what the sources compile to, launchers are what the sources make for the recorded paths, the
sources give the release's id and the digest that was published with it, and one of them names the commit.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from typing import NamedTuple

from ..records import CdiError
from . import integrity, launcher, sums
from .contents import ROOT, identify
from .guard import active
from .integrity import Fault
from .tree import at, launchers_of

_COMMIT = re.compile(rb'^COMMIT = "([0-9a-f]{40,64})"', re.MULTILINE)
_DEFAULTS = re.compile(r"^ *status = main\(.*, os\.path\.basename\(RELEASE\), (\{.*\})\)$", re.MULTILINE)
_PYTHON = re.compile(r"#!(/(?!bin/sh\n).*) -IS\n|#!/bin/sh\n'''exec' \"(.*)\" -IS ")
_HEAD = MAGIC_NUMBER + b"\1\0\0\0"  # PEP 552: by the hash of the source, which Python does not check


class ReleaseIdentity(NamedTuple):
    """What the active release of a host says of itself."""

    release: str  # <version>-<digest>
    version: str
    commit: str  # of git; "" for one that was made from a work tree, where git archive put none in
    directory: str
    sources: str  # SHA-256 of the published list of its sources, which is in the format of sha256sum(1)


class Proof(NamedTuple):
    """What was compared, and what differs."""

    counts: Mapping[str, int]
    faults: tuple[Fault, ...]


def identity(prefix: str) -> ReleaseIdentity:
    """Return what the release that is active under `prefix` is. Raises CdiError if none is, OSError."""
    release = active(prefix)
    if release is None:
        raise CdiError(f"{at(prefix, 'current')}: no release is active; run the role cdi_host once, or host_release")
    directory = at(prefix, release)
    found = sums.read_files(directory)
    lines = "".join(f"{found.digests[name]}  {name}\n" for name in sorted(found.sources))
    commit = _COMMIT.search(found.sources.get(f"{ROOT}/release/version.py", b""))
    return ReleaseIdentity(
        release,
        release.rpartition("-")[0],
        commit.group(1).decode() if commit else "",
        directory,
        hashlib.sha256(lines.encode()).hexdigest(),
    )


def prove(prefix: str, directory: str) -> Proof:
    """Compare each file of the active release, in `directory`, with what the release is. Raises CdiError, OSError."""
    found = sums.read_files(directory)
    byte_code = dict(_byte_code(directory, found.sources))
    launchers = launchers_of(directory)
    faults = [*integrity.faults(prefix), *_launcher_faults(directory, launchers)]
    try:
        made = identify(found.sources)
    except CdiError:
        made = "no release"
    if made != os.path.basename(directory):
        faults.append(Fault(directory, f"holds the sources of {made}"))
    faults += [Fault(path, problem) for path, problem in byte_code.items() if problem]
    counts = {"sources": len(found.sources), "byte_code": len(byte_code), "launchers": len(launchers)}
    first = {fault.path: fault for fault in reversed(faults)}  # one for each path: what changed, before what follows
    return Proof({**counts, "files": len(found.digests)}, tuple(sorted(first.values())))


def _byte_code(directory: str, sources: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield (path, problem) of each file that this interpreter runs instead of its source; "" if both agree."""
    for name, content in sorted(sources.items()):
        source = os.path.join(directory, name)
        path = cache_from_source(source)
        try:
            with open(path, "rb") as file:
                found = file.read()
        except FileNotFoundError:
            continue  # then Python compiles the source, or the list of files says that it is gone
        yield path, _difference(found, content, source)


def _difference(found: bytes, content: bytes, source: str) -> str:
    if found[:16] != _HEAD + source_hash(content):
        return "was compiled from another source, or by another Python"
    try:
        same = marshal.loads(found[16:]) == compile(content, source, "exec", dont_inherit=True)
    except (EOFError, SyntaxError, TypeError, ValueError):
        same = False
    return "" if same else "is not what its source compiles to"


def _launcher_faults(directory: str, launchers: Mapping[str, str]) -> Iterator[Fault]:
    """Yield the launchers that are not what the release makes for the Python and the paths that they name."""
    command = launchers.get(launcher.FLEET_CDI, "")
    python, defaults = _PYTHON.match(command), _DEFAULTS.search(command)
    if python is None or defaults is None:
        yield Fault(os.path.join(directory, "bin", launcher.FLEET_CDI), "is not a launcher of this release")
        return
    made = launcher.texts(python.group(1) or python.group(2), json.loads(defaults.group(1)))
    for name in sorted({*made, *launchers}):
        if made.get(name) != launchers.get(name):
            yield Fault(os.path.join(directory, "bin", name), "is not what this release makes for its Python and paths")


def interpreter() -> str:
    """Return the Python that runs this."""
    return f"{sys.executable} ({'.'.join(map(str, sys.version_info[:3]))})"
