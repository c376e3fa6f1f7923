# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root directories of Debian suites: Pythons that this machine lacks, and a place that a test may write to.

mmdebstrap makes one from the machine's own mirror, once per suite and recipe. Commands run with it as their root
directory, in a mount namespace of their own; they share the machine's kernel, devices and network.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import counterparts
import engines

BUILT = Path(__file__).resolve().parents[2] / "build/debian"

# mmdebstrap's own way to /bin -> /usr/bin fails with a mirror of bullseye alone; later releases have it so.
MERGED = 'for name in bin sbin lib lib64; do mkdir -p "$1/usr/$name" && ln -s "usr/$name" "$1/$name"; done'
OPTIONS = [
    "--quiet",
    "--variant=minbase",
    "--dpkgopt=force-unsafe-io",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")),
    '--aptopt=Acquire::Check-Valid-Until "false"',  # a mirror may be a snapshot, whose Release file is old
]
# $1: the root directory, then what is to be seen in it; the command runs as if it ran here, but for programs.
ENTER = """
root=$1; shift
mount --bind "$root" "$root" || exit  # / is a mount everywhere else, too
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}" && touch "$root$1"; fi
    mount --rbind "$1" "$root$1" || exit
    shift
done; shift
exec chroot "$root" "$@"
"""
KERNEL = ("/proc", "/sys", "/dev")
# What the network needs: addresses of names, which certificates this machine trusts, and its settings of pip: a program
# that starts a pip of its own (ansible-test) passes no variables on to it.
NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/usr/local/share/ca-certificates", "/etc/pip.conf")
PASSED_ON = re.compile(r"(https?|no|all)_proxy|(PIP|SSL|REQUESTS|CURL)_\w+", re.IGNORECASE)
SETTING = re.compile(r"^(?:global|install)\.([\w-]+)='(.*)'$", re.MULTILINE)  # as `pip config list` prints it


def lacking() -> str:
    """Why this machine makes and enters no root directory; "" if it does."""
    return (
        "they need root and mmdebstrap; make test INSTALL=1"
        if os.geteuid() or counterparts.missing(("mmdebstrap",))
        else ""
    )


class Root(NamedTuple):
    """A root directory. `home` is the directory of the machine in which it lies, beside what else belongs to it."""

    home: Path

    @property
    def path(self) -> Path:
        return self.home / "root"

    def command(self, words: Sequence[str], seen: Sequence[str], variables: Mapping[str, str], cwd: str) -> list[str]:
        """The command that runs `words` with exactly these variables, in `cwd`, where `seen` is what it is here."""
        enter = ["unshare", "--mount", "--propagation=private", "sh", "-c", ENTER, "sh", str(self.path)]
        always = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        given = [f"{name}={value}" for name, value in {**always, **variables}.items()]
        inside = ["/usr/bin/env", "-i", f"--chdir={cwd}", *given, *words]
        return [*enter, *KERNEL, *(path for path in seen if os.path.exists(path)), "--", *inside]

    def python(self) -> str:
        """The version of its Python, as X.Y.Z. Raises CalledProcessError."""
        words = ["python3", "-c", "import platform; print(platform.python_version())"]
        done = subprocess.run(self.command(words, (), {}, "/"), check=True, capture_output=True, text=True)
        return done.stdout.strip()


def made(suite: str, packages: Sequence[str]) -> Root:
    """Return a root directory of the suite with these packages, made unless the same recipe has been made before.

    Raises CalledProcessError: without it nothing can be tested.
    """
    merged = [f"--setup-hook={MERGED}"] if suite == "bullseye" else []
    recipe = [*OPTIONS, *merged, f"--include={','.join(packages)}"]
    digest = hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]
    home = BUILT / f"{suite}-{digest}"
    if not home.exists():
        new = home.with_suffix(f".{os.getpid()}")
        new.mkdir(parents=True)
        try:
            # In a mount namespace of its own: where mmdebstrap is killed, nothing stays mounted below `new`.
            apart = ["unshare", "--mount", "--propagation=private", "mmdebstrap"]
            subprocess.run([*apart, *recipe, suite, str(new / "root"), *engines.mirror()], check=True)
            new.rename(home)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return Root(home)


def network() -> dict[str, str]:
    """The variables with which pip reaches inside of a root directory what it reaches here."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True
    )
    configured = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in SETTING.findall(listed.stdout)}
    return {**configured, **{name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}}
