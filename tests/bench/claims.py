# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What claims cost: `claim add` and `claim del` beside one ADD and one DEL, and `podman run` with a claim.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The baseline of `podman run`
with a claim is the same run with the same device by a spec without hooks. A case and its baseline take turns, so that
both see the same load. Needs root, the consoles of this machine, and podman with runc and crun for the containers.

    claims.py [COUNT]     calls per case, 50 by default
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/harness")]

import apart
from allocation_executable import Machine, cpu
from measure import line, seconds

from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import ttys

CONFIG = {"cdiVersion": "0.0.1", "name": "bench", "type": "tty", "plugin": "generic-tty", "args": {}}
SPECS = "/var/run/cdi"  # where podman reads them; of this process alone (apart.py)
RUNTIMES: dict[str, tuple[str, ...]] = {"runc": (), "crun": ("--cgroups=disabled",)}
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")


def turns(steps: Mapping[str, Callable[[int], object]], count: int, pairs: Mapping[str, str]) -> None:
    """Take turns with the steps, and print a line for each pair of a step and its baseline."""
    costs: dict[str, list[float]] = {name: [] for name in steps}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(count):
        for name, step in steps.items():
            before = cpu()
            times[name].append(seconds(partial(step, number)))
            costs[name].append(cpu() - before)
    for what, of in (("CPU", costs), ("time", times)):
        for name, beside in pairs.items():
            value, baseline = statistics.median(of[name]), statistics.median(of[beside])
            line(f"{name} beside {beside}: {what}, p50", "ms", value * 1000, baseline * 1000)


def containers(count: int, directory: Path, claim: Callable[..., str]) -> None:
    """Measure `podman run` with a claim, and with the same device as a plain CDI device."""
    missing = [name for name in ("podman", "busybox", *RUNTIMES) if not shutil.which(name)]
    if missing:
        print(f"SKIPPED: podman run with a claim: {', '.join(missing)} missing", file=sys.stderr)
        return
    root = directory / "container"
    (root / "bin").mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), root / "bin/true")
    node = json.loads(claim("add", "bench", "tty:1", "--json"))["nodes"][0]["path"]
    plain = Path(SPECS, "bench.json")
    plain.write_text(json.dumps(spec({"plain": nodes(node)}, "bench.example/tty")))
    for runtime, options in RUNTIMES.items():
        start = [
            "podman",
            "--log-level=error",
            "--runtime",
            runtime,
            "run",
            "--rm",
            "--network=none",
            *LIMITS,
            *options,
        ]

        def run(device: str, _number: int, start: Sequence[str] = start) -> None:
            subprocess.run([*start, "--device", device, "--rootfs", str(root), "/bin/true"], check=True)

        case, beside = "podman run with a claim", f"a plain CDI device, {runtime}"
        steps = {case: partial(run, "fleet.cdi/claim=bench"), beside: partial(run, "bench.example/tty=plain")}
        turns(steps, count, {case: beside})
    claim("del", "bench")


def main() -> None:
    """Print the lines of all cases."""
    count = int(sys.argv[1]) if sys.argv[1:] else 50
    apart.enter()
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(Path(directory), ttys(16), CONFIG)
        conf = Path(directory, "etc/tty.d/bench.conf")
        with locked_manifest(str(machine.state)) as manifest:
            manifest.write(str(conf), conf.read_bytes() + b"\n")

        def claim(*arguments: str) -> str:
            command = [f"{machine.prefix}/bin/fleet-cdi", "--spec-dir", SPECS, "claim", *arguments]
            return subprocess.run(command, capture_output=True, check=True, text=True).stdout

        steps: dict[str, Callable[[int], object]] = {
            "claim add": lambda name: claim("add", f"c{name}", "tty:1"),
            "ADD": lambda name: machine.call("ADD", f"a{name}"),
            "claim del": lambda name: claim("del", f"c{name}"),
            "DEL": lambda name: machine.call("DEL", f"a{name}"),
        }
        turns(steps, count, {"claim add": "ADD", "claim del": "DEL"})
        containers(count, Path(directory), claim)


if __name__ == "__main__":
    main()
