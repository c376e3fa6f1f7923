# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of a directory in two processes: two cores take half the time, and contract tests wait more than they work.

halves.py DIRECTORY            `pytest DIRECTORY` runs them one after the other
halves.py DIRECTORY RCFILE     note which lines and branches they run, as this file of coverage.py says
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from workplace import workplace

DATA = Path(__file__).resolve().parents[2] / "build/coverage"  # as in pyproject.toml


def halves(directory: Path) -> tuple[list[str], list[str]]:
    """Its test files, of about as many bytes in each half."""
    found: tuple[list[str], list[str]] = [], []
    sizes = [0, 0]
    for path in sorted(directory.rglob("test_*.py"), key=lambda path: (-path.stat().st_size, path)):
        lighter = sizes.index(min(sizes))
        found[lighter].append(str(path))
        sizes[lighter] += path.stat().st_size
    return found


def main(directory: Path, rcfile: str = "") -> int:
    """Run both, print one after the other; 1 if either failed."""
    with workplace("halves-") as place:
        return run(directory, rcfile, place)


def run(directory: Path, rcfile: str, place: Path) -> int:
    """Run both, which write below `place`."""
    python = [sys.executable]
    if rcfile:
        DATA.mkdir(parents=True, exist_ok=True)
        python += ["-m", "coverage", "run", f"--rcfile={rcfile}"]
    running = [
        subprocess.Popen(
            [*python, "-m", "pytest", "-q", f"--basetemp={place / str(number)}", *sorted(files)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, files in enumerate(halves(directory), 1)
    ]
    for number, process in enumerate(running, 1):
        output, _none = process.communicate()
        print(f"--- half {number}\n{output}", end="", flush=True)
    return int(any(process.returncode for process in running))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
