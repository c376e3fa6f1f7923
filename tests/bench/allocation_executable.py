# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a call of an executable of the 2017 proposal takes, beside the same interpreter with the same flags.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The baseline of VERSION is the
interpreter that does nothing, of the others the one that imports json and sqlite3 and makes one durable commit (the
floor); calls and baseline take turns, so that both see the same load. Needs root, for the device nodes of a rendered
host.

An ADD looks at all processes (docs/occupied.md). So it runs in a PID namespace with a fixed number of them, each with
the descriptors and mappings of an idle Python.

The baseline of a crowd is one caller. Its control is a crowd of interpreters that only import json and sqlite3, beside
one such: they share nothing but the machine, so their ratio is that of processors with more processes than cores.

    allocation_executable.py [COUNT]     calls per case, 200 by default
"""

from __future__ import annotations

import copy
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath")]

from measure import line, seconds

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import HeldLocks, Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.pools import discover_pools
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, host, install, launcher
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, gpus, ttys
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
CROWDS = (16, 64)  # callers at once
POOLS = (8, 10_000)  # devices
STORED = 3000
PROCESSES = 100  # beside the calls
INSIDE = "FLEET_CDI_BENCH_INSIDE"  # a variable that says so in that namespace
ROUNDS = 5  # of a crowd and its control

# The fastest is what is left where the machine has other things to do as well.
STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "fastest": min,
    "p50": statistics.median,
    "p99": lambda taken: statistics.quantiles(taken, n=100)[98],
}

# What every ADD has to do, whoever wrote it: start, read JSON, have SQLite, make one row durable.
COMMIT = """\
import json, sqlite3
db = sqlite3.connect({path!r}, isolation_level=None)
db.execute("PRAGMA journal_mode = PERSIST")
db.execute("PRAGMA synchronous = FULL")
db.execute("CREATE TABLE IF NOT EXISTS grants (request_id TEXT, devices TEXT)")
db.execute("INSERT INTO grants VALUES (?, ?)", ("1", json.dumps(["/dev/dri/card0"])))
db.close()
"""


def run(command: list[str]) -> tuple[int, str, str]:
    """(exit status, stdout, stderr)."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


class Machine:
    """A host of rendered devices on which the release of this checkout is installed."""

    def __init__(self, directory: Path, tree: dict[str, Any], config: dict[str, Any]) -> None:
        self.root = render(tree, directory / "root")
        self.state = directory / "state"
        self.prefix = str(directory / "opt")
        inventory = str(directory / "run/cdi-inventory.json")
        defaults = {"prefix": self.prefix, "inventory": inventory, "root": self.root, "state_dir": str(self.state)}
        release = build.build(str(Path(records.__file__).parent))
        python = host.probe(PYTHON, run)
        launchers = launcher.texts(python.path, {**defaults, "spec_dirs": []})
        install.present(self.prefix, release.id, python, launchers, run, build.pack(release))
        folder = directory / f"etc/{config['type']}.d"
        folder.mkdir(parents=True)
        self.config = json.dumps(config).encode()
        self.program, self.type = Path(f"{self.prefix}/bin/{config['plugin']}"), config["type"]
        (folder / "bench.conf").write_bytes(self.config)
        boot = Path(self.root + BOOT).read_text().strip()
        pools = discover_pools([str(directory / "etc")], inventory, boot, snapshot.take(self.root), None, {})
        for path, content in pools.documents.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)

    def call(self, command: str, request_id: str = "1", amount: int = 1) -> subprocess.CompletedProcess[bytes]:
        """One call. Raises CalledProcessError, also for a DEL that freed nothing."""
        variables = {"CDI_VERSION": "0.0.1", "CDI_COMMAND": command, "CDI_REQUEST_ID": request_id}
        variables["CDI_REQUEST"] = f"{self.type}:{amount}"
        done = subprocess.run([self.program], input=self.config, env=variables, capture_output=True, check=True)
        if command == "DEL" and done.stdout:
            raise subprocess.CalledProcessError(0, str(self.program), done.stdout)
        return done


def interpreter(program: str) -> None:
    """The interpreter with the flags of the executables."""
    subprocess.run([PYTHON, "-IS", "-c", program], input=b"{}", env={}, capture_output=True, check=True)


def show(case: str, values: list[float], baselines: list[float]) -> None:
    """Print a line for each of STATISTICS."""
    for name, of in STATISTICS.items():
        value, baseline = of(values), of(baselines)
        line(f"{case}, {name}", "ms", value * 1000, baseline * 1000)


def one_after_the_other(empty: Machine, full: Machine, commit: str, count: int) -> None:
    """ADD and DEL of both hosts in turns with their baseline."""
    taken: dict[str, list[float]] = {}
    for number in range(count):
        for name, act in (
            ("ADD, no stored grant", partial(empty.call, "ADD", f"r{number}")),
            (f"ADD, {STORED} stored grants", partial(full.call, "ADD", f"r{number}")),
            ("baseline", partial(interpreter, commit)),
            ("DEL, no stored grant", partial(empty.call, "DEL", f"r{number}")),
            (f"DEL, {STORED} stored grants", partial(full.call, "DEL", f"r{number}")),
        ):
            taken.setdefault(name, []).append(seconds(act))
    baselines = taken.pop("baseline")
    for name, values in taken.items():
        show(name, values, baselines)
    show(
        f"ADD, {STORED} stored grants beside none",
        taken[f"ADD, {STORED} stored grants"],
        taken["ADD, no stored grant"],
    )


def with_typing(machine: Machine, count: int) -> None:
    """The CPU of ADD and DEL beside a launcher that imports the real typing first (light_typing.py)."""
    heavy = copy.copy(machine)
    heavy.program = machine.program.resolve().with_name("with-typing")
    heavy.program.write_text(machine.program.read_text().replace("import sys\n", "import sys\nimport typing\n", 1))
    heavy.program.chmod(0o755)
    costs: dict[tuple[str, Machine], list[float]] = {}
    for number in range(count):
        for one in (machine, heavy):
            for command in ("ADD", "DEL"):
                before = cpu()
                one.call(command, f"r{number}")
                costs.setdefault((command, one), []).append(cpu() - before)
    for command in ("ADD", "DEL"):
        for name in ("fastest", "p50"):
            value, baseline = (STATISTICS[name](costs[command, one]) for one in (machine, heavy))
            line(f"{command} beside one that imports typing: CPU, {name}", "ms", value * 1000, baseline * 1000)


def large_pool(few: Machine, many: Machine, commit: str, count: int) -> None:
    """The CPU of an ADD on a large pool, beside the floor and beside an ADD on a small one."""
    acts: dict[str, Callable[[str], object]] = {
        "few": partial(few.call, "ADD"),
        "many": partial(many.call, "ADD"),
        "floor": lambda _name: interpreter(commit),
    }
    costs: dict[str, list[float]] = {name: [] for name in acts}
    for number in range(count):
        for name, act in acts.items():
            before = cpu()
            act(f"r{number}")
            costs[name].append(cpu() - before)
        for machine in (few, many):
            machine.call("DEL", f"r{number}")
    for name in ("fastest", "p50"):
        of = {key: 1000 * STATISTICS[name](taken) for key, taken in costs.items()}
        line(f"ADD on {POOLS[0]} devices: CPU, {name}", "ms", of["few"], of["floor"])
        line(f"ADD on {POOLS[1]} devices: CPU, {name}", "ms", of["many"], of["floor"])
        line(f"ADD on {POOLS[1]} devices beside {POOLS[0]}: CPU, {name}", "ms", of["many"], of["few"])


def cpu() -> float:
    """Seconds of CPU of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Crowd:
    """Callers that ADD and DEL without a pause, and what became of their calls."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.taken: list[float] = []
        self.errors: list[int] = []
        self.twice: list[str] = []
        self._held: set[str] = set()

    def turn(self, name: str) -> None:
        """ADD and DEL."""
        devices = self._call("ADD", name)
        self.twice.extend(self._held.intersection(devices))
        self._held.update(devices)
        self._held.difference_update(devices)
        if devices:
            self._call("DEL", name)

    def _call(self, command: str, name: str) -> list[str]:
        start = time.perf_counter()
        try:
            done = self.machine.call(command, name)
            return list(json.loads(done.stdout or b"{}").get("devices", ()))
        except subprocess.CalledProcessError as error:
            self.errors.append(json.loads(error.stdout)["code"])
            return []
        finally:
            self.taken.append(time.perf_counter() - start)


def import_twice(_name: str) -> None:
    """The control of one ADD and DEL."""
    for _call in range(2):
        interpreter("import json, sqlite3")


def at_once(callers: int, turns: int, turn: Callable[[str], None], name: str) -> tuple[float, float]:
    """Callers that each make `turns`. Returns the seconds of CPU of a turn, and the seconds of all."""

    def caller(number: int) -> None:
        for each in range(turns):
            turn(f"{name}-{callers}-{number}-{each}")

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    before = cpu()
    whole = seconds(lambda: [*map(threading.Thread.start, threads), *map(threading.Thread.join, threads)])
    return (cpu() - before) / (callers * turns), whole


def crowds(machine: Machine, count: int) -> None:
    """What a call costs and takes with many callers, in rounds with one caller and with the control."""
    found = {callers: Crowd(machine) for callers in CROWDS}
    ratios: dict[tuple[int, str], list[float]] = {}
    costs: dict[tuple[int, str], list[float]] = {}
    whole = dict.fromkeys(CROWDS, 0.0)
    for number in range(ROUNDS):
        for what in ("calls", "control"):
            alone = 0.0
            for callers in (1, *CROWDS):
                crowd = found.get(callers, Crowd(machine))
                turn = crowd.turn if what == "calls" else import_twice
                turns = max(count // ROUNDS // callers, 1)
                cost, took = at_once(callers, turns, turn, str(number))
                alone = alone or cost
                costs.setdefault((callers, what), []).append(cost)
                ratios.setdefault((callers, what), []).append(cost / alone)
                if what == "calls" and callers in whole:
                    whole[callers] += took
    for callers, crowd in found.items():
        case = f"{callers} callers x {max(count // ROUNDS // callers, 1) * ROUNDS} ADD and DEL"
        for what, text in (("calls", "CPU of a call"), ("control", "control: CPU of an interpreter")):
            both = [500 * statistics.median(costs[number, what]) for number in (callers, 1)]
            line(f"{case}: {text}", "ms", *both)
        calls, control = (statistics.median(ratios[callers, what]) for what in ("calls", "control"))
        line(f"{case}: CPU beside one caller, and the control's", "ratio", calls, control)
        line(f"{case}: rate", "1/s", len(crowd.taken) / whole[callers])
        line(f"{case}: longest", "ms", max(crowd.taken) * 1000)
        line(f"{case}: error 108", "calls", crowd.errors.count(108))
        line(f"{case}: other errors", "calls", len(crowd.errors) - crowd.errors.count(108))
        line(f"{case}: granted twice", "devices", len(crowd.twice))


def store(machine: Machine, count: int) -> None:
    """`count` grants of other configurations in the ledger, as a busy host has them."""
    ledger = Ledger(str(machine.state), Path(machine.root + BOOT).read_text().strip())
    for number in range(count):
        holds = [Hold(f"other:{number}", "bench.x/other")]
        ledger.add(Key("other", "rule", f"r{number}"), {"other": 1}, partial(_given, holds), "claims")


def _given(holds: list[Hold], _held: HeldLocks) -> list[Hold]:
    return holds


def main() -> None:
    """Print the lines of all cases."""
    count = int(sys.argv[1]) if sys.argv[1:] else 200
    config: dict[str, Any] = {"cdiVersion": "0.0.1", "name": "b", "type": "gpu", "plugin": "drm", "args": {}}
    with tempfile.TemporaryDirectory() as directory:
        empty, full = (Machine(Path(directory, name), gpus((16384,) * 8), config) for name in ("empty", "full"))
        starts = [
            (seconds(lambda: empty.call("VERSION")), seconds(lambda: interpreter("pass"))) for _time in range(count)
        ]
        show("VERSION", *map(list, zip(*starts)))
        with_typing(empty, count)
        store(full, STORED)
        one_after_the_other(empty, full, COMMIT.format(path=f"{directory}/baseline.db"), count)
    args = {"match": {"subsystem": "tty"}, "kind": "bench.x/tty"}
    consoles = {**config, "type": "tty", "plugin": "rule", "args": args}
    with tempfile.TemporaryDirectory() as directory:
        few, many = (Machine(Path(directory, str(last)), ttys(last), consoles) for last in POOLS)
        large_pool(few, many, COMMIT.format(path=f"{directory}/baseline.db"), count)
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(Path(directory), ttys(max(CROWDS)), consoles)
        crowds(machine, count)


if __name__ == "__main__":
    if INSIDE not in os.environ:
        space = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable]
        os.execvpe(space[0], [*space, *sys.argv], {**os.environ, INSIDE: "1"})
    # They end with this process, the first of its namespace.
    idle = [PYTHON, "-IS", "-c", "import json, sqlite3, signal; signal.pause()"]
    others = [subprocess.Popen(idle) for _one in range(PROCESSES)]
    main()
