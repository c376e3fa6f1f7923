# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make floor`: that the oldest ansible-core of meta/runtime.yml reads, runs and passes what the newest does.

Runs in build/venv-floor, whose ansible-core is that one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
NOWHERE = CHECKOUT / "build/no-such-place"  # not this machine's own state and specs
IGNORED = [f"--ignore=tests/unit/{folder}" for folder in ("plugins/module_utils", "release")]


def names(folder: str) -> list[str]:
    """Full names of the modules or plugins in a folder of plugins/."""
    return sorted(f"fleet.cdi.{path.stem}" for path in (CHECKOUT / "plugins" / folder).glob("*.py"))


def commands() -> list[list[str]]:
    """What has to succeed: documentation, playbooks, one module run for real, unit tests of what Ansible loads."""
    files = [path for path in (CHECKOUT / "playbooks").glob("*.yml") if not path.name.endswith(".meta.yml")]
    playbooks = sorted(str(path.relative_to(CHECKOUT)) for path in files)
    here = ["-e", f"ansible_python_interpreter={sys.executable}", "-a", f"state_dir={NOWHERE} spec_dirs={NOWHERE}"]
    return [
        ["ansible", "--version"],
        ["ansible-doc", "--json", *names("modules")],
        *(["ansible-doc", "--json", "-t", kind, name] for kind in ("filter", "lookup") for name in names(kind)),
        *(["ansible-playbook", "--syntax-check", "-i", "localhost,", playbook] for playbook in playbooks),
        ["ansible", "localhost", "-m", "fleet.cdi.spec_info", *here],
        # What module_utils does can't depend on ansible-core: nothing there may import it (tests/unit/test_imports.py).
        # What makes a release is a maintainer's, who has the packages of build/venv.
        [sys.executable, "-m", "pytest", "-q", "tests/unit", *IGNORED],
    ]


def main() -> int:
    """Run all; 1 if any failed. Only pytest's output is worth reading when all is well."""
    failed, passed = 0, 0
    for command in commands():
        shown = "pytest" in command
        print(f"--- {' '.join(command)}", flush=True)
        done = subprocess.run(command, check=False, cwd=CHECKOUT, stdin=subprocess.DEVNULL, capture_output=not shown)
        if done.returncode != 0:
            failed += 1
            print("" if shown else (done.stdout + done.stderr).decode(), f"FAILED: {' '.join(command)}", flush=True)
        else:
            passed += not shown
    print(f"commands: {passed} passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
