# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Family "images": who makes a container image, against cdi-hook, which works on its files as root.

The hook is started as a runtime starts it: what runtimes differ in is the environment, and that is what containers.py
is for.
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

import hostile_image
from oracle import ESCAPE, FOREIGN, MEMORY, TIME, TRACEBACK, Finding, Outcome, Watch

from ansible_collections.fleet.cdi.plugins.module_utils.hooks import main
from ansible_collections.fleet.cdi.plugins.module_utils.release import launcher

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # the one that hosts have
HOST_FILES = tuple(Path(path) for path in ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/passwd"))
SECRET = "secret-of-the-host-7c1f"
MOST_KIB = 64 << 10
SECONDS = 20  # for a hook, which gets less from --timeout
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


class Prepared:
    """What setup() made."""

    program = Path()


def setup(directory: Path) -> str:
    """Install a release."""
    if os.geteuid() != 0:
        return "needs root, as the hook has it"
    Prepared.program = installed(directory / "cdi")
    return ""


def installed(prefix: Path, commit: str = "") -> Path:
    """A release below `prefix`, of this checkout or of one of its commits; the path of its hook.

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
    code = f"from {launcher.__name__} import CDI_HOOK, texts; print(texts({PYTHON!r}, {{}})[CDI_HOOK], end='')"
    made = subprocess.run(
        [PYTHON, "-c", code], env={"PYTHONPATH": str(prefix)}, cwd="/", capture_output=True, text=True, check=True
    )
    program = prefix / "bin" / launcher.CDI_HOOK
    program.parent.mkdir()
    program.write_text(made.stdout)
    program.chmod(0o755)
    subprocess.run([PYTHON, "-m", "compileall", "-q", str(rooms)], cwd="/", check=True)
    return program


def attack(seed: int, arena: Path) -> Outcome:
    """One image, one hook."""
    rng = random.Random(seed)
    root, outside = arena / "bundle/root", arena / "outside"
    root.mkdir(parents=True)
    (outside / "folder").mkdir(parents=True)
    (outside / "secret").write_text(SECRET)
    (outside / "secret").chmod(0o600)
    (outside / "folder/libhost.so.1.0").write_bytes(hostile_image.elf(random.Random(0)))
    tricks = hostile_image.fill(rng, root, outside)
    words = hostile_image.words(rng, outside)
    (arena / "bundle/config.json").write_text(json.dumps({"root": {"path": "root"}}))
    watch = Watch([outside, arena / "bundle/config.json", *HOST_FILES])
    with hostile_image.swapping(rng, root, outside):
        findings, peak, said = started(arena, words)
    findings += watch.findings()
    findings += shown(root, said)
    return Outcome(tuple(findings), peak, (f"tricks: {', '.join(tricks)}", f"words: {words}", f"said: {said!r}"))


def started(arena: Path, words: list[str]) -> tuple[list[Finding], int, str]:
    """Start the hook; what is wrong, its memory in KiB, and what it said."""
    report = arena / "report"
    state = json.dumps({"ociVersion": "1.0.2", "id": "one", "status": "created", "bundle": str(arena / "bundle")})
    command = [PYTHON, "-IS", "-c", METER, str(report), str(Prepared.program), *words, f"--timeout={TIMEOUT}"]
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
