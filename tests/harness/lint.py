# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make lint`: every linter over the collection, each one whatever the ones before found.

lint.py COPY      where COPY is the collection at .../ansible_collections/fleet/cdi (tests/harness/mirror.py)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def steps(copy: Path) -> list[tuple[Path, list[str]]]:
    """Directory and command of each linter. Tools that resolve the collection's own names run in the copy."""
    scripts = [str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / ".ci/run", *CHECKOUT.glob("tests/**/*.sh"))]
    all_steps = [
        (CHECKOUT, ["ruff", "check", "."]),
        (CHECKOUT, ["ruff", "format", "--check", "."]),
        (CHECKOUT, ["mypy", "-p", "ansible_collections.fleet.cdi.plugins"]),
        (CHECKOUT, ["mypy", "tests/harness", "tests/bench", "tests/fault"]),
        (CHECKOUT, ["mypy", "tests/contract"]),
        (CHECKOUT, ["mypy", "tests/adversary"]),
        # What hosts run uses nothing newer than their oldest Python has.
        (CHECKOUT, ["vermin", "--no-tips", "--violations", "-t=3.9-", "plugins/modules", "plugins/module_utils"]),
        (CHECKOUT, ["python", "tests/harness/prose.py"]),
        (CHECKOUT, ["reuse", "lint", "--lines"]),
        (copy, ["ansible-lint", "--offline", "--strict"]),
        (copy, ["antsibull-docs", "lint-collection-docs", "--plugin-docs", "--skip-rstcheck", "."]),
        (copy, ["antsibull-changelog", "lint"]),
    ]
    if shutil.which("shellcheck"):
        all_steps.append((CHECKOUT, ["shellcheck", *scripts]))
    return all_steps


def main(copy: Path) -> int:
    """Run all steps; 1 if any found something."""
    failed = []
    for directory, command in steps(copy):
        print(f"--- {' '.join(command)}", flush=True)
        if subprocess.run(command, check=False, cwd=directory, stdin=subprocess.DEVNULL).returncode != 0:
            failed.append(command[0])
    print(f"lint: {'failed: ' + ', '.join(failed) if failed else 'clean'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
