# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of virtual machines: Debian with a kernel, systemd, sshd and an ordinary user, made once and kept.

mmdebstrap makes the root directory and mke2fs the disk, without a loop device. The disk has no partitions and no boot
loader: QEMU starts the kernel directly.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import engines  # tests/harness

BUILT = Path(__file__).resolve().parents[2] / "build/machines"
USER = "fleet"
SIZE = "4G"  # of the disk; the file is sparse
DIGITS = 12  # of the digest of a recipe in the name of its image
MIRROR = "http://deb.debian.org/debian"  # mmdebstrap's own choice, where this host names none

PACKAGES = ["systemd-sysv", "udev", "dbus", "dbus-user-session", "libpam-systemd", "linux-image-amd64"]
PACKAGES += [
    "initramfs-tools",
    "kmod",
    "zstd",
    "openssh-server",
    "sudo",
    "python3",
    "python3-pyudev",
    "pciutils",
    "hwloc-nox",
]
PACKAGES += ["busybox-static", "apparmor"]

# A network that needs no DHCP: the addresses are those of QEMU's user network. Devices of no driver get uio_pci_generic
# if they are the teaching device `edu`, so that profile `rule` has a node to hand out.
FILES = {
    "etc/hostname": "machine\n",
    "etc/hosts": "127.0.0.1 localhost machine\n::1 localhost\n",
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    "etc/systemd/network/10-machine.network": "[Match]\nDriver=virtio_net\n[Network]\nAddress=10.0.2.15/24\n"
    "Gateway=10.0.2.2\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
    "etc/udev/rules.d/60-edu.rules": 'ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x1234", ATTR{device}=="0x11e8", '
    'ATTR{driver_override}="uio_pci_generic", RUN{builtin}+="kmod load uio_pci_generic"\n',
    # sudo of sid does not look in /usr/local by itself: docs/cli.md
    "etc/sudoers.d/fleet": f"{USER} ALL=(ALL) NOPASSWD: ALL\n"
    "Defaults secure_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
    "etc/initramfs-tools/conf.d/machine": "MODULES=list\nCOMPRESS=zstd\n",
    "etc/initramfs-tools/modules": "virtio_pci\nvirtio_blk\next4\n",
    "etc/ssh/sshd_config.d/machine.conf": "UseDNS no\nPermitRootLogin no\nPasswordAuthentication no\n",
}
# busybox in a directory of its own is the root directory of all containers: none needs an image from a registry.
COMMANDS = (
    f"useradd --create-home --shell /bin/bash --groups systemd-journal {USER}",
    "systemctl enable systemd-networkd",
    "systemctl disable systemd-networkd-wait-online",
    "systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service",
    "mkdir -p /opt/container/bin && cp /bin/busybox /opt/container/bin && ln -s busybox /opt/container/bin/sh",
    "update-initramfs -u",
)


class Image(NamedTuple):
    """The files of an image."""

    disk: Path  # a file system, raw
    kernel: Path
    initrd: Path
    key: Path  # the private key of USER


def recipe(suite: str, packages: Sequence[str]) -> list[str]:
    """The options of mmdebstrap for a suite with more packages than every image has.

    NAME/SUITE is a package of another suite. What it depends on is of `suite`, as everything else.
    """
    others = _others(packages)
    names = [package.partition("/")[0] for package in packages]
    made = [
        "--quiet",
        "--variant=minbase",
        "--dpkgopt=force-unsafe-io",
        f"--include={','.join([*PACKAGES, *names])}",
    ]
    made += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    if others:
        pins = "".join(rf"Package: {name}\nPin: release n={one}\nPin-Priority: 995\n\n" for name, one in others)
        made.append(f'--aptopt=APT::Default-Release "{suite}"')  # priority 990
        made.append(f'--setup-hook=printf "{pins}" >"$1/etc/apt/preferences.d/suites"')
    return [*made, '--aptopt=Acquire::Check-Valid-Until "false"', suite]


def _others(packages: Sequence[str]) -> list[tuple[str, str]]:
    """(name, suite) of the packages that say of which suite they are."""
    return [(name, suite) for name, _slash, suite in (package.partition("/") for package in packages) if suite]


def _sources(suite: str, packages: Sequence[str]) -> list[str]:
    """From where the packages come, in mmdebstrap's words."""
    mirror = engines.mirror()
    suites = dict.fromkeys(one for _name, one in _others(packages))
    return [f"deb {(mirror or [MIRROR])[0]} {one} main" for one in (suite, *suites)] if suites else mirror


def image(name: str, suite: str, packages: Sequence[str], commands: Sequence[str] = ()) -> Image:
    """Return the image of a machine, made unless this recipe has been made before. Needs root. Raises OSError.

    `commands` are shell commands that run last, in the root directory of the image.
    """
    options = recipe(suite, packages)
    text = json.dumps([options, FILES, [*COMMANDS, *commands], USER, SIZE])
    place = BUILT / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"
    found = Image(place / "disk.img", place / "vmlinuz", place / "initrd.img", place / "key")
    if not place.exists():
        part = place.with_suffix(f".{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            _make(part, options, _sources(suite, packages), commands)
            part.rename(place)
            for older in BUILT.glob(f"{name}-{'?' * DIGITS}"):
                if older != place and not older.suffix:
                    shutil.rmtree(older)  # a machine that runs from it has it open
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return found


def _make(place: Path, options: list[str], sources: Sequence[str], commands: Sequence[str]) -> None:
    """Make the files of an image in the directory `place`. Raises OSError."""
    root = place / "root"
    # In a mount namespace of its own: where mmdebstrap is killed, /proc and the host's /dev/shm don't stay mounted in a
    # directory that is removed next.
    _run("unshare", "--mount", "--propagation=private", "mmdebstrap", *options, str(root), *sources)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fleet.cdi machine", "-f", str(place / "key"))
    for path, content in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")
    (root / "etc/sudoers.d/fleet").chmod(0o440)
    for command in COMMANDS:
        _run("chroot", str(root), "sh", "-euc", command)
    keys = root / f"home/{USER}/.ssh"
    keys.mkdir(mode=0o700)
    shutil.copy(place / "key.pub", keys / "authorized_keys")
    _run("chroot", str(root), "chown", "-R", f"{USER}:", f"/home/{USER}/.ssh")
    (root / "etc/machine-id").write_text("", encoding="ascii")  # made at each start; systemd sees no "first boot"
    for name in ("vmlinuz", "initrd.img"):
        (newest,) = root.glob(f"boot/{name}-*")
        shutil.copy(newest, place / name)
    for directory in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(root / directory)
        (root / directory / "partial").mkdir(parents=True)
    for command in commands:
        _run("chroot", str(root), "sh", "-euc", command)
    _run("mke2fs", "-q", "-t", "ext4", "-d", str(root), str(place / "disk.img"), SIZE)
    shutil.rmtree(root)


def _run(*command: str) -> None:
    """Run a command. Raises OSError with the last line that it said."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command[:4])}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
