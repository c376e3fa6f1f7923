# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a refresh costs a host on which nothing changed, beside an interpreter that does nothing.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}: CPU seconds of this machine's
Python with -I, for `fleet-cdi refresh` on its own consoles and for `pass`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
IMPORTS = str(CHECKOUT / "build/pythonpath")
sys.path.insert(0, IMPORTS)

from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.memory import Memory
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest

TIMES = 10
KIND = "fleet.cdi/tty"
PROGRAM = """
import sys
sys.path.insert(0, {imports!r})
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
defaults = {{"state_dir": {state!r}, "inventory": {inventory!r}, "spec_dirs": [], "prefix": ""}}
sys.exit(main(["refresh"], "bench", defaults))
"""


def cpu(program: str) -> float:
    """CPU seconds of one run of `program`, the cheapest of TIMES."""
    taken = []
    for _time in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-I", "-c", program], check=False, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def main() -> None:
    """Print the line."""
    with tempfile.TemporaryDirectory() as directory:
        state, inventory = f"{directory}/state", f"{directory}/inventory.json"
        options = WantedKind(KIND, {"consoles": {"profile": "tty"}}, by="bench")._asdict()
        wanted = {key: value for key, value in options.items() if key not in ("kind", "content")}
        with locked_manifest(state) as manifest:
            manifest.remember({KIND: Memory(wanted, f"{directory}/cdi", inventory).document()})
        program = PROGRAM.format(imports=IMPORTS, state=state, inventory=inventory)
        subprocess.run([sys.executable, "-I", "-c", program], check=False, capture_output=True)  # this one writes
        value, baseline = cpu(program), cpu("pass")
    line("nothing changed", "CPU-s", value, baseline)


if __name__ == "__main__":
    main()
