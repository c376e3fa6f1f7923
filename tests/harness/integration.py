# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make integration`: every ansible-test target on this machine, then the pytest files of tests/integration.

    integration.py COPY   where COPY is the collection at .../ansible_collections/fleet/cdi (tests/harness/mirror.py)

Targets that need root (alias `needs/root`) are left out for an ordinary user, and said. QUICK=1 leaves out SLOW.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apart

CHECKOUT = Path(__file__).resolve().parents[2]
NO_TESTS_COLLECTED = 5  # pytest's exit status

# Files that make roots of other releases of Debian, that kill a program at each of its system calls, that
# install packages, or that try long.
SLOW = (
    "test_awx.py",
    "test_claim_kills.py",
    "test_execution_environment.py",
    "test_hook_environment.py",
    "test_hook_kills.py",
    "test_kube_play.py",
    "test_overlaps.py",
    "test_release.py",
    "test_runtime.py",
    "test_runtimes.py",
    "test_shared_host.py",
    "test_ways_in.py",
    "test_writers.py",
)


def targets(copy: Path) -> list[str]:
    """Names of the integration targets that this user can run."""
    runnable = []
    for folder in sorted((copy / "tests/integration/targets").glob("*/")):
        aliases = (folder / "aliases").read_text().split()
        if "needs/root" in aliases and os.geteuid() != 0:
            print(f"SKIPPED integration target {folder.name}: needs root", flush=True)
            continue
        runnable.append(folder.name)
    return runnable


def main(copy: Path) -> int:
    """Run both kinds; 1 if either failed."""
    apart.enter()
    statuses = []
    names = targets(copy)
    if names:
        # Destructive targets touch temporary directories, /run and what apart.py gives; ansible-test wants to be told.
        command = ["ansible-test", "integration", "--local", "--allow-root", "--allow-destructive", "--color", "no"]
        command += ["--continue-on-error", *names]
        print(f"--- {' '.join(command)}", flush=True)
        statuses.append(subprocess.run(command, check=False, cwd=copy, stdin=subprocess.DEVNULL).returncode)
        print(f"targets: {0 if statuses[0] else len(names)} passed", flush=True)
    left_out = SLOW if os.environ.get("QUICK") else ()
    command = [sys.executable, "-m", "pytest", "-q", "tests/integration"]
    command += [f"--ignore=tests/integration/{name}" for name in left_out]
    print(f"--- {' '.join(command)}", flush=True)
    status = subprocess.run(command, check=False, cwd=CHECKOUT, stdin=subprocess.DEVNULL).returncode
    statuses.append(0 if status == NO_TESTS_COLLECTED else status)
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
