# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SELinux lets a container do with device nodes, and which files have other labels than its policy wants.

The kernel answers the first question from the policy that it has loaded, and restorecon(8) the second.

A runtime of root makes the nodes of a container anew, with the container's own label, and each opens. In a user
namespace (rootless podman, --userns, pods without host users) it can't: it mounts the host's node, and the label of
that counts (runc, libcontainer/rootfs_linux.go; crun, src/libcrun/linux.c).

So no table of types is needed here, and each boolean and each module of an administrator counts. Sources: the kernel's
security/selinux/selinuxfs.c (`access`, `class`, `booleans`); go-selinux, which podman, CRI-O, docker and containerd use
(go-selinux/selinux_linux.go, openContextFile and loadLabels), for the label of a container.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Callable, NamedTuple, Optional

from ..files import LABEL, RESTORECON
from . import systemd

CLASSES = {stat.S_IFCHR: "chr_file", stat.S_IFBLK: "blk_file"}
OPEN = ("open", "read", "write")  # what a container does with nearly every device
MAP = ("map",)  # what many programs for accelerators do besides: ROCm maps /dev/kfd
PERMISSIVE = 1  # AVD_FLAGS_PERMISSIVE: this domain is only warned
LARGEST = 1 << 16  # bytes that are read of a file; they have a few hundred
# Booleans that let containers open devices, and the type of the nodes; "" for all types. container-selinux 2.230
# (container.te) has the first, which is off by default, and the second, which is on; the reference policy, which Debian
# has, the third, which is off.
SWITCHES = {
    "container_use_devices": "",
    "container_use_dri_devices": "dri_device_t",
    "container_use_dri": "dri_device_t",
}
WOULD_RELABEL = re.compile(r"^Would relabel (.+) from (.+) to (\S+)$", re.MULTILINE)


class PolicyPlaces(NamedTuple):
    """Where the kernel and the distribution keep what concerns SELinux."""

    kernel: str = "/sys/fs/selinux"
    settings: str = "/etc/selinux"
    containers: str = "/usr/share/containers/selinux/contexts"


HOST = PolicyPlaces()


class DeniedNode(NamedTuple):
    """A device node that containers may not use, although it is handed out."""

    path: str
    label: str  # as user:role:type:level; "" if it has none
    denied: tuple[str, ...]  # of OPEN and MAP


class WrongLabel(NamedTuple):
    """A file with another type than the policy has for its path."""

    path: str
    now: str  # a type; "" for a file without a label
    wanted: str


class Denials(NamedTuple):
    """What the loaded policy denies to containers."""

    container: str  # the label of a container's processes
    nodes: tuple[DeniedNode, ...]
    off: tuple[str, ...] = ()  # those of SWITCHES that this policy has and that are off


NONE = Denials("", ())


def enforcing(places: PolicyPlaces = HOST) -> bool:
    """Tell whether SELinux denies, and does not only warn. One failed open on a host without SELinux."""
    return _text(os.path.join(places.kernel, "enforce")).strip() == "1"


def denials(
    nodes: Iterable[str],
    places: PolicyPlaces = HOST,
    ask: Optional[Callable[[str], str]] = None,
    label_of: Optional[Callable[[str], str]] = None,
) -> Denials:
    """Return which device nodes containers may not use; NONE where SELinux is off or only warns.

    `ask` sends a question to the kernel's file `access`; `label_of` reads the label of a path. Both raise OSError. A
    node that is missing, or about which the kernel refuses to answer, is left out.
    """
    if not enforcing(places):
        return NONE
    container = container_label(places)
    if not container:
        return NONE
    kernel = _Kernel(places, container, ask or (lambda question: _asked(places, question)))
    found = [one for path in nodes if (one := _denied(path, kernel, label_of or label)) is not None]
    values = {name: _text(os.path.join(places.kernel, "booleans", name)).split() for name in SWITCHES}
    return Denials(container, tuple(found), tuple(name for name, now in values.items() if now[:1] == ["0"]))


def wrong_labels(paths: Sequence[str], run: systemd.Run) -> tuple[WrongLabel, ...]:
    """Return the files at and below `paths` whose type restorecon would change. It changes nothing."""
    there = [path for path in paths if os.path.lexists(path)]
    if not there:
        return ()
    _status, said = run([RESTORECON, "-n", "-v", "-R", *there])
    return tuple(WrongLabel(path, type_of(now), type_of(wanted)) for path, now, wanted in WOULD_RELABEL.findall(said))


def container_label(places: PolicyPlaces = HOST) -> str:
    """Return the label that engines give to processes of a container, without categories; "" if nothing names one."""
    text = _text(places.containers)
    if not text:
        kind = dict(_assigned(_text(os.path.join(places.settings, "config")))).get("SELINUXTYPE", "")
        text = _text(os.path.join(places.settings, kind, "contexts", "lxc_contexts")) if kind else ""
    return dict(_assigned(text)).get("process", "")


def label(path: str) -> str:
    """Return the label of a file; "" if it has none. Raises OSError if the file can't be reached."""
    try:
        return os.getxattr(path, LABEL).rstrip(b"\0").decode("ascii", "replace")
    except OSError:
        os.stat(path)
        return ""


def type_of(text: str) -> str:
    """Return the type in a label: the third of its parts."""
    return (text.split(":") + [""] * 3)[2]


class _Kernel:
    """Asks what the processes of one label may do."""

    def __init__(self, places: PolicyPlaces, source: str, ask: Callable[[str], str]) -> None:
        self.places, self.source, self.ask = places, source, ask
        self.known: dict[tuple[str, str], tuple[str, ...]] = {}

    def denied(self, target: str, sort: str) -> tuple[str, ...]:
        """Return which of OPEN and MAP the policy denies for files with this label. Raises OSError, ValueError."""
        if (target, sort) not in self.known:
            folder = os.path.join(self.places.kernel, "class", sort)
            answer = self.ask(f"{self.source} {target} {int(_text(os.path.join(folder, 'index')))}").split()
            allowed, flags = int(answer[0], 16), int(answer[5], 16) if len(answer) > 5 else 0
            missing = (
                name
                for name in (*OPEN, *MAP)
                if (bit := _text(os.path.join(folder, "perms", name)).strip()) and not allowed & (1 << (int(bit) - 1))
            )
            self.known[target, sort] = () if flags & PERMISSIVE else tuple(missing)
        return self.known[target, sort]


def _denied(path: str, kernel: _Kernel, label_of: Callable[[str], str]) -> Optional[DeniedNode]:
    with suppress(OSError, ValueError):
        sort = CLASSES.get(stat.S_IFMT(os.stat(path).st_mode))
        found = label_of(path)
        if sort and (denied := kernel.denied(found or "system_u:object_r:unlabeled_t:s0", sort)):
            return DeniedNode(path, found, denied)
    return None


def _asked(places: PolicyPlaces, question: str) -> str:
    """Ask the kernel: the answer comes from the descriptor that the question went to. Raises OSError."""
    handle = os.open(os.path.join(places.kernel, "access"), os.O_RDWR | os.O_CLOEXEC)
    try:
        os.write(handle, question.encode())
        return os.read(handle, LARGEST).decode("ascii", "replace")
    finally:
        os.close(handle)


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each line NAME = VALUE."""
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and not name.lstrip().startswith(("#", ";")):
            yield name.strip(), value.strip().strip('"')


def _text(path: str) -> str:
    """Return the text of a small file; "" if it can't be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(handle, LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(handle)
