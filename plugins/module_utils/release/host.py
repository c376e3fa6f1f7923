# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out what a release needs to know of its host: distribution and interpreter."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, Callable, NamedTuple

from .. import documents
from ..records import CdiError

OLDEST = (3, 9)
LARGEST = 1 << 20  # bytes of os-release(5), which has a few hundred

# What of the collection a host runs -> import name -> distribution package, by the same names in Debian, Ubuntu, EL9/10
PACKAGES = {
    "discovery": {"pyudev": "python3-pyudev"},
    "device_plugin": {"grpc": "python3-grpcio", "google.protobuf": "python3-protobuf"},
}

# ID of os-release(5) -> VERSION_ID that the roles support. Debian is tested, the others are supported by design
# (README.md). "9" stands for 9.4 too, "" for a release without VERSION_ID, as Debian's testing.
SUPPORTED: dict[str, list[str]] = {
    "debian": ["12", "13", ""],
    "ubuntu": ["22.04", "24.04"],
    "rhel": ["9", "10"],
    "rocky": ["9", "10"],
    "almalinux": ["9", "10"],
    "centos": ["9", "10"],
}

# Run one command; return exit status, stdout and stderr. Raises OSError if it can't be started.
Run = Callable[[list[str]], tuple[int, str, str]]

# Python 2 and 3.0 must be able to run it, so that the message can name their version.
_PROBE = """
import json, sys
known = {"version": list(sys.version_info[:3]), "tag": "", "found": []}
if sys.version_info >= (3, 4):
    from importlib.util import find_spec
    known["tag"] = sys.implementation.cache_tag
    for name in sys.argv[1:]:
        try:
            known["found"] += [name] if find_spec(name) else []
        except ImportError:  # of the package that it is in
            pass
print(json.dumps(known))
"""


class Interpreter(NamedTuple):
    """The Python that runs the release."""

    path: str
    version: str  # "3.11.2"
    tag: str  # names its byte code: "cpython-311"
    missing_packages: tuple[str, ...]  # distribution packages to install for it


def probe(python: str, run: Run, parts: Iterable[str] = ("discovery",)) -> Interpreter:
    """Ask `python`, isolated as in the launcher, for its version and for missing packages for `parts`.

    The interpreter that runs this is not started again. `parts` are keys of PACKAGES. Raises CdiError if it can't run a
    release.
    """
    needed = {name: package for part in parts for name, package in PACKAGES[part].items()}
    if python == sys.executable and sys.version_info >= OLDEST:
        found = [name for name in needed if _is_there(name)]
        lacking = tuple(package for name, package in needed.items() if name not in found)
        return Interpreter(python, ".".join(map(str, sys.version_info[:3])), str(sys.implementation.cache_tag), lacking)
    try:
        status, out, err = run([python, "-I", "-c", _PROBE, *needed])
        known = json.loads(out) if status == 0 else {}
    except OSError as error:
        raise CdiError(f"python: can't run {python}: {error.strerror}; expected the host's Python >= 3.9") from None
    except ValueError:
        status, known, err = 0, {}, out
    if not known:
        said = " ".join(err.split())[:200]
        raise CdiError(f"python: {python} is not Python >= 3.9 (exit status {status}: {said}); name the host's Python")
    version = ".".join(str(part) for part in known["version"])
    if tuple(known["version"][:2]) < OLDEST:
        raise CdiError(
            f"python: {python} is Python {version}; a release needs >= 3.9. Name a newer one with the option python."
        )
    lacking = tuple(package for name, package in needed.items() if name not in known["found"])
    return Interpreter(python, version, known["tag"], lacking)


def _is_there(name: str) -> bool:
    """Return whether this interpreter can import a module."""
    try:
        return find_spec(name) is not None
    except ImportError:  # of the package that it is in
        return False


def distribution(root: str = "/") -> dict[str, str]:
    """Return ID, VERSION_ID and NAME of os-release(5) as {"id", "version_id", "name"}; "" for a missing field."""
    fields: dict[str, str] = {}
    for path in ("etc/os-release", "usr/lib/os-release"):
        try:
            found = documents.content(root.rstrip("/") + "/" + path, LARGEST)
        except CdiError:
            found = None
        if found is None:
            continue
        for line in found.decode("utf-8", "replace").split("\n"):
            name, equals, value = line.partition("=")
            if equals and not name.startswith("#"):
                fields[name.strip()] = _unquoted(value)
        break
    return {key: fields.get(key.upper(), "") for key in ("id", "version_id", "name")}


def refuse_unsupported(found: dict[str, str], more: dict[str, Any]) -> None:
    """Raise CdiError for a distribution that neither SUPPORTED nor `more` (ID -> versions) has."""
    for versions in more.values():
        if not isinstance(versions, list) or not all(isinstance(one, str) for one in versions):
            raise CdiError(
                f"distributions: found {more!r}; expected lists of VERSION_ID as text by ID, as in {{'ol': ['9']}}"
            )
    accepted = {name: [*SUPPORTED.get(name, ()), *more.get(name, ())] for name in {**SUPPORTED, **more}}
    version = found["version_id"]
    if any(version == one or (one and version.startswith(one + ".")) for one in accepted.get(found["id"], ())):
        return
    known = ", ".join(f"{name} {'/'.join(filter(None, versions))}" for name, versions in sorted(accepted.items()))
    raise CdiError(
        f"/etc/os-release: found ID {found['id']!r} with VERSION_ID {version!r} ({found['name'] or 'no name'}); "
        f"expected one of {known}. Nothing was installed."
    )


def _unquoted(value: str) -> str:
    try:
        return "".join(shlex.split(value))
    except ValueError:  # an unbalanced quote
        return value.strip()
