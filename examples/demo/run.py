# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo`: from a bare checkout to a container that sees its device. `make demo-undo` takes it back.

run.py          provision this machine, show its devices, give one to a container
run.py FILE     the same with this archive of the collection, instead of one that is built from the checkout
run.py undo     take everything back

For an ordinary user everything lies below build/demo. Root's specs are in /var/run/cdi, where every runtime looks, and
all else in /var/lib/fleet-cdi/demo: a checkout often belongs to an ordinary user, who could change there at any moment
what root runs and believes. Not below /run: Debian lets no program there run (noexec), and undo needs the record of the
demo also after a reboot. Every checkout finds it there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Optional

CHECKOUT = Path(__file__).resolve().parents[2]
IN_CHECKOUT = (CHECKOUT / "build/demo").resolve()
ROOT = os.geteuid() == 0
DEMO = Path("/var/lib/fleet-cdi/demo") if ROOT else IN_CHECKOUT
SPECS = "/var/run/cdi" if ROOT else str(DEMO / "cdi")
BIN = DEMO / "venv/bin"
COLLECTIONS = DEMO / "collections"
FLEET_CDI = DEMO / "opt/cdi/bin/fleet-cdi"
ROOTFS = DEMO / "rootfs"
PACKAGES = ("ansible-core>=2.17", "jsonschema", "pyudev")
SHOWN = 4  # rows of the table for each kind
SECONDS = 120  # for a command whose output counts; a container takes less than one
TRIES = 5  # to see what a container prints
SAID = 10  # lines of what a command said before it failed

# How to start a container: plainly, or as machines need it that are containers themselves.
# (options of podman, of podman run)
LIMITS = ["--network=none", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
WAYS: list[tuple[list[str], list[str]]] = [
    ([], ["--network=none"]),
    (["--runtime=runc"], LIMITS),
    (["--runtime=crun"], [*LIMITS, "--cgroups=disabled"]),
]
CLAIM, CLAIMED = "job-42", "fleet.cdi/tty"  # the claim of the demo, and the kind of which it is
LIST = "find /dev ! -type d | sort; echo; env"  # in the container


class Tried(NamedTuple):
    """The result of a command."""

    status: int  # 0: it did its work
    text: str  # what it printed
    problem: str  # why it failed, if it did


class Seen(NamedTuple):
    """The nodes and variables in a container."""

    nodes: set[str]
    variables: set[str]


def main(arguments: list[str]) -> int:
    """Run the demo, or undo it; returns the exit code."""
    os.umask(0o022)  # what root made here is trusted only if nobody else can write to it
    if not ROOT and DEMO.exists() and DEMO.stat().st_uid != os.geteuid():
        fail(f"{DEMO} belongs to user {DEMO.stat().st_uid}: have that user run `make demo-undo` first.")
    if arguments == ["undo"]:
        return undo()
    prepare([os.path.abspath(path) for path in arguments])
    step("Provision this machine: ansible-playbook fleet.cdi.provision")
    if play("fleet.cdi.provision", DEMO) != 0:
        return 1
    step("The devices of this machine that containers can ask for now")
    table()
    say(
        f"\nSpecs are in {SPECS}"
        + (f", gone at reboot; all else is in {DEMO}." if ROOT else ": as an ordinary user in a directory of your own.")
    )
    devices: list[dict[str, Any]] = json.loads(output([str(FLEET_CDI), "devices", "--json"]))["devices"]
    if not devices:
        say("This machine has none of the devices in examples/demo/inventory.yml: no container to show.")
        return 0
    device = next((item for item in devices if item["env"]), devices[0])
    name = f"{device['kind']}={device['names'][0]}"
    step(f"Give one to a container: {name}")
    own = [] if ROOT else [f"--cdi-spec-dir={SPECS}"]
    say("  " + shlex.join(["podman", *own, "run", "--rm", "--device", name, "IMAGE"]))
    reason = left_out()
    if reason:
        say(f"Not run here: {reason}")
        return 0
    if container(name, device, own) != 0:
        return 1
    return claim(own) if ROOT and any(one["kind"] == CLAIMED for one in devices) else 0


def claim(own: list[str]) -> int:
    """Have a console granted to a container by a name of its own, and given back."""
    step("Let an executable choose: claim a console for a job")
    # Where a host has it below /etc/cdi, the demo has a directory of its own.
    conf = {"resource_type": "tty", "name": "consoles", "plugin": "generic-tty", "config_dir": str(DEMO / "etc")}
    conf.update(device_list=str(DEMO / "inventory.json"), state_dir=str(DEMO / "state"), prefix=str(DEMO / "opt/cdi"))
    conf["args"] = {"num_system_reserved": 12}
    ansible = [str(BIN / "python"), "-m", "ansible", "adhoc", "-i", str(CHECKOUT / "examples/demo/inventory.yml")]
    quiet(
        [
            *ansible,
            "-e",
            json.dumps({"demo_dir": str(DEMO)}),
            "-m",
            "fleet.cdi.cdi_plugin",
            "-a",
            json.dumps(conf),
            "all",
        ]
    )
    command = [str(FLEET_CDI), "--spec-dir", SPECS, "claim"]
    name = output([*command, "add", CLAIM, "tty:1", "--reuse"]).strip()
    say(f"  fleet-cdi claim add {CLAIM} tty:1")
    try:
        (found,) = json.loads(output([*command, "list", "--json"]))["claims"]
        nodes = [{"path": node["path"], "container_path": ""} for node in found["nodes"]]
        if container(name, {"nodes": nodes, "env": []}, own) != 0:
            return 1
    finally:
        given = output([*command, "del", CLAIM]).strip()
    say(f"  fleet-cdi claim del {CLAIM}\n{given}")
    return 0


def prepare(archives: list[str]) -> None:
    """Make the demo's own environment, and install the collection into it: from these archives, or built here."""
    stamp = (
        DEMO / "venv" / "-".join(re.sub("[^a-z0-9.]+", "-", item) for item in (*PACKAGES, f"{sys.version_info[:2]}"))
    )
    if not stamp.exists():
        step(f"Make a Python environment in {BIN.parent}")
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(BIN.parent)], check=False, stdout=sys.stderr
        )
        if made.returncode:
            fail("Python can't make an environment; on Debian and Ubuntu: apt install python3-venv")
        quiet([str(BIN / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", *PACKAGES])
        stamp.touch()
    galaxy = [str(BIN / "ansible-galaxy"), "collection"]
    if archives:
        step(f"Install {' '.join(archives)} into {COLLECTIONS}")
    else:
        step(f"Build the collection and install it into {COLLECTIONS}")
        shutil.rmtree(DEMO / "dist", ignore_errors=True)
        quiet([*galaxy, "build", "--output-path", str(DEMO / "dist"), str(CHECKOUT)])
        archives = [str(path) for path in (DEMO / "dist").glob("fleet-cdi-*.tar.gz")]
    quiet([*galaxy, "install", "--force", "--no-deps", "--offline", "--collections-path", str(COLLECTIONS), *archives])


def undo() -> int:
    """Take back what the playbook did, then what the demo itself made; also what an older root's demo has here."""
    status = undone(DEMO)
    if not ROOT or not IN_CHECKOUT.exists():
        return status
    user, other = IN_CHECKOUT.stat().st_uid, changeable(IN_CHECKOUT.parent)
    if user != 0:
        say(f"{IN_CHECKOUT} belongs to user {user}: run `make demo-undo` as that user.")
        return status
    if other:
        say(
            f"{IN_CHECKOUT} stays: an older demo made it as root, but other users can change {other}, so nothing in it "
            f"is run or trusted. Specs of it in {SPECS} are gone at the next boot. Look at it, then remove it: "
            + shlex.join(["rm", "-r", str(IN_CHECKOUT)])
        )
        return 1
    return max(status, undone(IN_CHECKOUT))


def undone(demo: Path) -> int:
    """Take one demo back; returns the exit code."""
    if (demo / "collections").exists():
        step("Take everything back: ansible-playbook fleet.cdi.remove")
        if play("fleet.cdi.remove", demo) != 0 or (demo / "state/manifest.json").exists():
            say(f"Something was left; {demo} stays, so that {demo}/opt/cdi/bin/fleet-cdi undo --force takes it back.")
            return 1
    if demo.exists():
        shutil.rmtree(demo)
    if ROOT and demo == DEMO:
        with suppress(OSError):  # not there, or not the demo's alone
            demo.parent.rmdir()
    say(f"Nothing of the demo is left in {SPECS} and {demo}.")
    return 0


def changeable(directory: Path) -> Optional[Path]:
    """The directory on the way to this one that others than root can change, if there is one."""
    for at in (directory, *directory.parents):
        found = at.stat()
        if found.st_uid != 0 or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
            return at
    return None


def play(playbook: str, demo: Path) -> int:
    """Run a playbook of the collection that is installed in `demo` on this machine."""
    program = [str(demo / "venv/bin/python"), "-m", "ansible", "playbook"]
    command = [*program, "-i", str(CHECKOUT / "examples/demo/inventory.yml"), playbook]
    variables = json.dumps({"demo_dir": str(demo), "cdi_host_spec_dir": SPECS})
    return subprocess.run([*command, "-e", variables], check=False, env=environment(demo), cwd=demo).returncode


def environment(demo: Path) -> dict[str, str]:
    """No settings of the user's, and nothing of Ansible's outside of `demo`."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON", "VIRTUAL_ENV"))
    }
    return {
        **kept,
        "ANSIBLE_CONFIG": str(CHECKOUT / "examples/demo/ansible.cfg"),
        "ANSIBLE_HOME": str(demo / "ansible"),
        "ANSIBLE_COLLECTIONS_PATH": str(demo / "collections"),
        "LC_ALL": "C.UTF-8",
    }


def table() -> None:
    """The devices, with the first few of each kind."""
    shown: dict[str, int] = {}
    rows = output([str(FLEET_CDI), "devices"]).partition("\n\n")[0]
    for line in rows.splitlines():
        kind = line.partition("=")[0]
        shown[kind] = shown.get(kind, 0) + 1
        if shown[kind] <= SHOWN or "=" not in line:
            say(line)
    more = sum(count - SHOWN for kind, count in shown.items() if count > SHOWN)
    if more:
        say(f"... and {more} more of the same kinds: {FLEET_CDI} devices")


def left_out() -> Optional[str]:
    """Return the reason if no container can run here."""
    if not shutil.which("podman"):
        return "podman is not installed (apt install podman)."
    if not static_busybox():
        return "the container's only program is a static busybox, which is not installed (apt install busybox-static)."
    if not ROOT and "--cdi-spec-dir" not in output(["podman", "--help"]):
        version = output(["podman", "--version"]).strip()
        return f"an ordinary user needs podman >= 5.5, for --cdi-spec-dir; this is {version}. Root needs 4.1."
    return None


def static_busybox() -> Optional[str]:
    """The machine's busybox, if it needs no libraries: a dynamic program names its loader at the start of the file."""
    path = shutil.which("busybox")
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return None if b"/ld-" in file.read(4096) else path
    except OSError:
        return None


def container(name: str, device: dict[str, Any], own: list[str]) -> int:
    """Run a container without the device and one with it: what differs has to be exactly the device."""
    busybox = static_busybox()
    for empty in ("bin", "dev", "proc", "sys", "etc", "run", "tmp"):
        (ROOTFS / empty).mkdir(parents=True, exist_ok=True)
    if busybox:
        shutil.copy2(busybox, ROOTFS / "bin/busybox")
    for applet in ("sh", "find", "sort", "env"):
        if not (ROOTFS / "bin" / applet).is_symlink():
            (ROOTFS / "bin" / applet).symlink_to("busybox")
    # podman's own storage stays untouched. A runroot of more than 50 characters it refuses: a short directory, for now.
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-", ignore_cleanup_errors=True) as directory:
        storage = [f"--{name}={directory}/{name}" for name in ("root", "runroot", "tmpdir")]
        return compare(name, device, own, storage)


def compare(name: str, device: dict[str, Any], own: list[str], storage: list[str]) -> int:
    """Run the two containers."""
    problems = []
    for options, of_run in WAYS:
        start = [*own, *options, "run", "--rm", *of_run]
        bare = listing(["podman", *storage, *start, "--rootfs", str(ROOTFS), "sh", "-c", LIST])
        if bare.status == 0:
            break
        problems.append(bare.problem)
    else:
        say(f"{shutil.which('podman')} can't start any container here:\n  " + "\n  ".join(dict.fromkeys(problems)))
        say("Repair podman and run `make demo` again. The specs are written; `make demo-undo` takes them back.")
        return 1
    command = [*start, "--device", name, "--rootfs", str(ROOTFS), "sh", "-c", LIST]
    say("Run here, with a root directory that holds nothing but busybox:\n" + wrapped(["podman", *command]))
    without, having = seen(bare.text), seen(printed(command, listing(["podman", *storage, *command])))
    nodes, variables = sorted(having.nodes - without.nodes), sorted(having.variables - without.variables)
    say("More than a container without it, it sees:\n  " + "\n  ".join(nodes + variables))
    expected = {node["container_path"] or node["path"] for node in device["nodes"]}
    if set(nodes) != expected or set(variables) != set(device["env"]) or without.nodes - having.nodes:
        say(f"That is wrong: expected {sorted(expected)} and {device['env']}")
        return 1
    say("Exactly its device.")
    return 0


def seen(text: str) -> Seen:
    """Parse the output of LIST, without the lines that differ from container to container."""
    nodes, _empty, variables = text.partition("\n\n")
    return Seen(set(nodes.split()), {line for line in variables.splitlines() if not line.startswith("HOSTNAME=")})


def listing(command: list[str]) -> Tried:
    """Run a container that prints LIST. podman may lose what a brief container prints; then it runs again."""
    for _time in range(TRIES):
        done = attempt(command)
        if done.status or all(seen(done.text)):
            return done
    return Tried(1, "", f"{TRIES} containers ended well, and podman lost what they printed")


def wrapped(command: list[str]) -> str:
    """`command` over several lines, ready to be pasted into a shell."""
    lines = textwrap.wrap(shlex.join(command[:-1]), 100, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent(" \\\n".join([*lines, shlex.quote(command[-1])]), "  ")


def output(command: list[str]) -> str:
    """Return the output of `command`; end the demo if it fails."""
    return printed(command, attempt(command))


def printed(command: list[str], done: Tried) -> str:
    """Return what `command` printed; end the demo if it failed."""
    if done.status:
        fail(f"{shlex.join(command)}: {done.problem}")
    return done.text


def attempt(command: list[str]) -> Tried:
    """Run `command`, and return its result also if it can't be run."""
    program = shutil.which(command[0]) or command[0]  # else one that can't be run makes room for the next of the PATH
    try:
        done = subprocess.run(
            [program, *command[1:]],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
        )
    except OSError as error:
        return Tried(126, "", f"can't be run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Tried(124, "", f"did not end within {SECONDS} seconds")
    said = (done.stderr or done.stdout).strip().splitlines()
    return Tried(done.returncode, done.stdout, "\n  ".join([f"exit code {done.returncode}", *said[-SAID:]]))


def quiet(command: list[str]) -> None:
    """Run a command of the environment and show what it prints only if it fails."""
    DEMO.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command, check=False, env=environment(DEMO), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        fail(f"{shlex.join(command)}: exit code {done.returncode}\n{done.stdout}")


def step(text: str) -> None:
    """Announce the next step."""
    say(f"\n==> {text}")


def say(text: str) -> None:
    """Print one line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(text: str) -> NoReturn:
    """End the demo."""
    raise SystemExit(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
