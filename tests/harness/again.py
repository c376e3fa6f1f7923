# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make again`: parts several times in a row, also beside busy loops, for what fails now and then.

again.py TIMES BUSY PART...    e.g. again.py 10 2 contract: ten times, beside two loops that take a core each
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import parts

# How pytest, ansible-test and our own programs name what failed.
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)|^FATAL: (.*)|^FAILED: (.*)|^failed: (.*)|^(.*) FAILED$")


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """As many processes as `loops` that do nothing but take a core."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _loop in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def main(times: int, loops: int, names: list[str]) -> int:
    """Run each part so often and print what failed how often, as JSON; 1 if anything did."""
    unknown = sorted(set(names) - set(parts.PARTS))
    if unknown or not names:
        print(f"tests/harness/again.py: found parts {unknown or 'none'}; expected some of {', '.join(parts.PARTS)}")
        return 2
    seen = {}
    with busy(loops):
        for name in names:
            failures: Counter[str] = Counter()
            minutes = []
            for number in range(1, times + 1):
                print(f"===== {name}, run {number} of {times} =====", flush=True)
                result = parts.run({name: parts.PARTS[name]})[name]
                minutes.append(round(result.seconds / 60, 1))
                # At once: a row that is ended early shows what it had.
                print(
                    json.dumps({"part": name, "run": number, "status": result.status, "minutes": minutes[-1]}),
                    flush=True,
                )
                if result.status:
                    lines = result.said.splitlines()
                    found = {match[match.lastindex or 0] for line in lines if (match := FAILED.match(line))}
                    failures.update(found or {"something that its output doesn't name"})
            seen[name] = {"runs": times, "busy_loops": loops, "minutes": minutes, "failures": dict(failures)}
    for name, one in seen.items():
        print(json.dumps({"part": name, **one}))
    return int(any(one["failures"] for one in seen.values()))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
