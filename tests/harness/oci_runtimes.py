# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real runc and crun, spoken to without an engine: those of this machine, and those of other releases of Debian.

Of another release its packages are unpacked into a directory, with its Python and its ldconfig, which takes seconds.
A runtime of it runs with that directory as its root, in a mount namespace of its own.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import engines

BUILT = Path(__file__).resolve().parents[2] / "build/oci"
SUITES = ("trixie", "sid")
PACKAGES = "runc,crun,python3-minimal,libpython3-stdlib,libc-bin"
SEARCHED = "/usr/sbin:/usr/bin:/sbin:/bin"
# Where cgroup v1 and v2 are both mounted crun starts nothing, with cgroups or without: so it does not see v2.
ENTER = """
root=$1; shift
umount /sys/fs/cgroup/unified 2>/dev/null || true
if [ -n "$root" ]; then
    mount --bind "$root" "$root"
    for name in proc sys dev tmp; do mkdir -p "$root/$name"; mount --rbind "/$name" "$root/$name"; done
    exec chroot "$root" "$@"
fi
exec "$@"
"""
PROGRAMS: dict[str, tuple[str, ...]] = {"runc": ("runc",), "crun": ("crun", "--cgroup-manager=disabled")}


class OciRuntime(NamedTuple):
    """One program that starts containers."""

    name: str  # runc or crun
    version: str
    root: str  # of its release of Debian; "" is this machine's own

    @property
    def label(self) -> str:
        """For people: "runc 1.1.5"."""
        return f"{self.name} {self.version}"

    def command(self, *words: str) -> list[str]:
        """How to start it."""
        enter = ["unshare", "--mount", "--propagation=private", "sh", "-euc", ENTER, "sh", self.root]
        return [*enter, *PROGRAMS[self.name], *words]

    def run(self, bundle: Path, identity: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run the container of a bundle to its end. `bundle` is below /tmp or /dev. Raises TimeoutExpired."""
        words = ["--root", str(bundle.parent / f"state-{identity}"), "run", "--bundle", str(bundle), identity]
        return subprocess.run(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
            env={"PATH": SEARCHED},
        )


def config(
    words: Sequence[str], environment: Sequence[str], hooks: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """A small config.json (OCI runtime specification): the image is the directory "root" of the bundle."""
    user = {"uid": 0, "gid": 0}
    sorts = ("pid", "mount", "ipc", "uts", "network")
    return {
        "ociVersion": "1.0.2",
        "process": {"user": user, "args": list(words), "env": list(environment), "cwd": "/"},
        "root": {"path": "root"},
        "hooks": {stage: list(entries) for stage, entries in hooks.items()},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        ],
        "linux": {"namespaces": [{"type": sort} for sort in sorts]},
    }


@functools.cache
def found(suites: tuple[str, ...] = SUITES) -> tuple[tuple[OciRuntime, ...], tuple[str, ...]]:
    """The runtimes that can be run here, and why others can't, in sentences."""
    runtimes: list[OciRuntime] = []
    missing: list[str] = []
    for suite in ("", *suites):
        try:
            root = _unpacked(suite) if suite else ""
        except OSError as error:
            missing.append(f"runc and crun of {suite}: {error}")
            continue
        for name in PROGRAMS:
            version = _version(OciRuntime(name, "", root))
            if version:
                runtimes.append(OciRuntime(name, version, root))
            else:
                missing.append(f"{name} of {suite or 'this machine'}: does not tell its version here")
    return tuple(runtimes), tuple(missing)


def _version(runtime: OciRuntime) -> str:
    done = subprocess.run(
        runtime.command("--version"), capture_output=True, text=True, check=False, env={"PATH": SEARCHED}
    )
    match = re.match(rf"{runtime.name} version ([0-9.]+)", done.stdout)
    return match[1] if match else ""


def _unpacked(suite: str) -> str:
    """The root directory of a release of Debian with a few packages unpacked and none installed. Raises OSError."""
    words = ["--quiet", "--variant=extract", f"--include={PACKAGES}", '--aptopt=Acquire::Check-Valid-Until "false"']
    root = BUILT / f"{suite}-{hashlib.sha256(json.dumps(words).encode()).hexdigest()[:12]}"
    if root.exists():
        return str(root)
    if not shutil.which("mmdebstrap"):
        raise OSError("no mmdebstrap; Debian's package is mmdebstrap")
    BUILT.mkdir(parents=True, exist_ok=True)
    new = BUILT / f".{root.name}.{os.getpid()}"
    done = subprocess.run(
        ["mmdebstrap", *words, suite, str(new), *engines.mirror()], capture_output=True, text=True, check=False
    )
    try:
        if done.returncode:
            raise OSError(f"mmdebstrap: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        for name in _merged(new):
            (new / name).symlink_to(f"usr/{name}")
        new.rename(root)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return str(root)


def _merged(root: Path) -> Iterator[str]:
    """Debian's links from / to /usr, which a package makes when it is installed."""
    for name in ("bin", "sbin", "lib", "lib64"):
        if (root / "usr" / name).is_dir() and not (root / name).exists():
            yield name
