# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hook costs each container that has one, beside a start of the same interpreter with the same flags.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. First the hook alone: the
processor time of all its processes, and the time. Then what it adds to a container's start by podman and runc, where
those are. A round does every case once, so that all see the same load. Needs root.

    hooks.py [COUNT]     rounds, 100 by default; a fifth of it with containers
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath")]

from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, host, install, launcher

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
LIBRARY = next((path for path in Path("/usr/lib").glob("*-linux-gnu/libz.so.1.*")), None)
LINKS = tuple(word for number in range(20) for word in ("--link", f"target{number}::/opt/lib/lib{number}.so"))
FOLDERS = ("--folder", "/opt/lib")
ONE = [("createContainer", *LINKS, *FOLDERS, "--chmod", "755:/opt")]
# As NVIDIA's generator has it: a hook for each.
THREE = [("create-symlinks", *LINKS), ("update-ldcache", *FOLDERS), ("chmod", "--mode", "755", "--path", "/opt")]
CASES: dict[str, Sequence[tuple[str, ...]]] = {
    "links": [("createContainer", *LINKS)],
    "links, cache and modes": ONE,
    "links, cache and modes, by three hooks": THREE,
}
LEFT_OUT = ("contextlib", "json", "re", "signal", "typing")
STATISTICS: dict[str, Callable[[Iterable[float]], float]] = {"fastest": min, "p50": statistics.median}
KIND = "bench.fleet.cdi/hook"
SPEC = Path("/var/run/cdi/bench.fleet.cdi-hook.json")


class Cost(NamedTuple):
    """Of one start, with everything that it waits for."""

    cpu: float  # seconds
    wall: float


def measured(act: Callable[[], object]) -> Cost:
    """What `act` costs, by the children that it waits for."""
    start, before = time.perf_counter(), os.times()
    act()
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(used, time.perf_counter() - start)


def run(command: list[str]) -> tuple[int, str, str]:
    """(exit status, stdout, stderr)."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def installed(directory: Path) -> Path:
    """The hook of a release of this checkout."""
    release = build.build(str(Path(records.__file__).parent))
    python = host.probe(PYTHON, run)
    defaults = {"prefix": str(directory), "spec_dirs": [], "state_dir": "", "inventory": ""}
    install.present(str(directory), release.id, python, launcher.texts(python.path, defaults), run, build.pack(release))
    return directory / "bin" / launcher.CDI_HOOK


def interpreter() -> None:
    """The interpreter with the flags of the hook."""
    subprocess.run([PYTHON, "-IS", "-c", "pass"], env={}, check=True)


def imports(count: int) -> None:
    """What the modules of the standard library that the hook does without add to a start."""
    taken: dict[str, list[float]] = {}
    for _round in range(count):
        for name in ("_json, _signal", *LEFT_OUT):  # these are part of the interpreter
            start = [PYTHON, "-IS", "-c", f"import {name}"]
            taken.setdefault(name, []).append(measured(partial(subprocess.run, start, env={}, check=True)).cpu)
    base = statistics.fmean(taken.pop("_json, _signal"))
    for name, costs in taken.items():
        line(
            f"a start that imports {name} beside one without, processor time",
            "ms",
            statistics.fmean(costs) * 1000,
            base * 1000,
        )


def hooks_alone(program: Path, directory: Path, count: int) -> None:
    """The hook as a runtime starts it, on a small image."""
    root = directory / "bundle/root"
    (root / "opt/lib").mkdir(parents=True)
    if LIBRARY:
        shutil.copy(LIBRARY, root / "opt/lib")
    (directory / "bundle/config.json").write_text(json.dumps({"root": {"path": "root"}}))
    state = json.dumps({"bundle": str(directory / "bundle")}).encode()

    def start(calls: Sequence[tuple[str, ...]]) -> None:
        for words in calls:
            subprocess.run([program, *words], input=state, env={}, check=True)

    taken: dict[str, list[Cost]] = {"baseline": []}
    for _round in range(count):
        taken["baseline"].append(measured(interpreter))
        for case, calls in CASES.items():
            taken.setdefault(case, []).append(measured(partial(start, calls)))
    base = taken.pop("baseline")
    for case, costs in taken.items():
        # Ticks of a hundredth of a second: only the mean says anything of processor time.
        means = [statistics.fmean(cost.cpu for cost in of) * 1000 for of in (costs, base)]
        line(f"{case}, processor time", "ms", *means)
        for name, of in STATISTICS.items():
            line(f"{case}, {name}", "ms", of([c.wall for c in costs]) * 1000, of([c.wall for c in base]) * 1000)


def containers(program: Path, directory: Path, count: int) -> None:
    """What hooks add to the start of a container; none where podman, runc or a static busybox is missing."""
    missing = [name for name in ("podman", "runc", "busybox") if not shutil.which(name)]
    if missing or SPEC.exists():
        print(f"SKIPPED: containers ({', '.join(missing) or SPEC} in the way)", file=sys.stderr)
        return
    root = directory / "image"
    (root / "bin").mkdir(parents=True)
    (root / "opt/lib").mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), root / "bin/busybox")
    cases = {"none": [], "one": ONE, "three": THREE}
    devices = []
    for name, calls in cases.items():
        hooks = [{"hookName": "createContainer", "path": str(program), "args": ["cdi-hook", *words]} for words in calls]
        edits = {"env": ["A=1"], **({"hooks": hooks} if hooks else {})}
        devices.append({"name": name, "containerEdits": edits})
    SPEC.parent.mkdir(exist_ok=True)
    SPEC.write_text(json.dumps({"cdiVersion": "0.3.0", "kind": KIND, "devices": devices}))
    limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
    start = ["podman", "--runtime", "runc", "run", "--rm", "--network=none", *limits]

    def run_with(name: str) -> None:
        command = [*start, "--device", f"{KIND}={name}", "--rootfs", str(root), "/bin/busybox", "true"]
        subprocess.run(command, check=True, capture_output=True)

    try:
        taken: dict[str, list[float]] = {name: [] for name in cases}
        bare = []
        for _round in range(count):
            bare.append(measured(interpreter).wall)
            for name in cases:
                taken[name].append(measured(partial(run_with, name)).wall)
    finally:
        SPEC.unlink()
    none, unit = statistics.median(taken["none"]), statistics.median(bare)
    for name in ("one", "three"):
        with_it = statistics.median(taken[name])
        line(f"a container with {name} of them beside one without, p50", "ms", with_it * 1000, none * 1000)
        line(f"what {name} of them adds to a container's start, p50", "ms", (with_it - none) * 1000, unit * 1000)


def main() -> None:
    """Measure all of it."""
    count = int(sys.argv[1]) if sys.argv[1:] else 100
    if os.geteuid() != 0:
        print("SKIPPED: needs root", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        imports(count)
        program = installed(directory / "opt")
        hooks_alone(program, directory, count)
        containers(program, directory, max(count // 5, 2))


if __name__ == "__main__":
    main()
