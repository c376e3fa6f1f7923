# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the processor time of parsers grows with what they read: a text of 4 n parts beside one of n parts.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The ratio of work that grows
with the text is 4, and a little more where Python's collector has more to look through; one of 16 would mean that a
large file can hold up root.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/harness")]

from measure import line
from parser_texts import CASES

from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit import toml_text

PARTS = 5000
TIMES = 3


def seconds(work: Callable[[bytes], object], content: bytes) -> float:
    """Processor time of one run, the fastest of TIMES."""
    taken = []
    for _time in range(TIMES):
        toml_text.parse.cache_clear()
        gc.collect()
        start = time.process_time()
        work(content)
        taken.append(time.process_time() - start)
    return min(taken)


def main() -> None:
    """Measure every case."""
    for name, (work, text) in CASES.items():
        line(f"{name}, {4 * PARTS}", "s", seconds(work, text(4 * PARTS)), seconds(work, text(PARTS)))


if __name__ == "__main__":
    main()
