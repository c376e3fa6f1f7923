# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of a support archive: their names, what makes each, and their bounds.

The names are all ours, so no name of a file on the host becomes a path in the archive: those are values in documents.
Each member is made in a process of its own that is ended at its limit, because a look can hang in a driver or a dead
file system.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import documents
from ..converge.runtime import container_runtime_info
from ..layout import Layout
from ..records import CdiError
from ..release import host, host_release_info
from ..safe_text import one_line
from ..system import processes
from .bounded_files import document_at, listing
from .redaction import OURS, redacted, redacted_lines, redacted_text

SECONDS = 30.0  # for one member
ALL = 120.0  # seconds for all members
LARGEST = 16 << 20  # bytes of one member
TOTAL = 96 << 20  # bytes of all members
LINES = 500  # of the journal
CONTENTS = "contents.json"  # the member that lists the archive
UNITS = "fleet-cdi-*"  # a pattern of systemctl(1) and journalctl(1)
UNIT_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,NRestarts,StateChangeTimestamp,"
    "NextElapseUSecRealtime"
)
SPECS = (".json", ".yaml")  # CDI SPEC.md: no other file is a spec
CONFIGURATIONS = (".conf",)

# Runs a verb of fleet-cdi with these words and prints its document on stdout.
Verb = Callable[[Sequence[str]], int]


class BundleMember(NamedTuple):
    """One member. `make` prints it on stdout, in a process of its own; the exit status 2 means that it could not."""

    name: str
    source: str  # for people
    make: Callable[[Layout, Verb], int]


class Taken(NamedTuple):
    """A member with its content, or why it was left out."""

    name: str
    source: str
    content: bytes
    left_out: str


def members() -> tuple[BundleMember, ...]:
    """Return all members but CONTENTS, in the order of the archive."""
    return (
        BundleMember("host.json", "uname, os-release, uptime", _host),
        BundleMember("release.json", "the releases on this host and their faults", _release),
        *(_verb(name, words) for name, words in VERBS.items()),
        BundleMember("runtimes.json", "the CDI settings of the container runtimes, no other ones", _runtimes),
        *(_file(name, attribute) for name, attribute in FILES.items()),
        BundleMember(
            "spec-dirs.json", "the spec directories: names, modes, owners, and the content of specs", _spec_dirs
        ),
        BundleMember("state-dir.json", "the state directory: names, modes and owners", _state_dir),
        *(_command(name, words) for name, words in COMMANDS.items()),
    )


# Each of these verbs prints a document with --json.
VERBS: Mapping[str, Sequence[str]] = {
    "doctor.json": ("doctor",),
    "grants.json": ("grants", "list", "--open"),
    "claims.json": ("claim", "list"),
    "devices.json": ("devices",),
    "devices-now.json": ("devices", "--scan"),
    "specs.json": ("specs",),
    "plugin.json": ("plugin", "status"),
    "report.json": ("report",),
}

# Documents of ours.
FILES: Mapping[str, Callable[[Layout], str]] = {
    "manifest.json": lambda places: os.path.join(places.state_dir, "manifest.json"),
    "inventory.json": lambda places: places.inventory,
    "plugin-config.json": lambda places: places.plugin_config,
}

COMMANDS: Mapping[str, Sequence[str]] = {
    "units.txt": ("systemctl", "show", f"--property={UNIT_PROPERTIES}", "--", UNITS),
    "timers.txt": ("systemctl", "list-timers", "--all", "--no-pager", "--", UNITS),
    "journal.txt": (
        *("journalctl", "--quiet", "--no-pager", "--no-hostname", "--output=short-iso", f"--lines={LINES}"),
        *("--unit", UNITS),
    ),
    "syslog.txt": (
        *("journalctl", "--quiet", "--no-pager", "--no-hostname", "--output=short-iso", f"--lines={LINES}"),
        *("--identifier", "fleet-cdi"),
    ),
}


def collect(
    places: Layout,
    verb: Verb,
    clock: Callable[[], float] = time.monotonic,
    tell: Callable[[str], None] = lambda _name: None,
) -> list[Taken]:
    """Make every member within the bounds, and `tell` the name of each before. Nothing on the host is changed."""
    deadline, room, taken = clock() + ALL, TOTAL, []
    for member in members():
        tell(member.name)
        one = _taken(member, places, verb, min(SECONDS, deadline - clock()), min(LARGEST, room))
        room -= len(one.content)
        taken.append(one)
    return taken


def _taken(member: BundleMember, places: Layout, verb: Verb, seconds: float, largest: int) -> Taken:
    """Make one member in a fork of this process."""
    if seconds <= 0:
        return _left_out(member, f"the archive had no time left: {ALL:g} s for all members")

    def script() -> None:
        sys.stdout, sys.stderr = os.fdopen(1, "w", encoding="utf-8"), os.fdopen(2, "w", encoding="utf-8")
        try:
            status = member.make(places, verb)
        except (CdiError, OSError) as error:
            sys.stderr.write(str(error))
            status = 2
        sys.stdout.flush()
        sys.stderr.flush()
        raise SystemExit(status)

    try:
        done = processes.run(["fleet-cdi", "bundle"], seconds, largest=largest + 1, cut=("stdout",), script=script)
    except OSError as error:
        return _left_out(member, error.strerror or str(error))
    if len(done.stdout) > largest:
        return _left_out(member, f"is larger than {largest} bytes")
    if not done.stdout or done.status not in (0, 1, 2):
        return _left_out(member, done.err.strip().split("\n")[-1] if done.err.strip() else f"exit status {done.status}")
    return Taken(member.name, member.source, done.stdout, "")


def _left_out(member: BundleMember, why: str) -> Taken:
    return Taken(member.name, member.source, b"", one_line(redacted_text(why)))


def _say(document: Any) -> int:
    sys.stdout.write(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return 0


def _verb(name: str, words: Sequence[str]) -> BundleMember:
    def make(_places: Layout, verb: Verb) -> int:
        out = sys.stdout
        with os.fdopen(os.memfd_create("document"), "w+", encoding="utf-8") as said:
            sys.stdout = said
            try:
                verb([*words, "--json"])
            finally:
                sys.stdout = out
            said.seek(0)
            text = said.read()
        return _say(redacted(documents.parse(text.encode(), name), OURS)) if text else 2

    return BundleMember(name, f"fleet-cdi {' '.join(words)} --json", make)


def _file(name: str, path: Callable[[Layout], str]) -> BundleMember:
    return BundleMember(name, "a document of ours", lambda places, _verb: _say(document_at(path(places), LARGEST)))


def _host(_places: Layout, _verb: Verb) -> int:
    name = os.uname()
    return _say(
        {
            "kernel": {"sysname": name.sysname, "release": name.release, "version": name.version},
            "machine": name.machine,
            "distribution": host.distribution(),
            "python": sys.version.split()[0],
            "uptime": int(time.clock_gettime(time.CLOCK_BOOTTIME)),
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
    )


def _release(places: Layout, _verb: Verb) -> int:
    options = {
        "prefix": places.prefix,
        "release": "",
        "state_dir": places.state_dir,
        "spec_dirs": list(places.spec_dirs),
    }
    return _say(redacted(host_release_info.answer(options, True)[0], OURS))


def _runtimes(places: Layout, _verb: Verb) -> int:
    found, warnings = container_runtime_info.answer({"name": "", "state_dir": places.state_dir}, True)
    return _say(redacted({**found, "warnings": warnings}, OURS))


def _spec_dirs(places: Layout, _verb: Verb) -> int:
    every = dict.fromkeys((*places.spec_dirs, places.config_dir))
    return _say([listing(one, lambda name: name.endswith((*SPECS, *CONFIGURATIONS))) for one in every])


def _state_dir(places: Layout, _verb: Verb) -> int:
    return _say(listing(places.state_dir, lambda _name: False))


def _command(name: str, words: Sequence[str]) -> BundleMember:
    def make(_places: Layout, _verb: Verb) -> int:
        done = processes.run(words, SECONDS, largest=LARGEST)
        if done.status:
            raise CdiError(" ".join(done.err.split()) or f"{words[0]}: exit status {done.status}")
        lines = [one_line(line) for line in redacted_lines(done.out)]
        sys.stdout.write("".join(f"{line}\n" for line in lines or ["(nothing)"]))
        return 0

    return BundleMember(name, " ".join(words), make)
