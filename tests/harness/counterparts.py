# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real programs that tests run against: which package brings each, what shows that it is there, who needs it.

    counterparts.py report [PART...]    one line per missing package: what it leaves out
    counterparts.py install [PART...]   install what is missing (root and apt), then report what still is

Tests name what they need with `@pytest.mark.counterpart("podman", "runc")` and are skipped, by name, without it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

from parts import PARTS


class Counterpart(NamedTuple):
    """One Debian package. `probe` is a shell command that succeeds where what the package brings is at hand."""

    package: str
    probe: str
    parts: tuple[str, ...]  # of parts.py, or other targets of the Makefile
    purpose: str  # what is left out without it


TABLE = (
    Counterpart("shellcheck", "command -v shellcheck", ("style", "lint", "sanity"), "checks of shell scripts"),
    Counterpart("udev", "command -v udevadm", ("unit", "integration"), "libudev and its own view of the devices"),
    Counterpart(
        "python3-pyudev",
        "/usr/bin/python3 -c 'import pyudev'",
        ("integration", "fleet"),
        "pyudev as distributions ship it",
    ),
    Counterpart(
        "python3-grpcio", "/usr/bin/python3 -c 'import grpc'", ("contract", "e2e"), "gRPC as distributions ship it"
    ),
    Counterpart("umockdev", "command -v umockdev-run", ("unit", "integration"), "the real libudev on dumps"),
    Counterpart("hwloc-nox", "command -v lstopo-no-graphics", ("unit", "integration"), "hwloc's view of dumps"),
    Counterpart("podman", "command -v podman", ("integration", "molecule", "e2e"), "containers that see their device"),
    Counterpart(
        "runc", "command -v runc", ("integration", "adversary", "molecule", "e2e"), "containers that see their device"
    ),
    Counterpart(
        "crun", "command -v crun", ("integration", "adversary", "molecule"), "containers inside of container hosts"
    ),
    Counterpart("uidmap", "command -v newuidmap", ("integration",), "containers of ordinary users"),
    Counterpart("acl", "command -v getfacl", ("unit", "integration"), "what another program says of access lists"),
    Counterpart(
        "busybox-static",
        'command -v busybox && ! ldd "$(command -v busybox)"',
        ("integration", "e2e", "adversary"),
        "containers without an image",
    ),
    Counterpart(
        "mmdebstrap",
        "command -v mmdebstrap",
        ("floor", "integration", "adversary", "molecule", "machines", "e2e", "matrix", "reproducible"),
        "images of container hosts",
    ),
    Counterpart(
        "gcc",
        "echo 'int main(void) { return 0; }' | gcc -static -x c -o /dev/null -",  # with libc6-dev
        ("unit", "integration"),
        "programs that stand in for a broken ldconfig, and libraries of a hostile image",
    ),
    Counterpart("libc6-dev", "test -e /usr/include/stdio.h", ("unit", "integration"), "what gcc needs"),
    Counterpart("golang-1.19-go", "test -x /usr/lib/go-1.19/bin/go", ("e2e",), "the oldest kubelet"),
    Counterpart("chromium", "command -v chromium", ("unit",), "the report in a browser"),
    Counterpart("man-db", "command -v man", ("unit",), "the manual page as man shows it"),
    Counterpart("mandoc", "command -v mandoc", ("unit",), "another reader of the manual page"),
    Counterpart(
        "bash-completion", "test -e /usr/share/bash-completion/bash_completion", ("integration",), "completion in bash"
    ),
    Counterpart("zsh", "command -v zsh", ("integration",), "completion in zsh"),
    Counterpart(
        "strace", "command -v strace", ("fault", "adversary"), "kills, errors and power cuts at every system call"
    ),
    Counterpart("slurmctld", "command -v slurmctld", ("integration", "e2e"), "jobs of Slurm that get and free devices"),
    Counterpart("slurmd", "command -v slurmd", ("integration", "e2e"), "jobs of Slurm that get and free devices"),
    Counterpart("slurm-client", "command -v sbatch", ("integration", "e2e"), "jobs of Slurm that get and free devices"),
    Counterpart("docker.io", "command -v dockerd", ("orders",), "a docker that runs meanwhile"),
    Counterpart("openssh-client", "command -v ssh", ("molecule", "machines", "e2e"), "real SSH to container hosts"),
    Counterpart(
        "qemu-system-x86", "command -v qemu-system-x86_64", ("machines", "e2e"), "machines with their own kernel"
    ),
    Counterpart(
        "qemu-utils", "command -v qemu-img", ("machines", "e2e"), "disks of machines that stay as they were made"
    ),
    Counterpart("seabios", "test -e /usr/share/seabios/bios-256k.bin", ("machines", "e2e"), "the firmware of machines"),
    Counterpart(
        "ipxe-qemu",
        "test -e /usr/lib/ipxe/qemu/efi-virtio.rom",
        ("machines", "e2e"),
        "network cards of machines",
    ),
)
BY_PACKAGE = {row.package: row for row in TABLE}


@functools.cache
def present(row: Counterpart) -> bool:
    """Whether the machine has it."""
    return (
        subprocess.run(row.probe, shell=True, check=False, stdin=subprocess.DEVNULL, capture_output=True).returncode
        == 0
    )


def missing(packages: tuple[str, ...]) -> list[str]:
    """The packages among these that the machine lacks. KeyError: a name that the table doesn't have."""
    return [package for package in packages if not present(BY_PACKAGE[package])]


def needed_by(parts: list[str]) -> tuple[str, ...]:
    """The packages that these parts need; of all parts if none is named."""
    return tuple(row.package for row in TABLE if set(parts or PARTS) & set(row.parts))


def install(packages: list[str]) -> None:
    """Install by apt, where that is possible; what fails shows in the report that follows."""
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("counterparts: INSTALL=1 needs root and apt-get; nothing installed", flush=True)
        return
    print(f"counterparts: installing {' '.join(packages)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        finished = subprocess.run(
            [*apt, *arguments], check=False, env=environment, stdin=subprocess.DEVNULL, capture_output=True
        )
        if finished.returncode != 0:
            print(finished.stdout.decode() + finished.stderr.decode(), flush=True)


def main(arguments: list[str]) -> int:
    """The command line. Missing counterparts are no failure: they are said, and their tests skipped."""
    if not arguments or arguments[0] not in ("report", "install"):
        print(__doc__)
        return 2
    packages = needed_by(arguments[1:])
    if arguments[0] == "install":
        install(missing(packages))
        present.cache_clear()
    for package in missing(packages):
        row = BY_PACKAGE[package]
        print(f"SKIPPED in {', '.join(row.parts)}: {row.purpose} (missing package {package}; make test INSTALL=1)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
