# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real kubelets, the driver of their device manager, and containerds: built or fetched once, below build/.

kubelets.py    get all of them, and say which are there

Newer kubelets come from the Go module proxy: the files of tests/conformance/kubelet pin every module (a file of sums
each), and each staging module is replaced by its release, as k8s.io/kubernetes' own go.mod does with directories.
The old one is Debian 12's source package, which is upstream's whole tree, built by the Go of Debian 12 in GOPATH mode.
containerd is what Debian packages, unpacked and not installed: mmdebstrap checks the archive's signatures.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import judge
import progress

CHECKOUT = Path(__file__).resolve().parents[2]
PINS = CHECKOUT / "tests/conformance/kubelet"
BUILT = CHECKOUT / "build/kubelet"
CONTAINERDS = CHECKOUT / "build/containerd"
GO = CHECKOUT / "build/go"  # modules and what they compile to: 4 GB
DRIVER = "device-manager"  # tests/conformance/kubelet/driver, of the newest kubelet

# Version -> the file that pins its modules.
FROM_PROXY = {"1.36.3": "go.mod", "1.30.14": "v1.30.mod"}
SUITES = (
    "trixie",
    "sid",
)  # containerd 1.7, which speaks to kubelets up to 1.35, and 2.x, which speaks to those from 1.26 on


class Source(NamedTuple):
    """The source package of the oldest kubelet that is practical."""

    version: str
    url: str
    sha256: str
    go: str  # newer ones refuse this tree's modules


OLD = Source(
    "1.20.2",
    "http://deb.debian.org/debian/pool/main/k/kubernetes/kubernetes_1.20.5%2Breally1.20.2.orig.tar.gz",
    "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc",
    "/usr/lib/go-1.19/bin/go",
)


Tell = Callable[[float], None]  # gets the share of a step that is done, from 0 to 1


class Unavailable(Exception):
    """One of the programs can't be had here; the text says why and what to do."""


def program(version: str) -> Path:
    """Where the kubelet of this version is, once it is built."""
    return BUILT / f"kubelet-{version}"


def from_proxy(version: str, tell: Tell) -> None:
    """Build a kubelet from the Go module proxy."""
    pin = (PINS / FROM_PROXY[version]).name
    options = [] if pin == "go.mod" else [f"-modfile={pin}"]
    go_build(program(version), [*options, f"-ldflags={_says(version)}", "k8s.io/kubernetes/cmd/kubelet"], tell)


def _pinned(version: str) -> bool:
    pin = PINS / FROM_PROXY[version]
    return _newer(program(version), pin, pin.with_suffix(".sum"))


def driver(tell: Tell) -> None:
    """Build the driver of the newest device manager."""
    go_build(BUILT / DRIVER, ["./driver"], tell)


def from_source(tell: Tell) -> None:
    """Build the old kubelet. The tree and what it compiles to (2 GB) are removed again."""
    target, work = program(OLD.version), BUILT / "old"
    if not os.path.exists(OLD.go):
        raise Unavailable(f"no {OLD.go}: install Debian 12's package golang-1.19-go (make e2e INSTALL=1)")
    shutil.rmtree(work, ignore_errors=True)
    tree = work / "src/k8s.io/kubernetes"
    tree.mkdir(parents=True)
    try:
        (work / "source.tar.gz").write_bytes(_download(OLD))
        _run(["tar", "--extract", "--strip-components=1", "--file", str(work / "source.tar.gz")], tree, {})
        package = "k8s.io/kubernetes/vendor/k8s.io/component-base/version"
        modes = {"GOPATH": str(work), "GO111MODULE": "off", "GOCACHE": str(work / "cache"), "GOFLAGS": ""}
        arguments = [f"-ldflags={_says(OLD.version, package)}", "./cmd/kubelet"]
        _compile([OLD.go], target, arguments, tree, modes, tell)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def containerd(suite: str, _tell: Tell) -> None:
    """Unpack containerd of a suite of Debian: 60 MB."""
    target, work = CONTAINERDS / suite, CONTAINERDS / f"{suite}.unpacked"
    CONTAINERDS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(work, ignore_errors=True)
    # A mirror may be a snapshot, whose Release file is old.
    command = ["mmdebstrap", "--quiet", "--variant=extract", "--include=containerd"]
    command += ['--aptopt=Acquire::Check-Valid-Until "false"', suite, str(work)]
    command += [os.environ["FLEET_CDI_DEBIAN_MIRROR"]] if os.environ.get("FLEET_CDI_DEBIAN_MIRROR") else []
    try:
        _run(command, CONTAINERDS, {})
        os.rename(work / "usr/bin", target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _says(version: str, package: str = "k8s.io/component-base/version") -> str:
    """Linker flags by which a kubelet knows its version: without them it takes itself for 0.0."""
    major, minor, _patch = version.split(".")
    said = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(f"-X {package}.{name}={value}" for name, value in said.items())


def _newer(target: Path, *sources: Path) -> bool:
    return target.exists() and target.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def go_build(target: Path, arguments: Sequence[str], tell: Tell = lambda _share: None) -> None:
    """Build a program of tests/conformance/kubelet; `arguments` ends with its package. Raises Unavailable."""
    try:
        go = judge.find_go()
    except judge.Unavailable as why:
        raise Unavailable(str(why)) from why
    places = {"GOPATH": str(GO), "GOMODCACHE": str(GO / "pkg/mod"), "GOCACHE": str(GO / "cache")}
    _compile([go, "-modcacherw"], target, arguments, PINS, places, tell)


def _compile(
    go: Sequence[str],
    target: Path,
    arguments: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    tell: Tell,
) -> None:
    """Run `go build`, and tell how many packages are compiled. `go`: the tool, and options of all its commands."""
    target.parent.mkdir(parents=True, exist_ok=True)
    tool, *options = go
    environment = {"CGO_ENABLED": "0", **environment}
    listing = [tool, "list", *options, "-deps", *arguments]  # downloads what is missing
    packages = _run(listing, directory, environment, lambda _line: tell(0.0)).splitlines()
    command = [tool, "build", *options, "-buildvcs=false", "-v", "-p=2", "-o", str(target), *arguments]
    compiled = 0

    def heard(line: str) -> None:
        nonlocal compiled
        compiled += " " not in line  # -v: the import path of each package
        tell(compiled / len(packages))

    _run(command, directory, environment, heard)


def _run(
    command: list[str],
    directory: Path,
    environment: Mapping[str, str],
    heard: Callable[[str], None] = lambda _line: None,
) -> str:
    """Standard output of a program that succeeds; `heard` gets each line of its standard error. Raises Unavailable."""
    with tempfile.TemporaryFile("w+") as output:
        try:
            process = subprocess.Popen(
                command, cwd=directory, env={**os.environ, **environment},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise Unavailable(f"no {command[0]}: make e2e INSTALL=1 installs it") from error
        said: collections.deque[str] = collections.deque(maxlen=20)
        with process:
            assert process.stderr is not None
            for line in process.stderr:
                said.append(line)
                heard(line.rstrip())
        output.seek(0)
        found = output.read()
    if process.returncode != 0:
        last = ("".join(said).strip() or found.strip())[-600:]
        raise Unavailable(f"`{' '.join(command)}` failed (it needs a network and, for kubelets, Go >= 1.26): {last}")
    return found


def _download(source: Source) -> bytes:
    try:
        with urllib.request.urlopen(source.url, timeout=60) as reply:
            content: bytes = reply.read()
    except OSError as error:
        raise Unavailable(f"{source.url}: {error}; is there a network?") from error
    found = hashlib.sha256(content).hexdigest()
    if found != source.sha256:
        raise Unavailable(f"{source.url}: SHA-256 is {found}, expected {source.sha256}")
    return content


class Step(NamedTuple):
    """Something to get."""

    minutes: float  # on two idle cores, with nothing compiled before
    is_there: Callable[[], bool]
    get: Callable[[Tell], None]


def steps() -> dict[str, Step]:
    """What there is to get, by its name."""
    pins = [*PINS.glob("driver/*.go"), PINS / "go.mod", PINS / "go.sum"]
    return {
        **{
            f"containerd of {suite}": Step(0.2, (CONTAINERDS / suite).exists, functools.partial(containerd, suite))
            for suite in SUITES
        },
        **{
            f"kubelet {version}": Step(5, functools.partial(_pinned, version), functools.partial(from_proxy, version))
            for version in FROM_PROXY
        },
        f"kubelet {OLD.version}": Step(4, program(OLD.version).exists, from_source),
        "device manager": Step(0.5, lambda: _newer(BUILT / DRIVER, *pins), driver),
    }


def get() -> dict[str, str]:
    """Get everything that is not there yet, and say how far that is; returns what can't be had -> why."""
    lacking = {}
    due = {name: step for name, step in steps().items() if not step.is_there()}
    said = progress.Progress(
        {name: step.minutes for name, step in due.items()}, lambda line: print(f"e2e: {line}", flush=True)
    )
    for name, step in due.items():
        said.begin(name)
        try:
            step.get(said.at)
        except Unavailable as why:
            lacking[name] = str(why)
        said.end(name not in lacking)
    return lacking


def main() -> int:
    """The command line."""
    lacking = get()
    for name, why in lacking.items():
        print(f"SKIPPED in e2e: {name} ({why})")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
