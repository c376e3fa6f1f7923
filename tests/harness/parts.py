# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make test` and `make test-all`: run the parts two at a time, and close with a table of results.

    parts.py          `make test`: of each part what finds most per minute (QUICK=1)
    parts.py all      `make test-all`: every part, as CI runs them; `make nightly` has what takes longer

Every part runs, whatever the others said; only where `setup` fails nothing else can run. The output of a part goes to
build/test/PART.log. Of a failed part it is printed as one block, and its last lines again before the table: services
that run this keep only the end of a long output. A part also fails where it leaves the host other than it was, or where
it hangs. A part over its budget is printed loudly and does not fail, because machines differ. The last line of
`make test-all` is the coverage by the unit and contract tests, and fails below its floor (covered.py).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import footprint
import halves
from report import Result, counted, minutes, table, tests

CHECKOUT = Path(__file__).resolve().parents[2]
LOGS = CHECKOUT / "build/test"


class Part(NamedTuple):
    """A target of the Makefile, and its budget in minutes: on two quiet cores with cold caches, beside another part."""

    minutes: float
    quick: float = 0  # of what `make test` runs of it; 0: nothing
    host: bool = False  # works with what a host has once (podman's storage, systemd, cgroups): one such part at a time
    alone: bool = False  # nothing runs beside it


# Of the parts with `host`, one runs at a time, so they decide how long all take: each comes as soon as it may.
PARTS = {
    "setup": Part(1, 1, alone=True),
    "style": Part(0.5, 0.5),
    "integration": Part(21, 7, host=True),  # the rest: Debian's engines in container hosts, and kills of all writers
    "molecule": Part(9, host=True),
    "adversary": Part(2, host=True),  # 1,000 seeds
    "fleet": Part(5),  # playbooks on simulated hosts
    "lint": Part(1.5, 1.5),
    "unit": Part(4.5, 4.5),
    "machines": Part(8),
    "sanity": Part(4.5),
    "contract": Part(3.5, 3.5),
    "floor": Part(2, 1),  # the rest: ledger, asyncio and system under Python 3.9, in a Debian 11
    "fault": Part(5, 1),  # the rest: L1, L2, L6 and L9
    "world": Part(2.5),  # 5,000 host-days, and each control of tests/world
    "conformance": Part(3.5, 1.5),  # the rest: ten releases of the library, NVIDIA's generator and hook
}
NOTED = ("unit", "contract")  # what they run of the code is noted in `make test-all`
LANES = 2
# Minutes that `make test` and `make test-all` may take, if each part takes its budget.
TEST, TEST_ALL = 12, 45

LOOK_S = 2.0  # seconds between two looks at the host
SILENCE_S = 60.0  # after so many seconds without a line, say what runs
LAST_WORDS_S = 30.0  # for a part that is told to end, before it is killed


def chosen(quick: bool) -> dict[str, Part]:
    """The parts of `make test`, or of `make test-all`, with the minutes that they have there."""
    if quick:
        return {name: part._replace(minutes=part.quick) for name, part in PARTS.items() if part.quick}
    return PARTS


def next_up(waiting: Collection[str], running: Collection[str], parts: Mapping[str, Part]) -> str:
    """The first part that may start beside those that run; "" if none may."""
    if len(running) >= LANES or any(parts[name].alone for name in running):
        return ""
    for name in waiting:
        if parts[name].alone:
            return "" if running else name
        if not (parts[name].host and any(parts[other].host for other in running)):
            return name
    return ""


def planned(parts: Mapping[str, Part]) -> float:
    """Minutes until the last part ends, if each takes its budget."""
    waiting, ends, now = list(parts), dict[str, float](), 0.0
    while waiting or ends:
        while name := next_up(waiting, ends, parts):
            waiting.remove(name)
            ends[name] = now + parts[name].minutes
        first = min(ends, key=lambda name: ends[name])
        now = ends.pop(first)
    return now


def limit(part: Part) -> float:
    """Seconds after which a part hangs. With twelve processes on two cores parts took six times their budget."""
    return (6 * part.minutes + 10) * 60


class Running:
    """A part that runs, in a process group of its own."""

    def __init__(self, name: str, part: Part, quick: bool) -> None:
        self.name = name
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log: IO[str] = (LOGS / f"{name}.log").open("w+", errors="replace")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [os.environ.get("MAKE", "make"), "--no-print-directory", *(["QUICK=1"] if quick else []), name],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if not part.host:
            _lower(self.process.pid)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def result(self, wait: bool = False) -> Result | None:
        """What came of it; None while it runs. Its CPU seconds are those of all processes that it waited for."""
        pid, status, used = os.wait4(self.process.pid, 0 if wait else os.WNOHANG)
        if pid == 0:
            return None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.log.seek(0)
        with self.log:
            return Result(self.process.returncode, self.seconds, used.ru_utime + used.ru_stime, self.log.read())

    def end(self, why: str) -> Result:
        """End it with all that it started: first as Ctrl-C does, so that tests clean up."""
        deadline = time.monotonic() + LAST_WORDS_S
        self._tell(signal.SIGINT)
        while (found := self.result()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        self._tell(signal.SIGKILL)
        found = found or self.result(wait=True)
        assert found is not None
        return found._replace(status=found.status or 1, said=f"{found.said}\n{self.name}: {why}\n")

    def _tell(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def _lower(pid: int) -> None:
    """Let the part of this process wait for others: by its autogroup, as nice(1) only counts within one (sched(7))."""
    with suppress(OSError):  # the kernel has none
        Path(f"/proc/{pid}/autogroup").write_text("5", encoding="ascii")


class Leftovers:
    """What differs on the host, and which parts may have done it: those that ran when it was first seen.

    A part may change a file for a while, so a change counts only after all those parts have ended.
    """

    def __init__(self) -> None:
        self.before = footprint.look()
        self.suspects: dict[str, set[str]] = {}  # line of footprint.changes -> parts

    def look(self, running: Collection[str]) -> None:
        """See what differs now, while these parts run or have just ended."""
        now = footprint.changes(self.before, footprint.look())
        self.suspects = {line: self.suspects.get(line, set(running)) for line in now}

    def settle(self, running: Collection[str]) -> dict[str, set[str]]:
        """Changes whose parts have all ended; they are not reported twice."""
        found = {line: names for line, names in self.suspects.items() if not names & set(running)}
        if found:
            after = footprint.look()
            for line in found:
                path = line.rpartition(": ")[0]
                self.before = {name: text for name, text in self.before.items() if name != path}
                self.before.update({path: after[path]} if path in after else {})
            self.suspects = {line: names for line, names in self.suspects.items() if line not in found}
        return found


def say(line: str) -> None:
    """One line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def tell(name: str, result: Result) -> None:
    """How a part ended; its whole output if it failed."""
    verdict = "FAILED" if result.status else "passed"
    say(f"{name} {verdict} in {minutes(result.seconds)} min{counted(result.said)}")
    if result.status:
        print(f"===== {name}: its output =====\n{result.said.rstrip()}\n===== end of {name} =====", flush=True)


def blame(found: Mapping[str, set[str]], results: dict[str, Result]) -> None:
    """The parts that left something have failed."""
    for line, names in found.items():
        which = " or ".join(sorted(names))
        beside = "" if len(names) == 1 else f" (they ran side by side; run `make {min(names)}` alone to see which)"
        text = f"{which} left this host other than it was: {line}{beside}"
        say(text)
        for name in names:
            was = results[name]
            results[name] = was._replace(status=was.status or 1, said=f"{was.said.rstrip()}\n{text}\n")


def run(parts: Mapping[str, Part], quick: bool = False) -> dict[str, Result]:
    """Run the parts. Returns the results of those that were run, in the order of `parts`."""
    waiting, running, results = list(parts), dict[str, Running](), dict[str, Result]()
    left, looked, spoke = Leftovers(), time.monotonic(), time.monotonic()
    try:
        while waiting or running:
            while name := next_up(waiting, running, parts):
                waiting.remove(name)
                running[name] = Running(name, parts[name], quick)
                say(f"{name} starts")
            time.sleep(0.2)
            ended = {name: result for name, one in running.items() if (result := over(one, parts[name]))}
            if ended or time.monotonic() - looked > LOOK_S:
                left.look(running)
                looked = time.monotonic()
            for name, result in ended.items():
                del running[name]
                results[name] = result
                tell(name, result)
                if parts[name].alone:  # it makes what the others run with, and installs packages
                    left = Leftovers()
                    waiting = [] if result.status else waiting
            blame(left.settle(running), results)
            if ended:
                spoke = time.monotonic()
            elif time.monotonic() - spoke > SILENCE_S:
                now = (f"{name} {minutes(one.seconds)} of {parts[name].minutes:g} min" for name, one in running.items())
                say(f"running: {', '.join(now)}")
                spoke = time.monotonic()
    except KeyboardInterrupt:
        results.update((name, one.end("interrupted")) for name, one in running.items())
    return {name: results[name] for name in parts if name in results}


def over(one: Running, part: Part) -> Result | None:
    """What came of a part that has ended or that hangs."""
    result = one.result()
    if result is None and one.seconds > limit(part):
        return one.end(f"ended after {minutes(one.seconds)} min: it hangs")
    return result


def git(*words: str) -> str:
    """What a command of git prints about the checkout. Raises CalledProcessError."""
    command = ["git", "-C", str(CHECKOUT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def commit() -> str:
    """The commit of the checkout; "" where it has changes, or is none of git."""
    with suppress(subprocess.CalledProcessError):
        return "" if git("status", "--porcelain") else git("rev-parse", "HEAD").strip()
    return ""


def changed(since: str) -> set[str]:
    """The files of the checkout that differ from those of a commit. Raises CalledProcessError if that is unknown."""
    new = git("ls-files", "--others", "--exclude-standard").splitlines()
    return {*git("diff", "--name-only", since).splitlines(), *new}


def keep(results: Mapping[str, Result]) -> None:
    """Write what came of each part, for who asks later whether it passed with these files (conventions.py)."""
    found = {
        name: {"status": one.status, "seconds": round(one.seconds), "cpu": round(one.cpu), **tests(one.said)}
        for name, one in results.items()
    }
    LOGS.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"commit": commit(), "date": time.strftime("%Y-%m-%d"), "parts": found}, indent=1)
    (LOGS / "results.json").write_text(text, encoding="utf-8")


def kept(but: Collection[str]) -> tuple[str, dict[str, dict[str, int]]]:
    """The date of the last run of all parts, and part -> what came of it, if it ran with these files.

    `but`: files that may differ since. ("", {}) if others differ, or if no run is known.
    """
    try:
        found = json.loads((LOGS / "results.json").read_text(encoding="utf-8"))
        differ = not found["commit"] or bool(changed(found["commit"]) - set(but))
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "", {}
    return ("", {}) if differ else (found["date"], found["parts"])


def covered() -> int:
    """Print how much of the code the unit and contract tests ran; 1 if it is too little."""
    python = str(CHECKOUT / "build/venv/bin/python")
    return subprocess.run([python, "tests/harness/covered.py", *NOTED], check=False, cwd=CHECKOUT).returncode


def main(arguments: list[str]) -> int:
    """The command line: 0 if all parts passed."""
    if arguments not in ([], ["all"]):
        print(__doc__)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    quick = not arguments
    parts = chosen(quick)
    noted = not quick and set(parts) >= set(NOTED)
    if noted:
        shutil.rmtree(halves.DATA, ignore_errors=True)
        os.environ["COVERAGE"] = " ".join(NOTED)  # of the Makefile
    started = time.monotonic()
    results = run(parts, quick)
    if not quick:
        keep(results)
    budgets = {name: part.minutes for name, part in parts.items()}
    print(table(results, budgets, time.monotonic() - started, planned(parts)), flush=True)
    if quick:
        more = [name for name, part in PARTS.items() if part.quick < part.minutes]
        print(f"`make test-all` runs more of: {', '.join(more)}", flush=True)
    failed = any(name not in results or results[name].status for name in parts)
    return int(failed or (noted and covered() != 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
