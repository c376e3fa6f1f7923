# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The containers that use a claim: a directory with a file for each, which the claim's hook writes at each start.

The file has the mark of the container's process. So whether a container runs is a question to the kernel: an engine
that is killed, and a runtime that calls no poststop hook, leave no wrong answer. A damaged file counts as that of a
container that runs, unless the claim is of an earlier boot. The directory's name has the claim's token: a container
that was made for an earlier claim with the same id does not start.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

from ... import documents, files
from ...layout import Layout
from ...records import CdiError
from ...system import process_mark
from ..device_name import claim_id, device_name
from ..record import GRANTED, IDLE, ClaimRecord, WantedClaim
from ..store import DIRECTORY

LARGEST = 4096  # bytes of a mark
ENDING = ".users"
NO_MARK = "{}: is not the mark of a process, by its checksum, so its container counts as running"


class ClaimUser(NamedTuple):
    """A container that was started with a claim, or a command (run_command.py)."""

    container: str  # id; of a command its scope
    runs: bool
    fault: str = ""  # why its file has no mark; then it counts as running


def users_path(state_dir: str, claim: ClaimRecord) -> str:
    """Return the directory of the claim's users. Raises CdiError."""
    return os.path.join(state_dir, DIRECTORY, f"{device_name(claim.id)}.{claim.token}{ENDING}")


def claim_of_users(name: str) -> Optional[ClaimRecord]:
    """Return the claim whose users have the directory `name`, with id and token alone; None for another name."""
    device, _dot, token = name[: -len(ENDING)].rpartition(".")
    if not (name.isascii() and name.endswith(ENDING) and device):
        return None
    return ClaimRecord(WantedClaim(claim_id(device), {}), token=token)


def start_hooks(places: Layout, claim: ClaimRecord) -> list[dict[str, Any]]:
    """Return the hook of the claim's spec that notes each container, and refuses one if the claim is over.

    None in a claim for an ordinary user, whose hooks can't write here (user_access.py).

    It runs at createRuntime: only there is the process in the state that of the host (OCI runtime specification,
    "State"). Raises CdiError.
    """
    if claim.uid:
        return []
    hook = {
        "hookName": "createRuntime",
        "path": os.path.join(places.prefix, "bin/cdi-hook"),
        "args": ["cdi-hook", "use-claim", f"--directory={users_path(places.state_dir, claim)}"],
        "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
    }
    return [hook]


def make_users(state_dir: str, claim: ClaimRecord) -> None:
    """Make the directory, without which no container with this claim starts. Raises CdiError."""
    files.make_directory(users_path(state_dir, claim), 0o700)


def has_users(state_dir: str, claim: ClaimRecord) -> bool:
    """Return True if the directory is there, or if the claim needs none: it is for an ordinary user."""
    path = users_path(state_dir, claim)
    return bool(claim.uid) or (os.path.isdir(path) and not os.path.islink(path))


def read_users(state_dir: str, claim: ClaimRecord) -> tuple[ClaimUser, ...]:
    """Return the containers that were started with the claim, sorted. Raises CdiError."""
    path = users_path(state_dir, claim)
    found = [_read_user(path, name, claim.boot_id) for name in _names_in(path) if not name.startswith(".")]
    users = [user for user in found if user is not None]
    ended = [user.container for user in users if not user.runs]
    restored: Collection[str] = ()
    if ended:
        from ...system import control_group  # a new claim has no users

        # crun runs no hook when it restores a container from a checkpoint: the mark is that of an ended process.
        try:
            restored = control_group.running_containers(ended)
        except OSError as error:
            raise documents.failed("read", "/proc", error) from None
    return tuple(user._replace(runs=user.runs or user.container in restored) for user in users)


def _names_in(path: str) -> list[str]:
    """Return the names in a directory, sorted; [] if it is missing. Raises CdiError."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise documents.failed("list", path, error) from None


def _read_user(directory: str, name: str, boot: str) -> Optional[ClaimUser]:
    """Return the container by its file; None if this is gone meanwhile, because the claim was given back.

    `boot`: that of the claim. In another one no container has started with it: its spec is missing since the reboot.
    """
    path = os.path.join(directory, name)
    try:
        live = files.read(path, LARGEST)
        if live is None:
            return None
        line = live.content.decode("ascii", "replace")
        fault = "" if process_mark.is_mark(line) else NO_MARK.format(path)
    except CdiError as error:
        line, fault = "", str(error)
    if fault and boot != process_mark.boot_id():
        return ClaimUser(name, False)
    return ClaimUser(name, process_mark.runs(line), fault)


def scope_of(claim: ClaimRecord) -> str:
    """Return the unit of systemd for a command of the host that uses the claim."""
    return f"fleet-cdi-claim-{claim.token}.scope"


def note_command(state_dir: str, claim: ClaimRecord, pid: int) -> None:
    """Note a process of the host as user of the claim, under the name of its scope. Raises CdiError."""
    path = os.path.join(users_path(state_dir, claim), scope_of(claim))
    try:
        mark = process_mark.process_mark(pid)
    except OSError as error:
        raise documents.failed("read", f"/proc/{pid}", error) from None
    files.replace(path, mark.encode("ascii"), 0o600)


def shown_state(state_dir: str, claim: ClaimRecord) -> ClaimRecord:
    """Return the claim as `idle` if it was used and no container with it runs. Raises CdiError."""
    return state_by(read_users(state_dir, claim) if claim.state == GRANTED else (), claim)


def state_by(users: Sequence[ClaimUser], claim: ClaimRecord) -> ClaimRecord:
    """Return the claim as `idle` if it has users and none of them runs."""
    return claim._replace(state=IDLE) if users and not any(user.runs for user in users) else claim


def end_use(state_dir: str, claim: ClaimRecord, gone: Collection[str]) -> bool:
    """End the use of a claim if no container but those in `gone` (ids) has it and none of them runs; return if so.

    From then on no container with this claim starts, also if this process is killed. Raises CdiError.
    """
    with locked(users_path(state_dir, claim)):
        if any(user.runs or user.container not in gone for user in read_users(state_dir, claim)):
            return False
        files.replace(_closed(state_dir, claim), b"", 0o600)
    return True


def refuse_running(state_dir: str, claim: ClaimRecord) -> None:
    """Raise CdiError if a container or command runs that was started with the claim."""
    running = [
        f"{user.container} (its file is damaged: see `fleet-cdi claim check`)" if user.fault else user.container
        for user in read_users(state_dir, claim)
        if user.runs
    ]
    if running:
        raise CdiError(
            f"claim {claim.id}: containers or commands that use it still run: {', '.join(running)}. Stop them first "
            "(podman stop, docker stop; systemctl stop for a scope), or give the devices back nevertheless (--force, "
            "force: true): then others may get them meanwhile."
        )


@contextmanager
def ending_use(state_dir: str, claim: ClaimRecord, force: bool) -> Iterator[tuple[ClaimUser, ...]]:
    """End the use of a claim after the block, unless a container runs and `force` is not set. Keeps hooks away.

    Yields the containers that were started with it. Raises CdiError before the block, and in the end.
    """
    with locked(users_path(state_dir, claim)):
        if not force:
            refuse_running(state_dir, claim)
        yield read_users(state_dir, claim)
        if os.path.lexists(users_path(state_dir, claim)):
            files.replace(_closed(state_dir, claim), b"", 0o600)


def use_ended(state_dir: str, claim: ClaimRecord) -> bool:
    """Return True if `end_use` ended the use of this claim."""
    return os.path.lexists(_closed(state_dir, claim))


def _closed(state_dir: str, claim: ClaimRecord) -> str:
    return os.path.join(users_path(state_dir, claim), process_mark.CLOSED)


def drop_users(state_dir: str, claim: ClaimRecord) -> None:
    """Forget all users of a claim, because it is given back. Ends processes that its command left. Raises CdiError."""
    with locked(users_path(state_dir, claim)):
        path = users_path(state_dir, claim)
        for user in read_users(state_dir, claim):
            if user.container == scope_of(claim):
                from ...system.commands.device_scope import stop_scope  # only commands of the host have one

                stop_scope(user.container)  # what the command left may have the devices open
            files.remove(os.path.join(path, user.container))
        for name in _names_in(path):
            if name.startswith("."):  # CLOSED, and what a killed process left half written
                files.remove(os.path.join(path, name))
        files.remove_directory(path)


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Keep hooks from the directory meanwhile: one that waits finds it removed, or notes its container afterwards."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise documents.failed("open", path, error) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
