# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Debian packages of the device plugin's image: which they are, where to get them, and what is in them.

debian.json names each by version and digest. The digest decides, so any mirror will do; what mirrors have no more is at
snapshot.debian.org. A package is only unpacked: none of its scripts runs, so the result depends on it alone.

debian_packages.py update     write debian.json anew by what the machine's mirror has now (needs apt)
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deterministic import DIRECTORY, FILE, LINK, Member

LOCK = Path(__file__).with_name("debian.json")
SUITE, ARCHITECTURE = "trixie", "amd64"
WANTED = ("base-files", "python3", "python3-grpcio", "python3-protobuf")
MIRROR = "http://deb.debian.org/debian"
BY_SHA1 = "https://snapshot.debian.org/file"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SECONDS = 60  # for one package
FIELD = re.compile(r"^(Package|Version|Filename|SHA256): (.*)$", re.MULTILINE)
# Documentation is not needed; the licences are.
LEFT_OUT = re.compile(r"usr/share/(man|info|locale|lintian|doc-base|doc/(?!.*/copyright$))")


class Package(NamedTuple):
    """One row of debian.json."""

    name: str
    version: str
    path: str  # on a mirror
    sha256: str
    sha1: str  # its name at snapshot.debian.org

    @property
    def purl(self) -> str:
        version = self.version.replace("+", "%2B").replace(":", "%3A")
        return f"pkg:deb/debian/{self.name}@{version}?arch={ARCHITECTURE}&distro={SUITE}"


def locked(path: Path = LOCK) -> list[Package]:
    """Return the packages of debian.json."""
    return [Package(**row) for row in json.loads(path.read_text(encoding="utf-8"))["packages"]]


def fetch(packages: Sequence[Package], cache: Path) -> None:
    """Have each package in `cache`, under its digest. Raises OSError if one can't be had anywhere."""
    cache.mkdir(parents=True, exist_ok=True)
    for package in packages:
        place = cache / package.sha256
        if not place.exists():
            content = _downloaded(package)
            new = place.with_suffix(f".{os.getpid()}")
            new.write_bytes(content)
            new.rename(place)


def _downloaded(package: Package) -> bytes:
    mirror = os.environ.get("FLEET_CDI_DEBIAN_MIRROR", MIRROR).rstrip("/")
    tried = []
    for address in (f"{mirror}/{package.path}", f"{BY_SHA1}/{package.sha1}"):
        try:
            with urllib.request.urlopen(address, timeout=SECONDS) as answer:
                content: bytes = answer.read()
        except OSError as error:
            tried.append(f"{address}: {error}")
            continue
        if hashlib.sha256(content).hexdigest() == package.sha256:
            return content
        tried.append(f"{address}: has another digest")
    raise OSError(f"{package.name} {package.version}: can't be had: {'; '.join(tried)}")


def content_of(package: Package, cache: Path) -> bytes:
    """Return the package from `cache`. Raises OSError, and ValueError if it is another one."""
    content = (cache / package.sha256).read_bytes()
    if hashlib.sha256(content).hexdigest() != package.sha256:
        raise ValueError(f"{cache / package.sha256}: is not what its name says; remove it and run again")
    return content


def unpacked(package: Package, content: bytes) -> dict[str, Member]:
    """Return what the package brings, by name, and its description where scanners of images look for it."""
    parts = dict(_ar(content))
    found: dict[str, Member] = {}
    with tarfile.open(fileobj=io.BytesIO(_part(parts, "data.tar"))) as archive:
        for one in archive:
            name = one.name.removeprefix("./").rstrip("/")
            if name in ("", ".") or LEFT_OUT.match(name):
                continue
            found[name] = _member(archive, one, name)
    with tarfile.open(fileobj=io.BytesIO(_part(parts, "control.tar"))) as archive:
        control = archive.extractfile("./control")
        assert control is not None
        status = f"var/lib/dpkg/status.d/{package.name}"
        found[status] = Member(status, control.read())
    return found


def _member(archive: tarfile.TarFile, one: tarfile.TarInfo, name: str) -> Member:
    """Return an entry without setuid and setgid; a hard link becomes a file."""
    if one.isdir():
        return Member(name, b"", one.mode & 0o1777, DIRECTORY)
    if one.issym():
        return Member(name, b"", 0o777, LINK, one.linkname)
    content = archive.extractfile(one)
    if content is None:
        raise ValueError(f"{name}: is neither a file nor a directory nor a link")
    return Member(name, content.read(), one.mode & 0o777, FILE)


def _part(parts: Mapping[str, bytes], start: str) -> bytes:
    (found,) = [content for name, content in parts.items() if name.startswith(start)]
    return found


def _ar(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the members of an archive of ar(1): deb(5). Raises ValueError."""
    if content[:8] != b"!<arch>\n":
        raise ValueError("is not a package of Debian")
    at = 8
    while at < len(content):
        name, size = content[at : at + 16].decode().rstrip(" /"), int(content[at + 48 : at + 58])
        yield name, content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def update(lock: Path = LOCK) -> None:
    """Write debian.json by what apt chooses for an empty system, and verifies. Raises CalledProcessError, OSError."""
    mirror = os.environ.get("FLEET_CDI_DEBIAN_MIRROR", MIRROR)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for directory in ("lists/partial", "archives/partial", "etc/preferences.d", "etc/sources.list.d"):
            (place / directory).mkdir(parents=True)
        (place / "status").write_text("")
        (place / "etc/sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {SUITE} main\n")
        settings = {"Dir::State": place, "Dir::State::lists": place / "lists", "Dir::State::status": place / "status"}
        settings.update({"Dir::Cache": place, "Dir::Cache::archives": place / "archives", "Dir::Etc": place / "etc"})
        options = [f"-o{key}={value}" for key, value in settings.items()]
        options += [f"-oAPT::Architecture={ARCHITECTURE}", f"-oAPT::Architectures={ARCHITECTURE}"]
        options += ["-oAPT::Sandbox::User=", "-oAcquire::Check-Valid-Until=false", "-oDebug::NoLocking=1"]
        _run("apt-get", *options, "update")
        plan = _run("apt-get", *options, "--simulate", "--no-install-recommends", "install", *WANTED)
        chosen = sorted(re.findall(r"^Inst (\S+) \((\S+)", plan, re.MULTILINE))
        rows = []
        for package, version in chosen:
            shown = dict(FIELD.findall(_run("apt-cache", *options, "show", f"{package}={version}")))
            row = Package(shown["Package"], shown["Version"], shown["Filename"], shown["SHA256"], "")
            content = _downloaded(row)
            rows.append(row._replace(sha1=hashlib.sha1(content, usedforsecurity=False).hexdigest())._asdict())
    document = {"suite": SUITE, "architecture": ARCHITECTURE, "wanted": WANTED, "packages": rows}
    lock.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    if sys.argv[1:] != ["update"]:
        sys.exit(__doc__)
    update()
