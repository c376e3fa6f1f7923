# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `claim add` and `claim del` cost, beside one ADD and one DEL of the same executable.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. Claim and executable take
turns, so that both see the same load. Needs root, and the consoles of this machine.

    claims.py [COUNT]     calls per case, 50 by default
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath")]

from allocation_executable import Machine, cpu
from measure import line, seconds

from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import ttys

CONFIG = {"cdiVersion": "0.0.1", "name": "bench", "type": "tty", "plugin": "generic-tty", "args": {}}


def main() -> None:
    """Print the lines of all cases."""
    count = int(sys.argv[1]) if sys.argv[1:] else 50
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(Path(directory), ttys(16), CONFIG)
        conf = Path(directory, "etc/tty.d/bench.conf")
        with locked_manifest(str(machine.state)) as manifest:
            manifest.write(str(conf), conf.read_bytes() + b"\n")

        def claim(*arguments: str) -> None:
            command = [f"{machine.prefix}/bin/fleet-cdi", "--spec-dir", f"{directory}/cdi", "claim", *arguments]
            subprocess.run(command, capture_output=True, check=True)

        steps = {
            "claim add": lambda name: claim("add", f"c{name}", "tty:1"),
            "ADD": lambda name: machine.call("ADD", f"a{name}"),
            "claim del": lambda name: claim("del", f"c{name}"),
            "DEL": lambda name: machine.call("DEL", f"a{name}"),
        }
        costs: dict[str, list[float]] = {name: [] for name in steps}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for number in range(count):
            for name, step in steps.items():
                before = cpu()
                times[name].append(seconds(lambda step=step, number=number: step(number)))  # type: ignore[misc]
                costs[name].append(cpu() - before)
        for what, of in (("CPU", costs), ("time", times)):
            for name, beside in (("claim add", "ADD"), ("claim del", "DEL")):
                value, baseline = statistics.median(of[name]), statistics.median(of[beside])
                line(f"{name} beside {beside}: {what}, p50", "ms", value * 1000, baseline * 1000)


if __name__ == "__main__":
    main()
