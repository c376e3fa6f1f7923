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

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import judge

CHECKOUT = Path(__file__).resolve().parents[2]
PINS = CHECKOUT / "tests/conformance/kubelet"
BUILT = CHECKOUT / "build/kubelet"
CONTAINERDS = CHECKOUT / "build/containerd"
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


class Unavailable(Exception):
    """One of the programs can't be had here; the text says why and what to do."""


def program(version: str) -> Path:
    """Where the kubelet of this version is, once it is built."""
    return BUILT / f"kubelet-{version}"


def from_proxy(version: str) -> None:
    """Build a kubelet from the Go module proxy: 5 minutes on two idle cores, seconds once its packages are compiled."""
    target, pin = program(version), PINS / FROM_PROXY[version]
    if not _newer(target, pin, pin.with_suffix(".sum")):
        command = [f"-modfile={pin.name}"] if pin.name != "go.mod" else []
        _go_build(target, [*command, f"-ldflags={_says(version)}", "k8s.io/kubernetes/cmd/kubelet"])


def driver() -> None:
    """Build the driver of the newest device manager."""
    target, sources = BUILT / DRIVER, [*PINS.glob("driver/*.go"), PINS / "go.mod", PINS / "go.sum"]
    if not _newer(target, *sources):
        _go_build(target, ["./driver"])


def from_source() -> None:
    """Build the old kubelet: 5 minutes on two idle cores. The tree and what it compiles to (2 GB) are removed again."""
    target, work = program(OLD.version), BUILT / "old"
    if target.exists():
        return
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
        _run([OLD.go, "build", "-p=2", f"-ldflags={_says(OLD.version, package)}", "-o", str(target), "./cmd/kubelet"],
             tree, {**modes, "CGO_ENABLED": "0"})  # fmt: skip
    finally:
        shutil.rmtree(work, ignore_errors=True)


def containerd(suite: str) -> None:
    """Unpack containerd of a suite of Debian: 60 MB in some seconds."""
    target, work = CONTAINERDS / suite, CONTAINERDS / f"{suite}.unpacked"
    if target.exists():
        return
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


def _go_build(target: Path, arguments: list[str]) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    try:
        command = [judge.find_go(), "build", "-buildvcs=false", "-p=2", "-o", str(target), *arguments]
    except judge.Unavailable as why:
        raise Unavailable(str(why)) from why
    _run(command, PINS, {"CGO_ENABLED": "0"})


def _run(command: list[str], directory: Path, environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, env={**os.environ, **environment}, check=False, capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise Unavailable(f"no {command[0]}: make e2e INSTALL=1 installs it") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise Unavailable(f"`{' '.join(command)}` failed (it needs a network and, for kubelets, Go >= 1.26): {last}")


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


def steps() -> dict[str, Callable[[], None]]:
    """What there is to get -> the function that gets it."""
    return {
        **{f"kubelet {version}": functools.partial(from_proxy, version) for version in FROM_PROXY},
        f"kubelet {OLD.version}": from_source,
        "device manager": driver,
        **{f"containerd of {suite}": functools.partial(containerd, suite) for suite in SUITES},
    }


def get() -> dict[str, str]:
    """Get everything that is not there yet; returns what can't be had -> why."""
    lacking = {}
    for name, step in steps().items():
        print(f"e2e: {name}", flush=True)
        try:
            step()
        except Unavailable as why:
            lacking[name] = str(why)
    return lacking


def main() -> int:
    """The command line."""
    lacking = get()
    for name, why in lacking.items():
        print(f"SKIPPED in e2e: {name} ({why})")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
