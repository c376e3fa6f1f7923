# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the list of valid requests for a garbage collection, and its time stamp.

A grant that is not in the list is freed only if it is older than the list. A file's time can't tell that: clocks are
set, files are copied, and standard input has no time. So a list begins with a stamp: the boot, and the seconds since
that boot by CLOCK_BOOTTIME (clock_gettime(2)), which no process can set. Grants have the same times.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from ..allocation.holds.collect import Configuration
from ..records import CdiError

MARK = "# grants as of"
HOW = (
    "expected as first line the stamp that `fleet-cdi grants list | head -n 1` prints, taken before the requests are "
    "listed"
)


class ValidRequests(NamedTuple):
    """The requests that exist, and the time of the list."""

    requests: tuple[tuple[Optional[Configuration], str], ...]  # None: a request-id of any configuration
    as_of: float  # seconds of CLOCK_BOOTTIME in this boot


def stamp(boot_id: str, now: float) -> str:
    """Return the first line for a list that is made from `now` on (seconds of CLOCK_BOOTTIME, rounded down).

    It has microseconds, because a grant can be made less than a millisecond before the list.
    """
    return f"{MARK} {int(now * 1_000_000) / 1_000_000:.6f} in boot {boot_id}"


def parse(text: str, boot_id: str, now: float) -> ValidRequests:
    """Parse a list: the stamp, then one request in each line: [<resource-type>/<plugin>] <request-id>.

    Lines that begin with # are comments. `boot_id` and `now` are the present ones. Raises CdiError for a stamp that is
    missing, of another boot or in the future, for a second stamp, and for a line that is not a request.
    """
    lines = text.split("\n")
    as_of = _as_of(lines[0], boot_id, now)
    found: list[tuple[Optional[Configuration], str]] = []
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        if line.startswith(MARK):
            raise CdiError(f"line {number}: found a second stamp; expected one list, not several in one file")
        if not words or words[0].startswith("#"):
            continue
        type_, slash, plugin = words[0].partition("/")
        if len(words) == 2 and slash and type_ and plugin:
            found.append(((type_, plugin), words[1]))
        elif len(words) == 1 and not slash:
            found.append((None, words[0]))
        else:
            raise CdiError(
                f"line {number}: found {line!r}; expected a request-id, or <resource-type>/<plugin> and a request-id"
            )
    return ValidRequests(tuple(found), as_of)


def _as_of(line: str, boot_id: str, now: float) -> float:
    """Return the time in a stamp. Raises CdiError unless it is a stamp of this boot and not in the future."""
    words = line[len(MARK) :].split() if line.startswith(MARK) else []
    if len(words) != 4 or words[1:3] != ["in", "boot"]:
        raise CdiError(f"line 1: found {line[:80]!r}; {HOW}")
    try:
        as_of = float(words[0])
    except ValueError:
        as_of = -1.0
    if words[3] != boot_id:
        raise CdiError(f"line 1: the list was made in boot {words[3]}, this is boot {boot_id}; make a new one: {HOW}")
    if not 0 <= as_of <= now:
        raise CdiError(f"line 1: found {words[0]} seconds after boot, and it is {now:.3f}; {HOW}")
    return as_of
