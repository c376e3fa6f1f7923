# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make test`: every part in order, whatever the ones before said; at the end, real minutes beside budgeted ones.

A part over its minutes is printed loudly and is no failure: machines differ, a table that is shown doesn't rot.
What needs longer belongs to `make nightly`. What a failed part said last is said again before the table, as
services that run this keep the end of a long output only. A part that leaves the host other than it was has failed,
even where all its tests passed.
"""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import threading
import time

import footprint

# Part -> minutes that it may take on two cores with cold caches; 45 in sum.
MINUTES = {
    "setup": 1,  # environments and counterparts
    "lint": 1,
    "sanity": 3,
    "unit": 5,
    "floor": 5,  # of which 4 make a Debian 11 and run the units under its Python 3.9
    "integration": 12,  # of which 8 are the files of pytest
    "contract": 4,  # the device plugin against a kubelet of ours
    "conformance": 2,  # of which 1 builds the reference library and NVIDIA's generator
    "fault": 4,
    "adversary": 2,  # 1,000 seeds
    "molecule": 6,
}
TOTAL = 45
# Lines of a failed part that are said again.
SAID_AGAIN = 60
LAST_WORDS_S = 5


def report(results: dict[str, tuple[int, float]]) -> str:
    """The closing table. `results`: part -> exit status and seconds, in order."""
    lines = [f"{'part':<12} {'result':<8} {'minutes':>8} {'budget':>7}"]
    for part, (status, seconds) in results.items():
        over = seconds / 60 > MINUTES[part]
        verdict = "passed" if status == 0 else "FAILED"
        loud = "   OVER BUDGET: make it faster or move what is slow to nightly" if over else ""
        lines.append(f"{part:<12} {verdict:<8} {seconds / 60:>8.1f} {MINUTES[part]:>7}{loud}")
    total = sum(seconds for _status, seconds in results.values()) / 60
    lines.append(f"{'all':<12} {'':<8} {total:>8.1f} {TOTAL:>7}")
    failed = sum(status != 0 for status, _seconds in results.values())
    lines.append(f"parts: {len(results) - failed} passed, {failed} failed")
    return "\n".join(lines)


def run(part: str) -> tuple[int, collections.deque[str]]:
    """Run one part. Returns its exit status and the last lines of its output, which goes on to ours."""
    said: collections.deque[str] = collections.deque(maxlen=SAID_AGAIN)

    def pass_on() -> None:
        assert made.stdout
        for line in made.stdout:
            print(line, end="", flush=True)
            said.append(line)

    with subprocess.Popen(
        [os.environ.get("MAKE", "make"), part],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as made:
        listener = threading.Thread(target=pass_on, daemon=True)
        listener.start()
        status = made.wait()
        # Something that a part left running may hold the pipe open for ever.
        listener.join(LAST_WORDS_S)
        return status, said


def main() -> int:
    """Run the parts by the same targets that people use."""
    if sum(MINUTES.values()) > TOTAL:
        print(f"tests/harness/parts.py: the parts may take {TOTAL} minutes in sum, not {sum(MINUTES.values())}")
        return 2
    results: dict[str, tuple[int, float]] = {}
    failures: list[str] = []
    for part in MINUTES:
        print(f"\n===== {part} =====", flush=True)
        start = time.monotonic()
        before = footprint.look()
        status, said = run(part)
        # With INSTALL=1 this one installs packages, which bring files of their own.
        left = [] if part == "setup" else footprint.changes(before, footprint.look())
        if left:
            text = [f"{part}: left this host other than it was:\n", *(f"  {line}\n" for line in left)]
            print("".join(text), end="", flush=True)
            status, said = status or 1, collections.deque([*said, *text])
        results[part] = (status, time.monotonic() - start)
        if status:
            failures += [f"\n===== {part} FAILED; its last lines =====\n", *said]
    print("".join(failures) + "\n" + report(results), flush=True)
    return 0 if all(status == 0 for status, _seconds in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
