# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Family "races": a local user, who changes directories of his own at any system call of what root does there.

A seed picks what root does (tests/harness/writers.py), which of its places the user has in his hand and how, at which
system call root is stopped, and what the user does then. All that he does is done by a process of that user. Nothing of
root's may change but what we own, and no file of root's may come into or through a directory of the user's.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # the control, a process of its own
    sys.path[:0] = [str(CHECKOUT / "tests/harness"), str(CHECKOUT / "build/pythonpath")]

import syscalls
import writers
from oracle import FOREIGN, TIME, TRACEBACK, Control, Finding, Outcome, Watch

from ansible_collections.fleet.cdi.plugins.module_utils import directories

USER = 65534
CONTROL_SEEDS = 60
STOPS: dict[str, int] = {}  # writer -> the stops of one undisturbed run


class Place(NamedTuple):
    """One of root's directories, in the user's hand."""

    path: Path  # how root names it
    his: Path  # the directory in which the user can do as he likes


def setup(directory: Path) -> str:
    """Count the system calls of every writer."""
    if os.geteuid() != 0:
        return "needs root, whose work is attacked"
    why = syscalls.permitted()
    if why:
        return why
    writers.prepare(directory / "release")
    for name in writers.WRITERS:
        work, at = before(name, writers.host_of(directory / f"host-{name.split()[0]}-{len(STOPS)}"))
        ended = syscalls.run(lambda work=work, at=at: work(at))  # type: ignore[misc]  # mypy takes the defaults for arguments
        if ended.status != 0:
            raise RuntimeError(f"{name} fails where nobody attacks: {ended.said}")
        STOPS[name] = ended.stops
    return ""


def before(name: str, at: writers.Tree) -> tuple[writers.Writer, writers.Tree]:
    """The writer, on a host where what it needs was done."""
    work, needs = writers.WRITERS[name]
    for one in needs:
        one(at)
    return work, at


# --- how a place comes into the user's hand: (host, name of the place, before root's first work?) -> Place ---


def in_his_home(top: Path, real: Path) -> Place:
    """Settings name a directory below his own."""
    home = top / "home"
    home.mkdir()
    _give(home)
    as_user((home / "d").mkdir)
    return Place(home / "d" / real.name, home)


def of_root_in_his_home(top: Path, real: Path) -> Place:
    """The directory is root's, the one above it is his: he can rename it."""
    home = top / "home"
    (home / "d").mkdir(parents=True)
    _give(home)
    return Place(home / "d" / real.name, home)


def through_his_link(top: Path, real: Path) -> Place:
    """In a directory as /tmp, his link leads to root's directory."""
    sticky = top / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    real.mkdir(parents=True, exist_ok=True)
    as_user(lambda: (sticky / "d").symlink_to(real))
    return Place(sticky / "d", sticky)


def to_be_made_in_sticky(top: Path, real: Path) -> Place:
    """In a directory as /tmp, root is to make it: the user may be quicker."""
    sticky = top / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    return Place(sticky / "d" / real.name, sticky)


def writable_by_his_group(top: Path, real: Path) -> Place:
    """All is root's, but his group may write."""
    shared = top / "shared"
    (shared / "d").mkdir(parents=True)
    for path in (shared, shared / "d"):
        os.chown(path, 0, USER)
        path.chmod(0o775)
    return Place(shared / "d" / real.name, shared)


HANDS: tuple[Callable[[Path, Path], Place], ...] = (
    in_his_home, of_root_in_his_home, through_his_link, to_be_made_in_sticky, writable_by_his_group
)  # fmt: skip


# --- what the user does when root is stopped: (his directory, root's file or directory that he aims at) ---


def swap_for_link(his: Path, victim: Path) -> None:
    _aside(his / "d")
    (his / "d").symlink_to(victim)


def swap_for_directory(his: Path, victim: Path) -> None:
    """His own directory, whose entries lead to root's."""
    _aside(his / "d")
    (his / "d").mkdir()
    for name in ("cdi", "etc", "run", "docker", "crio", "lib", "bin", "fleet-cdi", "cdi-device-plugin"):
        (his / "d" / name).symlink_to(victim)


def links_for_files(his: Path, victim: Path) -> None:
    """Each file and temporary file that is there leads to root's file, and each name that may come, too."""
    names = {
        "manifest.json",
        "daemon.json",
        "ledger.db",
        "ledger.lock",
        "ledger.log",
        ".lock",
        "vendor.com-zero.json",
        "a.json",
        "a.lock",
    }
    for directory, _names, files in os.walk(his / "d"):
        for name in {*names, *files, *(f".{one}.tmp" for one in names)}:
            with suppress(OSError):
                Path(directory, name).unlink()
            with suppress(OSError):
                Path(directory, name).symlink_to(victim / "secret")


def files_for_fifos(his: Path, _victim: Path) -> None:
    for directory, _names, files in os.walk(his / "d"):
        for name in files:
            with suppress(OSError):
                Path(directory, name).unlink()
                os.mkfifo(Path(directory, name))


def every_directory_for_a_link(his: Path, victim: Path) -> None:
    for directory, names, _files in os.walk(his / "d", topdown=False):
        for name in names:
            with suppress(OSError):
                _aside(Path(directory, name))
                Path(directory, name).symlink_to(victim)


def nothing_left(his: Path, _victim: Path) -> None:
    _aside(his / "d")


MOVES: tuple[Callable[[Path, Path], None], ...] = (
    swap_for_link, swap_for_link, swap_for_directory, links_for_files, files_for_fifos, every_directory_for_a_link,
    nothing_left,
)  # fmt: skip


def _aside(path: Path) -> None:
    with suppress(OSError):
        path.rename(path.with_name(f"{path.name}-was"))


def _give(path: Path) -> None:
    os.chown(path, USER, USER)


def as_user(work: Callable[[], Any]) -> None:
    """Do it in a process of the user's; what he may not do does not happen."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            work()
        os._exit(0)
    os.waitpid(pid, 0)


def attack(seed: int, arena: Path) -> Outcome:
    """One thing that root does, one moment, one move."""
    rng = random.Random(seed)
    name, hand, move = rng.choice(list(writers.WRITERS)), rng.choice(HANDS), rng.choice(MOVES)
    stop = rng.randint(1, int(STOPS[name] * rng.choice((0.2, 1.0))) + 1)
    later = rng.random() < 0.5  # he gets it after root's first work
    at = writers.host_of(arena / "host")
    victim = arena / "victim"
    (victim / "folder").mkdir(parents=True)
    (victim / "secret").write_text("root's")
    (victim / "daemon.json").write_text("{}\n")
    part = rng.choice(_parts(name))
    place = hand(arena, getattr(at, part))
    at = at._replace(**{part: place.path})
    work, needs = writers.WRITERS[name]
    notes = (f"{name}, {part} {hand.__name__}{', later' if later else ''}, stop {stop}, {move.__name__}",)
    watch = Watch([victim, Path("/etc/passwd")])
    findings = []
    with _of_root(place, later and bool(needs)):
        for one in needs:
            ended = syscalls.run(lambda one=one: one(at))  # type: ignore[misc]
            findings += _traceback(ended)
    his = _files_of_root(place.his)

    def act(_pid: int) -> None:
        as_user(lambda: move(place.his, victim))

    try:
        ended = syscalls.run(lambda: work(at), stop, act)
    except TimeoutError as error:
        return Outcome((Finding(TIME, str(error)),), notes=notes)
    findings += _traceback(ended)
    findings += watch.findings()
    if hand in (in_his_home, of_root_in_his_home, writable_by_his_group) or _is_his(place.his / "d"):
        made = [path for file, path in _files_of_root(place.his).items() if file not in his]
        findings += [Finding(FOREIGN, f"root made {path} in a directory of the user's") for path in sorted(made)]
    return Outcome(tuple(findings), notes=(*notes, f"said: {ended.said[-500:]!r}, status {ended.status}"))


def _parts(name: str) -> list[str]:
    """The places that this writer uses."""
    if name == "release":
        return ["prefix"]
    if name in ("ADD", "DEL"):
        return ["state"]
    return ["run"] if name == "device plugin's start" else ["etc", "state", "run"]


@contextmanager
def _of_root(place: Place, really: bool) -> Iterator[None]:
    """For a while the user's directory is root's, so that root's first work goes there."""
    if not really or not place.his.name.startswith(("home", "shared")):
        yield
        return
    was = [(path, path.lstat()) for path in (place.his, place.his / "d")]
    for path, _state in was:
        os.chown(path, 0, 0)
    yield
    for path, state in was:
        os.chown(path, state.st_uid, state.st_gid)
        path.chmod(state.st_mode & 0o7777)


def _is_his(path: Path) -> bool:
    with suppress(OSError):
        return path.lstat().st_uid == USER
    return False


def _files_of_root(top: Path) -> dict[tuple[int, int], str]:
    """The files of root's below a directory, links not followed: device and inode -> path. The user may rename them."""
    found = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            with suppress(OSError):
                state = Path(directory, name).lstat()
                if state.st_uid == 0:
                    found[state.st_dev, state.st_ino] = str(Path(directory, name))
    return found


def _traceback(ended: syscalls.Ended) -> list[Finding]:
    if ended.status in (0, 2) and "Traceback" not in ended.said:
        return []
    return [Finding(TRACEBACK, f"status {ended.status}: {ended.said[-2000:]}")]


def control(directory: Path) -> Control:
    """Run the same attacks on root's work without the checks of directories.py. They have to succeed."""
    command = [sys.executable, str(Path(__file__)), str(directory), str(CONTROL_SEEDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Control(CONTROL_SEEDS, json.loads(done.stdout)["caught"], "root's work, which trusts every directory")


def main(directory: Path, seeds: int) -> None:
    """Take the checks out of directories.py and attack; print how many seeds found something."""
    for check in ("_check", "_check_link"):
        setattr(directories, check, lambda *_given: None)
    directories._others_write = lambda *_given: False
    why = setup(directory / "control")
    if why:
        raise SystemExit(why)
    caught = 0
    for seed in range(seeds):
        arena = directory / f"control-{seed}"
        arena.mkdir()
        caught += any(finding.sort == FOREIGN for finding in attack(seed, arena).findings)
    print(json.dumps({"caught": caught}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
