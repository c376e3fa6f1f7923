# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call under strace: every system call that touches the state directory, recorded or made to fail.

An injected fault is named by a system call and its number among the calls of that name that touch these files (`-P`),
so that the interpreter's own start counts for nothing. strace counts per thread; subjects have one. Injection and
`--seccomp-bpf` don't go together (6.1 then injects nothing), which is one reason to count hits and not runs.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from subject import Call, Place, Reply, Subject, program

# All that can touch a file; "?": where this architecture has it.
CALLS = """
    open openat creat read pread64 readv write pwrite64 writev pwritev lseek fsync fdatasync sync_file_range ftruncate
    truncate fallocate unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat mkdir mkdirat rmdir
    fcntl flock mmap stat lstat newfstatat fstat statx fstatfs statfs access faccessat faccessat2 chmod fchmod
    fchmodat chown lchown fchown fchownat getdents64 utimensat close"""
TRACE = ",".join(f"?{name}" for name in CALLS.split())

LINE = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+|\?|0x[0-9a-f]+)(?P<rest>.*)$")
QUOTED = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(?:\.\.\.)?')
DECORATED = re.compile(r"(-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2}|[^<>\\])*)>")


class Traced(NamedTuple):
    """One finished system call on the state directory."""

    name: str
    path: str  # the file or directory that it is about
    arguments: str  # as strace writes them, strings in hexadecimal
    result: str
    rest: str = ""  # what follows that: the error, "(INJECTED)"


class Point(NamedTuple):
    """Where a fault goes: the n-th call (from 1) of this name on these paths."""

    name: str
    number: int
    paths: tuple[str, ...]  # relative to the state directory; "" is the directory itself
    on: str  # the path of this very call, for people


def unhex(text: str) -> bytes:
    """What `-xx` made of a string."""
    return bytes.fromhex(text.replace("\\x", ""))


def touched(line: re.Match[str], state: str) -> str:
    """The path that a traced call is about, if it is `state`, in it or the directory that holds it; else ""."""
    descriptors = [os.fsdecode(unhex(path)) for _fd, path in DECORATED.findall(line["arguments"]) if "\\x" in path]
    names = [os.fsdecode(unhex(text)) for text in QUOTED.findall(line["arguments"])]
    if line["name"] in ("write", "pwrite64", "writev", "pwritev", "read", "pread64"):
        names = []  # those are data
    for base in descriptors or [""]:
        for name in names or [""]:
            path = os.path.join(base, name) if name else base
            path = path.removesuffix(" (deleted)").removesuffix("(deleted)")
            if path in (state, os.path.dirname(state)) or path.startswith(state + "/"):
                return path
    return ""


def parse(text: str, state: str) -> list[Traced]:
    """The calls on `state` among those of strace's output, in order; those of the subject, not of its children."""
    found = []
    lines = text.splitlines()
    subject = lines[0].split(" ", 1)[0] if lines else ""
    for line in lines:
        match = LINE.match(line)
        if match and match["pid"] == subject and (path := touched(match, state)):
            found.append(Traced(match["name"], path, match["arguments"], match["result"], match["rest"]))
        if line.startswith(subject) and "<unfinished" in line and state.encode().hex() in line.replace("\\x", ""):
            raise RuntimeError(f"strace: calls of several processes at one time: {line[:200]}")
    return found


def record(subject: Subject, place: Place, call: Call) -> tuple[Reply, list[Traced]]:
    """Run one call without a fault; all that it did to the state directory, data included."""
    output = place.root / "strace"
    before = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-xx", "-s", "200000", "-o", str(output)]
    before += ["-e", f"trace={TRACE}", "-e", "signal=none"]
    reply = program(subject, place, call, tuple(before))
    return reply, parse(output.read_text(), str(place.state))


def selected(row: Traced, paths: set[str]) -> bool:
    """Whether strace counts the call for `-P` with these paths: by a descriptor, or by a name as the call has it.

    A name that is relative to a descriptor does not count by what it comes to, so a directory that is opened from the
    one above it can't get a fault.
    """
    descriptors = {os.fsdecode(unhex(path)) for _fd, path in DECORATED.findall(row.arguments) if "\\x" in path}
    names = {os.fsdecode(unhex(text)) for text in QUOTED.findall(row.arguments)}
    return not paths.isdisjoint(descriptors | names)


def points(traced: list[Traced], state: Path) -> list[Point]:
    """Every call as a place for a fault."""
    paths = tuple(sorted({os.path.relpath(row.path, state) for row in traced}))
    whole = {os.path.normpath(state / path) for path in paths}
    seen: Counter[str] = Counter()
    found = []
    for row in traced:
        if not selected(row, whole):
            continue
        seen[row.name] += 1
        found.append(Point(row.name, seen[row.name], paths, os.path.relpath(row.path, state)))
    return found


def record_fault(subject: Subject, place: Place, call: Call, fault: tuple[Point, str]) -> list[Traced]:
    """Run one call with a fault; all that it did to the state directory."""
    output = place.root / "strace"
    before = ["strace", "-f", "-qq", "-y", "-xx", "-o", str(output), "-e", f"trace={TRACE}", *injection([fault], place)]
    program(subject, place, call, tuple(before))
    return parse(output.read_text(), str(place.state))


def injection(faults: list[tuple[Point, str]], place: Place) -> list[str]:
    """strace's options for `faults`."""
    options = []
    for name in faults[0][0].paths:
        options += ["-P", os.path.normpath(place.state / name)]
    for point, fault in faults:
        options += ["-e", f"inject={point.name}:{fault}:when={point.number}"]
    return options


def inject(subject: Subject, place: Place, call: Call, faults: list[tuple[Point, str]]) -> tuple[Reply, bool]:
    """Run one call with `faults` (point, "signal=KILL" or "error=EIO"); the reply, and whether each was hit."""
    output = place.root / "strace"
    names = sorted({point.name for point, _fault in faults})
    before = ["strace", "-f", "-q", "-y", "-o", str(output), "-e", f"trace={','.join(names)}"]
    before += injection(faults, place)
    reply = program(subject, place, call, tuple(before))
    text = output.read_text()
    killed = any(fault == "signal=KILL" for _point, fault in faults)
    return reply, "+++ killed by SIGKILL +++" in text if killed else text.count("(INJECTED)") == len(faults)


@functools.cache
def permitted() -> str:
    """Why nothing can be traced here, or ""."""
    try:
        done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "true"], check=False, capture_output=True)
    except FileNotFoundError:
        return "missing package strace"
    return "" if done.returncode == 0 else f"ptrace is not permitted: {done.stderr.decode().strip()}"
