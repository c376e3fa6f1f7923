# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Family "images": the author of a container image, against cdi-hook, which works on its files as root.

Most seeds start the hook alone, as a runtime starts it, and measure its memory. Each fourth goes through a real runc or
crun, whose container has a hostile environment: what the image's author says in it must not reach the host.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional

import hostile_image
import oci_runtimes
from oci_runtimes import OciRuntime
from oracle import ESCAPE, FOREIGN, MEMORY, TIME, TRACEBACK, Control, Finding, Outcome, Watch

from ansible_collections.fleet.cdi.plugins.module_utils.hooks import main
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.oci_runtimes import OciRuntime as Asked
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.oci_runtimes import passes_environment

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # the one that hosts have
HOST_FILES = tuple(Path(path) for path in ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/passwd"))
SECRET = "secret-of-the-host-7c1f"
MOST_KIB = 64 << 10
THROUGH = 4  # each fourth seed goes through a runtime
KNOWN = "387f10e"  # a commit whose hook can be got through, by the environment
TRIED = 4  # seeds of the control for each runtime
CANARY = "canary"
EVIL = """
#include <fcntl.h>
#include <stdlib.h>
unsigned int la_version(unsigned int version) { return version; }
static void __attribute__((constructor)) get_in(void) {
    const char *path = getenv("CANARY");
    if (path) open(path, O_CREAT | O_WRONLY, 0600);
}
"""
SECONDS = 120  # for a hook, which gets far less from --timeout: a busy machine takes long to start it
TIMEOUT = 10
LOOKED_AT = 1 << 16  # bytes of a file of the image, where the host's secret could have got to
# Starts the program as a child of a small process: the kernel counts what its parent had before execve(2), too.
METER = """
import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_pid, status, used = os.wait4(pid, 0)
with open(sys.argv[1], "w") as file:
    file.write(f"{used.ru_maxrss} {os.waitstatus_to_exitcode(status)}")
"""


# Run with the code of a release: the text of its hook, and the entry that its specs have for it.
MAKE = """
import json, sys
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Hook, Kind, Node
from ansible_collections.fleet.cdi.plugins.module_utils.release import launcher
try:
    from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.build_spec import spec_of
except ImportError:  # a release before its wings
    from ansible_collections.fleet.cdi.plugins.module_utils.converge.plan import spec_of
hook = Hook("createContainer", "", ("cdi-hook", "createContainer", "--link=a::/b"))
device = Device("id", "rule", "a.com/gpu", ("a",), (Node("/dev/null", "c", 1, 3),), hooks=(hook,))
spec = spec_of(Kind("a.com/gpu"), [device], sys.argv[2])
print(json.dumps([launcher.texts(sys.argv[1], {})["cdi-hook"], spec["containerEdits"]["hooks"][0]]))
"""


class Release(NamedTuple):
    """A hook, and the entry of a spec for it, as the code of that release makes both."""

    program: Path
    entry: dict[str, Any]


class Prepared:
    """What setup() made."""

    release: Release
    runtimes: tuple[OciRuntime, ...] = ()
    library = Path()  # for LD_PRELOAD; "." where there is no compiler


def setup(directory: Path) -> str:
    """Install a release, and find runtimes."""
    if os.geteuid() != 0:
        return "needs root, as the hook has it"
    Prepared.release = installed(directory / "cdi")
    if shutil.which("busybox"):
        Prepared.runtimes, missing = oci_runtimes.found()
    else:
        missing = ("containers: no busybox; Debian's package is busybox-static",)
    for line in missing:
        print(f"SKIPPED in images: {line}", flush=True)
    if shutil.which("gcc"):
        (directory / "evil.c").write_text(EVIL)
        Prepared.library = directory / "evil.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", Prepared.library, directory / "evil.c"], check=True)
    else:
        print("SKIPPED in images: LD_PRELOAD of a library (no gcc); variables of the linker alone", flush=True)
    return ""


def installed(prefix: Path, commit: str = "") -> Release:
    """A release below `prefix`, of this checkout or of one of its commits.

    Raises LookupError for a commit that is not in this clone.
    """
    rooms = prefix / "ansible_collections/fleet/cdi/plugins/module_utils"
    if commit:
        rooms.parents[1].mkdir(parents=True)
        archive = ["git", "-C", str(CHECKOUT), "archive", commit, "plugins/module_utils"]
        done = subprocess.run(archive, capture_output=True, check=False)
        if done.returncode:
            raise LookupError(f"commit {commit} is not in this clone (is it a shallow one?)")
        subprocess.run(["tar", "-x", "-C", str(rooms.parents[1])], input=done.stdout, check=True)
    else:
        shutil.copytree(CHECKOUT / "plugins/module_utils", rooms, ignore=shutil.ignore_patterns("__pycache__"))
    program = prefix / "bin/cdi-hook"
    asked = [PYTHON, "-c", MAKE, PYTHON, str(program)]
    made = subprocess.run(
        asked, env={"PYTHONPATH": str(prefix)}, cwd="/", stdout=subprocess.PIPE, text=True, check=True
    )
    text, entry = json.loads(made.stdout)
    program.parent.mkdir()
    program.write_text(text)
    program.chmod(0o755)
    subprocess.run([PYTHON, "-m", "compileall", "-q", str(rooms)], cwd="/", check=True)
    return Release(program, {key: value for key, value in entry.items() if key != "hookName"})


def attack(seed: int, arena: Path) -> Outcome:
    """One image, one hook."""
    runtimes = Prepared.runtimes
    if not runtimes or seed % THROUGH:
        return attempt(seed, arena, Prepared.release, None)
    return attempt(seed, arena, Prepared.release, runtimes[seed // THROUGH % len(runtimes)])


def control(directory: Path) -> Control:
    """The same attacks on hook and specs of an older commit, under the runtimes that pass the environment on."""
    commit = os.environ.get("CONTROL") or KNOWN
    passing = [
        one for one in Prepared.runtimes if passes_environment(Asked(one.name, one.version, ""), "createContainer")
    ]
    if not passing:
        return Control(skipped="no runtime here gives a hook the environment of the image")
    try:
        release = installed(directory / "cdi", commit)
    except LookupError as error:
        return Control(skipped=str(error))
    caught = 0
    for number, runtime in enumerate(passing):
        for seed in range(TRIED):
            arena = directory / f"{number}-{seed}"
            arena.mkdir()
            outcome = attempt(seed, arena, release, runtime)
            caught += any(finding.sort == ESCAPE for finding in outcome.findings)
    labels = ", ".join(one.label for one in passing)
    return Control(len(passing) * TRIED, caught, f"hook and specs of {commit} under {labels}")


def attempt(seed: int, arena: Path, release: Release, runtime: Optional[OciRuntime]) -> Outcome:
    """The image of a seed, and the hook of a release on it: alone, or in a container's start."""
    rng = random.Random(seed)
    root, outside = arena / "bundle/root", arena / "outside"
    root.mkdir(parents=True)
    (outside / "folder").mkdir(parents=True)
    (outside / "secret").write_text(SECRET)
    (outside / "secret").chmod(0o600)
    (outside / "folder/libhost.so.1.0").write_bytes(hostile_image.elf(random.Random(0)))
    tricks = hostile_image.fill(rng, root, outside)
    words = [*hostile_image.words(rng, outside), f"--timeout={TIMEOUT}"]
    config: dict[str, Any] = {"root": {"path": "root"}}
    if runtime:
        config = container(rng, arena, release, words)
    (arena / "bundle/config.json").write_text(json.dumps(config))
    watch = Watch([outside, arena / "bundle/config.json", release.program, *HOST_FILES])
    with hostile_image.swapping(rng, root, outside):
        if runtime:
            findings, peak, said = through(runtime, arena / "bundle", f"adversary-{os.getpid()}-{seed}"), 0, ""
        else:
            findings, peak, said = started(arena, release, words)
    findings += came_in(outside)
    findings += watch.findings()
    findings += shown(root, said)
    by = runtime.label if runtime else "alone"
    notes = (f"tricks: {', '.join(tricks)}", f"hook, {by}: {words}", f"said: {said!r}")
    return Outcome(tuple(findings), peak, notes)


def container(rng: random.Random, arena: Path, release: Release, words: list[str]) -> dict[str, Any]:
    """A container of the image, with the hook of a spec and a hostile environment."""
    root, canary = arena / "bundle/root", arena / "outside" / CANARY
    for name in ("dev", "proc", "sys", "bin"):  # a container that does not start runs no hook
        if (root / name).is_symlink() or not (root / name).is_dir():
            hostile_image.place(root, name, directory=True)
    shutil.copy(str(shutil.which("busybox")), root / "bin/busybox")
    environment = ["PATH=/bin", f"CANARY={canary}"]
    if Prepared.library.name:
        shutil.copy(Prepared.library, hostile_image.place(root, "evil.so"))
    environment += hostile_image.variables(rng, str(canary), bool(Prepared.library.name))
    hook = {**release.entry, "args": ["cdi-hook", *words]}
    return oci_runtimes.config(["/bin/busybox", "true"], environment, {"createContainer": [hook]})


def through(runtime: OciRuntime, bundle: Path, identity: str) -> list[Finding]:
    """Start the container; it may start or not."""
    try:
        done = runtime.run(bundle, identity, SECONDS)
    except subprocess.TimeoutExpired:
        return [Finding(TIME, f"{runtime.label} took more than {SECONDS} s")]
    if "Traceback" in done.stderr or main.UNFORESEEN in done.stderr:
        return [Finding(TRACEBACK, f"{runtime.label}: {done.stderr[-2000:]}")]
    return []


def came_in(outside: Path) -> list[Finding]:
    """What the environment of the image did on the host; it is taken away."""
    findings = []
    for path in outside.glob(f"{CANARY}*"):
        findings.append(Finding(ESCAPE, f"{path.name} was made on the host, by a variable of the image"))
        path.unlink()
    return findings


def started(arena: Path, release: Release, words: list[str]) -> tuple[list[Finding], int, str]:
    """Start the hook; what is wrong, its memory in KiB, and what it said."""
    report = arena / "report"
    state = json.dumps({"ociVersion": "1.0.2", "id": "one", "status": "created", "bundle": str(arena / "bundle")})
    command = [PYTHON, "-IS", "-c", METER, str(report), str(release.program), *words]
    environment = {
        "PYTHONPATH": str(arena / "bundle/root"),
        "PYTHONHOME": str(arena / "bundle/root"),
        "PATH": "/usr/bin",
    }
    with subprocess.Popen(
        command, env=environment, cwd=arena / "bundle/root", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said = process.communicate(state.encode(), timeout=SECONDS)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return [Finding(TIME, f"{words} took more than {SECONDS} s")], 0, ""
    peak, status = map(int, report.read_text().split())
    findings = []
    if "Traceback" in said or main.UNFORESEEN in said or status not in (0, 1):
        findings.append(Finding(TRACEBACK, f"exit status {status}: {said[-2000:]}"))
    if peak > MOST_KIB:
        findings.append(Finding(MEMORY, f"{words} took {peak / 1024:.0f} MiB"))
    return findings, peak, said


def shown(root: Path, said: str) -> list[Finding]:
    """Whether anything of the host got into the container, or what the image says to a terminal."""
    findings = [Finding(FOREIGN, "the host's secret is in what the hook said")] if SECRET in said else []
    if any(not (char.isprintable() or char == "\n") for char in said):
        findings.append(Finding(FOREIGN, f"control characters of the image are in what the hook said: {said[:500]!r}"))
    for directory, _folders, files in os.walk(root):  # which follows no symlink
        for name in files:
            path = Path(directory, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and 0 < status.st_size < LOOKED_AT and SECRET.encode() in path.read_bytes():
                findings.append(Finding(ESCAPE, f"the host's secret is in {path} of the container"))
    return findings
