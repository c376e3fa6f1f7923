# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let a container's dynamic linker find libraries that the spec mounts into it.

This does the work of NVIDIA's update-ldcache (1.20.1, internal/ldconfig): directories go to drop-in files of
/etc/ld.so.conf.d, and the host's ldconfig makes /etc/ld.so.cache and the links with the names that programs ask for.
The container's own ldconfig, which may be missing or hostile, is never run.
"""

from __future__ import annotations

import os

from .container_root import ContainerRoot
from .error import HookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CONFIG, DROP_INS, CACHE = "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.cache"
# They are read in the order of their names: ours before those of most, a container's CUDA compatibility libraries
# (00-compat, 00-cuda) before ours, and what ldconfig searches anyway last.
COMPAT, OURS, LAST = (f"{DROP_INS}/{name}.conf" for name in ("00-compat-fleet-cdi", "00-fleet-cdi", "zz-fleet-cdi"))
# Directories that the linker searches without being told. Debian's ldconfig has others than those of RPM distributions,
# and the host's works in any container (glibc, elf/ldconfig.c, add_system_dir; Debian's patch for multiarch).
SYSTEM = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
MULTIARCH = ("/lib/{}-linux-gnu", "/usr/lib/{}-linux-gnu", "/lib", "/usr/lib")
# Limits on the configuration of an image, which could otherwise take all of the host's memory and time: ldconfig reads
# a file each time that it is included, and compares each directory with all others. Debian's has 6 lines.
MOST_FILES, MOST_LINES = 1000, 10_000
MOST_SAID = 20  # lines of ldconfig's output that are shown


def update(container: ContainerRoot, folders: Iterable[str], ldconfig: str, root: bytes, seconds: int) -> list[str]:
    """Make the cache with `folders`; return ldconfig's output, or why a cache is useless here.

    `seconds` limits the processor time of ldconfig. Raises HookError and OSError.
    """
    if _is_musl(container):
        return ["the container's C library is musl, which has no cache of libraries"]
    from . import confined_ldconfig  # its imports take time

    program = confined_ldconfig.copy(ldconfig)
    if not container.has(CONFIG):
        container.write(CONFIG, f"include {DROP_INS}/*.conf\n")
    system = system_folders(container)
    known = {*system, *_configured(container)}
    add(container, OURS, [folder for folder in folders if folder not in known])
    add(container, LAST, system)
    opened = os.fstat(container.root)
    status, said = confined_ldconfig.run(program, ["ldconfig", "-f", CONFIG, "-C", CACHE], root, opened, seconds)
    lines = [line for line in said.split("\n") if line][:MOST_SAID]
    if status:
        raise HookError(
            f"{ldconfig}: failed for the container ({_why(status, seconds)}): {'; '.join(lines) or 'it said nothing'}"
        )
    return lines


def _why(status: int, seconds: int) -> str:
    return f"exit status {status}" if status > 0 else f"signal {-status}; it may take {seconds} s of processor time"


def add(container: ContainerRoot, file: str, folders: Iterable[str]) -> None:
    """Add to a drop-in the `folders` that it does not have."""
    there = list(filter(None, container.read(file).split("\n")))
    more = [folder for folder in dict.fromkeys(folders) if folder not in there]
    if more:
        container.write(file, "".join(f"{folder}\n" for folder in (*there, *more)))


def system_folders(container: ContainerRoot) -> tuple[str, ...]:
    """Return the directories that the container's own linker searches."""
    if container.has("/etc/debian_version"):
        return tuple(path.format(os.uname().machine) for path in MULTIARCH)
    return SYSTEM


def _is_musl(container: ContainerRoot) -> bool:
    """Return True if nothing in the container reads a cache: musl without glibc, as in Alpine.

    Other images may lack a linker, too.
    """
    return bool(container.names("/lib", "ld-musl-")) and not container.has(CACHE)


class _ConfigFile:
    """The content of one configuration file."""

    def __init__(self, lines: int) -> None:
        self.lines = lines
        self.includes: list[str] = []


def _configured(container: ContainerRoot) -> set[str]:
    """Return the directories in ld.so.conf and its includes (ldconfig(8)), except those in our own drop-ins.

    Raises HookError, also for more than MOST_FILES and MOST_LINES: a file counts each time that it is included.
    """
    found: set[str] = set()
    read: dict[str, _ConfigFile] = {}
    left, files, lines = [CONFIG], 0, 0
    while left:
        name = left.pop()
        if name not in read:
            read[name] = _parsed(container, name, set() if name in (OURS, LAST) else found)
        files, lines = files + 1, lines + read[name].lines
        _bound("files", files, MOST_FILES)
        _bound("lines", lines, MOST_LINES)
        left += read[name].includes
    return found


def _parsed(container: ContainerRoot, name: str, folders: set[str]) -> _ConfigFile:
    """Read a configuration file, and add its directories to `folders`."""
    text = container.read(name)
    file = _ConfigFile(text.count("\n"))
    _bound("lines", file.lines, MOST_LINES)
    for line in text.split("\n"):
        words = line.partition("\0")[0].partition("#")[0].split(None, 1)  # ldconfig reads C strings
        if words[:1] == ["include"] and words[1:]:
            file.includes += _matching(container, words[1].strip())
            _bound("files", len(file.includes), MOST_FILES)
        elif words and words[0] != "hwcap":
            folders.add(words[0].partition("=")[0].rstrip("/") or "/")
    return file


def _bound(what: str, number: int, most: int) -> None:
    if number > most:
        raise HookError(
            f"{CONFIG}: found more than {most} {what} in it and in what it includes, each time; expected less"
        )


def _matching(container: ContainerRoot, pattern: str) -> list[str]:
    """Return the files that `include` means. A pattern has at most one "*", in its last part, or it means none."""
    directory, name = os.path.split(os.path.join("/etc", pattern))
    start, star, end = name.partition("*")
    if not star:
        return [f"{directory}/{name}"]
    if set(directory + end) & set("*?["):
        return []
    return [f"{directory}/{one}" for one in container.names(directory, start, end) if not one.startswith(".")]
