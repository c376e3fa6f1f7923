# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet: processor time to build it, its size, and how long a browser takes to open and to filter it.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The baseline of a build is to
parse and to write the same answers as JSON; that of a filter in the browser is to read all texts of the report once.

    fleet_report.py [HOSTS]     10,000 by default; the browser gets half of them
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/harness")]

from browser import PROGRAM, Browser
from measure import line

from ansible_collections.fleet.cdi.plugins.filter.fleet_report import fleet_report
from ansible_collections.fleet.cdi.tests.unit.trees import fleet

QUERIES = ("gpu-0013", "GPU-9d37", "state:!", "0000:e4:00.0", "timed out")
FILTER = """(() => {
  const input = document.getElementById('query');
  input.value = %s;
  input.dispatchEvent(new Event('input'));
  return document.body.offsetHeight;
})()"""
TEXTS = """(() => {
  const texts = document.getElementById('report').textContent;
  let sum = 0;
  for (let place = 0; place < texts.length; place++) sum += texts.charCodeAt(place);
  return sum;
})()"""


def spent(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call and the seconds of processor time that it took."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def build(hosts: int) -> str:
    """Print what the report of so many hosts with 8 devices costs; return the page."""
    hostvars = fleet.hostvars(hosts)
    _copy, baseline = spent(lambda: json.loads(json.dumps(hostvars)))
    report, seconds = spent(lambda: fleet_report(hostvars, list(hostvars), "truth"))
    line(f"build {hosts} hosts", "s", seconds, baseline)
    answers = len(json.dumps(hostvars))
    for form in ("html", "json", "csv"):
        line(f"{form} of {hosts} hosts", "bytes", len(report[form].encode()), answers)
    return str(report["html"])


def look(page: str, hosts: int) -> None:
    """Print the processor time of the page's thread to open the page, and to filter the map."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        path.write_text(page, encoding="utf-8")
        browser = Browser(Path(folder, "profile"))
        browser.call("Performance.enable", timeDomain="threadTicks")

        def milliseconds(script: str) -> float:
            """Return the processor time of a script with the layout that it causes."""
            before = busy(browser)
            browser.run(script)
            return 1000 * (busy(browser) - before)

        try:
            browser.open("about:blank")
            before = busy(browser)
            browser.open(f"{path.as_uri()}#view=map")
            browser.wait("document.documentElement.dataset.ready")
            opened = 1000 * (busy(browser) - before)
            baseline = sorted(milliseconds(TEXTS) for _time in range(5))[2]
            line(f"open the map of {hosts} hosts", "ms", opened, baseline)
            for query in QUERIES:
                times = [milliseconds(FILTER % json.dumps(text)) for text in (query, "") * 5]
                line(f"filter {query!r} of {hosts} hosts", "ms", sorted(times[::2])[2], baseline)
        finally:
            browser.close()


def busy(browser: Browser) -> float:
    """Return the seconds of processor time that the thread of the page has spent."""
    found = {one["name"]: float(one["value"]) for one in browser.call("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"]


def main(arguments: list[str]) -> None:
    """Print all cases."""
    hosts = int(arguments[0]) if arguments else 10_000
    build(hosts)
    page = build(hosts // 2)
    if shutil.which(PROGRAM):
        look(page, hosts // 2)
    else:
        print(f"left out: {PROGRAM} is missing, so nothing is opened", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
