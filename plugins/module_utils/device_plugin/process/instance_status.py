# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the status of this instance of the daemon to run_dir, and read those of the others.

`<instance>.json` is the document, always replaced whole. `<instance>.lock` is locked (flock) while the process lives,
so that a killed instance never seems to live, in any PID namespace. The event loop sets the lock's time of modification
to CLOCK_MONOTONIC every second: one system call that writes no data, wakes no process and does not depend on the time
of day. Of the instances that the kubelet hears, the youngest has a resource, and the others stand by. An instance that
waits, fails or hangs has no resource (docs/device-plugin.md).
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
from ...file_state import State, state
from ...records import CdiError

VERSION = 1
LARGEST = 8 << 20  # bytes of a document that is read
BEAT = 1.0  # seconds between two signs of life
STALE = 5.0  # seconds without one after which a process counts as hanging: the process, or its event loop, is stopped

# States of a resource.
IDLE = "idle"  # no device of it exists yet
WAITING = "waiting"  # for a kubelet
REGISTERING = "registering"
REGISTERED = "registered"  # the kubelet's ListAndWatch has arrived
STANDBY = "standby"  # a younger instance has it
CONFLICT = "conflict"  # another plugin has it, and takeover is off
REFUSED = "refused"  # the kubelet refuses it for good
RETRYING = "retrying"  # a try failed; a later one may succeed
STATES = (IDLE, WAITING, REGISTERING, REGISTERED, STANDBY, CONFLICT, REFUSED, RETRYING)

_YIELDED = (IDLE, CONFLICT, REFUSED)  # an instance in one of these states will not register in a moment


class SeenInstance(NamedTuple):
    """An instance, as its files show it."""

    document: Mapping[str, Any]
    alive: bool
    silent: float = 0.0  # seconds since its last sign of life

    @property
    def hangs(self) -> bool:
        """Whether the process lives but gives no sign of life."""
        return self.alive and self.silent > STALE

    @property
    def problem(self) -> str:
        """A message for the operator if the instance hangs, otherwise ""."""
        if not self.hangs:
            return ""
        name, process = self.document["instance"], self.document.get("pid")
        return (
            f"instance {name}: process {process} has given no sign of life for {self.silent:.0f} s: it is stopped, or "
            "hangs; restart it"
        )

    @property
    def age_key(self) -> tuple[float, str]:
        """The key that sorts instances by age, the youngest last."""
        return float(self.document["since_boot"]), str(self.document["instance"])


class InstanceEntry:
    """The files of this process in `run_dir`, from `enter` to `leave`."""

    def __init__(self, run_dir: str, name: str) -> None:
        self.run_dir = run_dir
        self.name = name
        self._lock: Optional[int] = None
        self._written = b""

    def enter(self) -> list[SeenInstance]:
        """Take the lock, remove the files of dead instances, and return these instances. Raises CdiError.

        A living instance of the same name is an error: the service manager starts each name once.
        """
        files.make_directory(self.run_dir)
        path = self._path("lock")
        try:
            os.close(directories.opened(self.run_dir))  # check that no other user can change it
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
        """Write `document`, if it changed. Raises CdiError."""
        content = _sealed((json.dumps({"version": VERSION, **document}, sort_keys=True) + "\n").encode())
        if content != self._written:
            files.replace(self._path("json"), content, 0o644)
            self._written = content

    def beat(self) -> None:
        """Give a sign of life. Ignore a failure."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        with suppress(OSError):
            if self._lock is not None:
                os.utime(self._lock, ns=(now, now))

    def leave(self) -> None:
        """Release the lock, so that others see this instance as dead. The document stays for the next instance."""
        self._drop()

    def _drop(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _path(self, ending: str) -> str:
        return os.path.join(self.run_dir, f"{self.name}.{ending}")


_SEAL = re.compile(rb'\{"sha256": "([0-9a-f]{64})", ')


def _sealed(content: bytes) -> bytes:
    """Return a JSON object with the digest of its text as the first field."""
    return b'{"sha256": "%s", %s' % (hashlib.sha256(content).hexdigest().encode(), content[1:])


def _is_as_written(content: bytes) -> bool:
    """Tell whether the document is unchanged since its instance wrote it."""
    seal = _SEAL.match(content)
    return seal is not None and hashlib.sha256(b"{" + content[seal.end() :]).hexdigest().encode() == seal[1]


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
    """Return all instances with a readable document, the youngest last, without the one called `but`."""
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
    """Return path -> reason for each document of a living instance that is missing or damaged."""
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


Document = tuple[State, Optional[dict[str, Any]]]  # state of the file, its document


class Peers:
    """The other instances, as seen by the one called `own`, which started `since_boot` seconds after the boot."""

    def __init__(self, run_dir: str, own: str, since_boot: float) -> None:
        self._run_dir = run_dir
        self._own = own
        self._age = (since_boot, own)
        self._documents: dict[str, Document] = {}  # by path, of the last look

    def heard(self, resource: str, kubelet: Sequence[int]) -> str:
        """Return the name of a younger instance that `kubelet` hears, "" for none.

        `kubelet`: the identity of its socket (`unix_sockets.identity`), empty for a kubelet that finds sockets itself.
        Ignore statements about a kubelet, or a socket, that no longer exists: an instance that hangs must not keep the
        resource from the next one.
        """
        for one, found in self._younger(resource):
            registered = found.get("state") == REGISTERED and found.get("stream", False)
            same = not kubelet or found.get("kubelet") in (list(kubelet), [])
            if registered and same and os.path.lexists(found.get("socket", "")):
                return str(one.document["instance"])
        return ""

    def hopeful(self, resource: str) -> bool:
        """Tell whether a younger instance may register in a moment, or has registered and not yet written so."""
        return any(found.get("state", IDLE) not in _YIELDED for _one, found in self._younger(resource))

    def serve(self, resource: str) -> bool:
        """Tell whether any other instance has a stream of the kubelet. One that hangs counts: its stream is open."""
        return any(one.document["resources"].get(resource, {}).get("stream", False) for one in self._living())

    def _younger(self, resource: str) -> Iterator[tuple[SeenInstance, Mapping[str, Any]]]:
        """Yield the younger instances that don't hang, with their status of `resource`."""
        for one in self._living():
            if one.age_key > self._age and not one.hangs:
                yield one, one.document["resources"].get(resource, {})

    def _living(self) -> list[SeenInstance]:
        before, self._documents = self._documents, {}
        return [one for one in instances_in(self._run_dir, self._own, partial(self._read, before)) if one.alive]

    def _read(self, before: Mapping[str, Document], path: str) -> Optional[dict[str, Any]]:
        """Return the document; parse it only if the file changed: it may name ten thousand devices."""
        now = state(path)
        known = before.get(path)
        self._documents[path] = known if known and known[0] == now else (now, _read(path))
        return self._documents[path][1]


def _lock(handle: int) -> None:
    """Lock the file for this process. Raises OSError: BlockingIOError if another instance holds the lock.

    Try several times: a process that only checks the lock holds it for a moment.
    """
    for _time in range(10):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _alive(path: str) -> bool:
    """Tell whether an instance holds the lock. Lock shared, so that two checks don't see each other as the owner."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # never blocks on a FIFO
    except PermissionError:
        return True  # other users than root can't check the lock, and trust the document
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
    """Return the seconds since the lock's owner gave a sign of life; 0 if it gives none or uses another clock."""
    try:
        beat = os.lstat(path).st_mtime_ns
    except OSError:
        return 0.0
    return max(0.0, (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - beat) / 1e9)


def _remove(run_dir: str, name: str, keep_lock: bool) -> None:
    for ending in ("json",) if keep_lock else ("json", "lock"):
        with suppress(OSError):
            os.unlink(os.path.join(run_dir, f"{name}.{ending}"))
