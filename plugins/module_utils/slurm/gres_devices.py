# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices of Slurm's generic resources on this host, in Slurm's order, as `slurmd -G` prints them.

SLURM_JOB_GPUS counts in this order, which is that of Gres in slurm.conf and not that of the lines in gres.conf (seen
with Slurm 22.05.8).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ..records import CdiError

GPU = "gpu"  # the one resource of which slurmd tells its prolog the devices
_LINE = re.compile(r"Gres Name=(?P<name>\S+) Type=(?P<type>\S+) Count=(?P<count>[0-9]+) .*?File=(?P<file>/\S+)")
_RANGE = re.compile(r"^(?P<head>[^\[\]]*)\[(?P<ranges>[0-9,-]+)\](?P<tail>[^\[\]]*)$")
_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")
_WORD = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")  # up to a comma outside of brackets
MOST = 4096  # devices in one line
SHOWN = 80  # characters of a list in a message


class GresDevice(NamedTuple):
    """One device of a generic resource."""

    name: str  # "gpu"
    type: str  # "" without one
    files: tuple[str, ...]  # device nodes
    alone: bool  # no other device has this name and type

    @property
    def word(self) -> str:
        """Return what a job asks for to get this device."""
        return f"{self.name}:{self.type}:1"


def parse_gres(text: str) -> list[GresDevice]:
    """Return the devices in the output of `slurmd -G`. Raises CdiError for a list of files that is not understood."""
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for match in _LINE.finditer(text):
        type_ = "" if match["type"] == "(null)" else match["type"]
        paths = (path for word in _WORD.findall(match["file"]) for path in _expanded(word))
        files = list(islice(paths, MOST + 1))
        if len(files) > MOST:
            raise CdiError(f"slurmd -G: found File={match['file'][:SHOWN]}; expected at most {MOST} devices")
        together = match["count"].lstrip("0") == "1"  # MultipleFiles: one device with several nodes
        found += (
            [(match["name"], type_, tuple(files))] if together else [(match["name"], type_, (one,)) for one in files]
        )
    kinds = Counter((name, type_) for name, type_, _files in found)
    return [GresDevice(*one, bool(one[1]) and kinds[one[:2]] == 1) for one in found]


def chosen(devices: Sequence[GresDevice], indexes: str) -> list[GresDevice]:
    """Return the GPUs that SLURM_JOB_GPUS names. Raises CdiError for an index that Slurm's configuration lacks."""
    gpus = [device for device in devices if device.name == GPU]
    found = []
    for word in indexes.split(","):
        if not (word.isascii() and word.isdigit() and len(word) < 6 and int(word) < len(gpus)):
            raise CdiError(
                f"SLURM_JOB_GPUS: found {indexes!r}; expected indexes below {len(gpus)}, the GPUs with File= that "
                "`slurmd -G` lists. Restart slurmd if gres.conf has changed since it started"
            )
        found.append(gpus[int(word)])
    return found


def with_nodes(devices: Sequence[GresDevice], paths: Collection[str]) -> list[GresDevice]:
    """Return the devices that have one of these nodes."""
    return [device for device in devices if not set(paths).isdisjoint(device.files)]


def _expanded(word: str) -> Iterator[str]:
    """Yield the paths of /dev/tty[40-42,50]."""
    match = _RANGE.match(word)
    if match is None:
        if "[" in word:
            raise CdiError(f"slurmd -G: found File={word[:SHOWN]}; expected at most one list in brackets")
        yield word
        return
    for part in match["ranges"].split(","):
        numbers = _NUMBERS.match(part)
        first, last = (numbers[1], numbers[2] or numbers[1]) if numbers else ("", "")
        if not first or not 0 <= int(last) - int(first) < MOST:
            raise CdiError(f"slurmd -G: found File={word[:SHOWN]}; expected numbers and ranges in brackets")
        for number in range(int(first), int(last) + 1):
            yield f"{match['head']}{number:0{len(first)}d}{match['tail']}"
