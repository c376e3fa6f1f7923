# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make style` and `make lint`: every linter over the collection, each one whatever the ones before found.

lint.py           those that take seconds
lint.py COPY      all; COPY is the collection at .../ansible_collections/fleet/cdi (tests/harness/mirror.py)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
EXCLUDED = ("extensions/molecule", "examples/awx/project")


def quick() -> list[tuple[Path, list[str]]]:
    """Directory and command of each linter that takes seconds."""
    scripts = [str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / ".ci/run", *CHECKOUT.glob("tests/**/*.sh"))]
    commands = [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        # What hosts run uses nothing newer than their oldest Python has.
        ["vermin", "--no-tips", "--violations", "-t=3.9-", "plugins/modules", "plugins/module_utils"],
        ["vulture"],
        ["python", "tests/harness/prose.py"],
        ["reuse", "lint", "--lines"],
        *([["shellcheck", *scripts]] if shutil.which("shellcheck") else []),
    ]
    return [(CHECKOUT, command) for command in commands]


def slow(copy: Path) -> list[tuple[Path, list[str]]]:
    """The others. Tools that resolve the collection's own names run in the copy."""
    # What .ansible-lint excludes for Galaxy: ansible-lint checks files that are named all the same.
    named = [str(path.relative_to(copy)) for name in EXCLUDED for path in sorted((copy / name).rglob("*.yml"))]
    return [
        (CHECKOUT, ["mypy", "-p", "ansible_collections.fleet.cdi.plugins"]),
        (CHECKOUT, ["mypy", "tests/harness", "tests/bench", "tests/fault"]),
        (CHECKOUT, ["mypy", "tests/contract"]),
        (CHECKOUT, ["mypy", "tests/adversary"]),
        (CHECKOUT, ["mypy", "tests/world"]),
        (CHECKOUT, ["mypy", *(f"tests/machines/{name}.py" for name in ("image", "machine", "controller"))]),
        (CHECKOUT, ["mypy", "examples/machine/run.py"]),
        (CHECKOUT, ["mypy", "release"]),
        (copy, ["ansible-lint", "--offline", "--strict"]),
        (copy, ["ansible-lint", "--offline", "--strict", *named]),
        (copy, ["antsibull-docs", "lint-collection-docs", "--plugin-docs", "."]),
        (copy, ["antsibull-changelog", "lint"]),
    ]


def main(arguments: list[str]) -> int:
    """Run them; 1 if any found something."""
    steps = [*quick(), *(slow(Path(arguments[0]).resolve()) if arguments else [])]
    failed = []
    for directory, command in steps:
        print(f"--- {' '.join(command)[:200]}", flush=True)
        if subprocess.run(command, check=False, cwd=directory, stdin=subprocess.DEVNULL).returncode != 0:
            failed.append(command[0])
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)
    print(f"linters: {len(steps) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
