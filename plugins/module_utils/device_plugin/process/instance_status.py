# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each instance of the daemon says of itself in run_dir, and which of them live. Private API of fleet.cdi.

`<instance>.json` is the document, replaced whole; `<instance>.lock` is locked (flock) for as long as the process lives,
so that a kill leaves no instance that seems to live, in whatever PID namespace it was. Its event loop sets the lock's
time of modification to CLOCK_MONOTONIC every second: one system call that writes nothing, wakes nobody and that no
clock which somebody sets can spoil. The youngest instance that the kubelet hears has a resource, and the others stand
by; one that waits, fails or hangs has none (docs/device-plugin.md).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

from ... import directories, files
from ...records import CdiError
from .watch import State, state

VERSION = 1
LARGEST = 8 << 20  # bytes of a document that is read
BEAT = 1.0  # seconds between two signs of life
STALE = 5.0  # seconds without one, after which a process hangs: it is stopped, or its event loop is

# States of a resource.
IDLE = "idle"  # there is no device of it yet
WAITING = "waiting"  # for a kubelet
REGISTERING = "registering"
REGISTERED = "registered"  # the kubelet's ListAndWatch has arrived
STANDBY = "standby"  # a younger instance has it
CONFLICT = "conflict"  # another plugin has it, and takeover is off
REFUSED = "refused"  # the kubelet will not take it, whatever is tried
RETRYING = "retrying"  # something failed that may go better later
STATES = (IDLE, WAITING, REGISTERING, REGISTERED, STANDBY, CONFLICT, REFUSED, RETRYING)

_YIELDED = (IDLE, CONFLICT, REFUSED)  # whoever is in one of these states will not register in a moment


class SeenInstance(NamedTuple):
    """An instance, as its files tell."""

    document: Mapping[str, Any]
    alive: bool
    silent: float = 0.0  # seconds since its last sign of life

    @property
    def hangs(self) -> bool:
        """Whether it lives and does nothing."""
        return self.alive and self.silent > STALE

    @property
    def problem(self) -> str:
        """That it hangs, for an operator; "" if it does not."""
        if not self.hangs:
            return ""
        name, process = self.document["instance"], self.document.get("pid")
        return (
            f"instance {name}: process {process} has given no sign of life for {self.silent:.0f} s: it is stopped, or "
            "hangs; restart it"
        )

    @property
    def age_key(self) -> tuple[float, str]:
        """What orders instances by age, the youngest last."""
        return float(self.document["since_boot"]), str(self.document["instance"])


class InstanceEntry:
    """This process' own place in `run_dir`, from `enter` to `leave`."""

    def __init__(self, run_dir: str, name: str) -> None:
        self.run_dir = run_dir
        self.name = name
        self._lock: Optional[int] = None
        self._written = b""

    def enter(self) -> list[SeenInstance]:
        """Take the lock, and clear away what dead instances left; returns these. Raises CdiError.

        An instance of this name that lives is an error: the service manager starts each name once.
        """
        files.make_directory(self.run_dir)
        path = self._path("lock")
        try:
            os.close(directories.opened(self.run_dir))  # what was checked stays so
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            _lock(self._lock)
            self.beat()
        except BlockingIOError:
            self._drop()
            raise CdiError(
                f"{path}: instance {self.name!r} runs already; stop it, or choose another --instance"
            ) from None
        except OSError as error:
            self._drop()
            raise CdiError(f"{path}: can't lock it: {error.strerror}; choose another run_dir") from None
        dead = [seen for seen in instances_in(self.run_dir) if not seen.alive or seen.document["instance"] == self.name]
        for seen in dead:
            _remove(self.run_dir, str(seen.document["instance"]), keep_lock=seen.document["instance"] == self.name)
        return dead

    def write(self, document: Mapping[str, Any]) -> None:
        """Say `document`; nothing is written where it is as before. Raises CdiError."""
        content = _sealed((json.dumps({"version": VERSION, **document}, sort_keys=True) + "\n").encode())
        if content != self._written:
            files.replace(self._path("json"), content, 0o644)
            self._written = content

    def beat(self) -> None:
        """Give a sign of life. One that can't be given ends nothing."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        with suppress(OSError):
            if self._lock is not None:
                os.utime(self._lock, ns=(now, now))

    def leave(self) -> None:
        """Be dead to others. The document stays, for whoever starts next."""
        self._drop()

    def _drop(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _path(self, ending: str) -> str:
        return os.path.join(self.run_dir, f"{self.name}.{ending}")


_SEAL = re.compile(rb'\{"sha256": "([0-9a-f]{64})", ')


def _sealed(content: bytes) -> bytes:
    """A JSON object with the digest of its text as first field."""
    return b'{"sha256": "%s", %s' % (hashlib.sha256(content).hexdigest().encode(), content[1:])


def _is_as_written(content: bytes) -> bool:
    """Whether nobody else wrote into it; true for one without a digest, which an older release wrote."""
    seal = _SEAL.match(content)
    return seal is None or hashlib.sha256(b"{" + content[seal.end() :]).hexdigest().encode() == seal[1]


def _read(path: str) -> Optional[dict[str, Any]]:
    try:
        live = files.read(path, LARGEST)
        document = json.loads(live.content) if live and _is_as_written(live.content) else None
        if document is None or document["version"] != VERSION:
            return None
        document["instance"], float(document["since_boot"]), document["resources"].items()
    except (CdiError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return dict(document)


def instances_in(
    run_dir: str, but: str = "", read: Callable[[str], Optional[dict[str, Any]]] = _read
) -> list[SeenInstance]:
    """All instances that left a document, the youngest last, without the one called `but`.

    Raises nothing: what can't be read is left out.
    """
    found = []
    with suppress(OSError):
        for name in sorted(os.listdir(run_dir)):
            stem, ending = os.path.splitext(name)
            document = read(os.path.join(run_dir, name)) if ending == ".json" and stem != but else None
            if document is not None and document["instance"] == stem:
                lock = os.path.join(run_dir, f"{stem}.lock")
                found.append(SeenInstance(document, _alive(lock), _silent(lock)))
    return sorted(found, key=lambda seen: seen.age_key)


def unusable(run_dir: str) -> dict[str, str]:
    """Path of each document that a living instance wrote and that can't be used -> why. Raises nothing."""
    found: dict[str, str] = {}
    names = []
    with suppress(OSError):
        names = sorted(os.listdir(run_dir))
    for name in names:
        stem, ending = os.path.splitext(name)
        path = os.path.join(run_dir, f"{stem}.json")
        if ending == ".lock" and _alive(os.path.join(run_dir, name)) and _read(path) is None:
            found[path] = "is damaged" if os.path.lexists(path) else "is gone"
    return found


Document = tuple[State, Optional[dict[str, Any]]]  # what the file was like, what it says


class Peers:
    """The other instances beside the one called `own`, which began `since_boot` seconds after the host did."""

    def __init__(self, run_dir: str, own: str, since_boot: float) -> None:
        self._run_dir = run_dir
        self._own = own
        self._age = (since_boot, own)
        self._documents: dict[str, Document] = {}  # by path, of those that were there last

    def heard(self, resource: str, kubelet: Sequence[int]) -> str:
        """The instance after this one that `kubelet` hears, "" for none.

        `kubelet`: what its socket is (`dial.identity`), empty where it finds sockets by itself. What an instance says
        of a kubelet, or of a socket, that is gone is void: one that hangs must not keep the resource from the next.
        """
        for one, found in self._younger(resource):
            registered = found.get("state") == REGISTERED and found.get("stream", False)
            same = not kubelet or found.get("kubelet") in (list(kubelet), [])
            if registered and same and os.path.lexists(found.get("socket", "")):
                return str(one.document["instance"])
        return ""

    def hopeful(self, resource: str) -> bool:
        """Whether one after this one may be registered in a moment, or is and has not said so yet."""
        return any(found.get("state", IDLE) not in _YIELDED for _one, found in self._younger(resource))

    def serve(self, resource: str) -> bool:
        """Whether any of them says that the kubelet hears it. One that hangs may be right: its stream is still open."""
        return any(one.document["resources"].get(resource, {}).get("stream", False) for one in self._living())

    def _younger(self, resource: str) -> Iterator[tuple[SeenInstance, Mapping[str, Any]]]:
        """Those that began after this one and do something, and what they say of `resource`."""
        for one in self._living():
            if one.age_key > self._age and not one.hangs:
                yield one, one.document["resources"].get(resource, {})

    def _living(self) -> list[SeenInstance]:
        before, self._documents = self._documents, {}
        return [one for one in instances_in(self._run_dir, self._own, partial(self._read, before)) if one.alive]

    def _read(self, before: Mapping[str, Document], path: str) -> Optional[dict[str, Any]]:
        """The document, parsed again if it is another one: it may name ten thousand devices."""
        now = state(path)
        known = before.get(path)
        self._documents[path] = known if known and known[0] == now else (now, _read(path))
        return self._documents[path][1]


def _lock(handle: int) -> None:
    """Lock it for this process. Raises OSError: BlockingIOError where another instance has it.

    Who asks whether one lives has the lock for a moment.
    """
    for _time in range(10):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _alive(path: str) -> bool:
    """Whether somebody holds the lock. Shared, so that two who ask don't take each other for the owner."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # nobody waits for a FIFO
    except PermissionError:
        return True  # somebody else than root, who may not ask, takes the document's word for it
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _silent(path: str) -> float:
    """Seconds since the owner of a lock gave a sign of life; 0 for one that gives none, or goes by another clock."""
    try:
        beat = os.lstat(path).st_mtime_ns
    except OSError:
        return 0.0
    return max(0.0, (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - beat) / 1e9)


def _remove(run_dir: str, name: str, keep_lock: bool) -> None:
    for ending in ("json",) if keep_lock else ("json", "lock"):
        with suppress(OSError):
            os.unlink(os.path.join(run_dir, f"{name}.{ending}"))
