# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that stands in for a broken ldconfig, and tries to get out of where ldconfig is run."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.hooks import confined_ldconfig, seccomp
from ansible_collections.fleet.cdi.tests.unit.limits import LONGEST, gone

from .conftest import COLLECTIONS

LDCONFIG = "/sbin/ldconfig"
SOURCE = Path(__file__).with_name("stand_in.c")
SECONDS = 20
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NEWER = {"fchmodat2": "452"}  # Linux 6.6, arch/x86/entry/syscalls/syscall_64.tbl; the same on all machines
# Attack -> what it is aimed at, of the names that `aims` has.
ATTACKS = {
    "handle": "handle",
    "kill": "process",
    "ptrace": "process",
    "memory of another": "memory",
    "socket": "",
    "netlink": "",
    "local socket": "",
    "mount": "",
    "unmount": "",
    "proc": "",
    "node": "",
    "chroot": "",
    "owner": "",
    "fork": "",
    "clone": "",
    "namespace": "",
    "host name": "",
    "shared memory": "",
    "memory file": "",
    "bpf": "",
    "keys": "",
    "heap": "",
    "private map": "",
    "shared map": "",
    "large file": "",
    "core dump": "",
    "host": "secret",
    "environment": "",
    "descriptor": "descriptor",
}
# What an attack shows only in a place of its own, or would leave behind on the machine.
NOT_OUTSIDE = (
    "mount",
    "unmount",
    "node",
    "chroot",
    "owner",
    "host name",
    "shared memory",
    "large file",
    "core dump",
    "handle",
)

# What harms no one outside (sockets of an empty network, say), and what only the list of system calls stops.
LEFT_TO_SECCOMP = (
    "socket",
    "netlink",
    "local socket",
    "fork",
    "clone",
    "shared memory",
    "memory file",
    "bpf",
    "keys",
    "shared map",
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces: needs root"),
    pytest.mark.counterpart("gcc"),
]


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    """The program."""
    path = tmp_path_factory.mktemp("stand-in") / "ldconfig"
    subprocess.run(["gcc", "-O1", "-static", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def caged(bundle, stand_in):
    """Run an attack as ldconfig is run: caged(attack, argument) -> (status, said)."""
    bundle.fill({"proc": {"mode": 0o755}, "sys": {"mode": 0o755}, "hidden/file": "text", "hidden": {"mode": 0o000}})

    def run(*words, seconds=SECONDS):
        program, root = confined_ldconfig.copy(str(stand_in)), os.fsencode(bundle.root)
        return confined_ldconfig.run(program, ["ldconfig", *words], root, os.stat(root), seconds)

    return run


def handle_of(path):
    """The file handle by which CAP_DAC_READ_SEARCH opens a file from anywhere on its file system."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(136)
    ctypes.c_uint32.from_buffer(buffer).value = 128
    mount = ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), buffer, ctypes.byref(mount), 0):
        pytest.skip("this file system has no file handles")
    size, sort = (int.from_bytes(buffer.raw[at : at + 4], sys.byteorder) for at in (0, 4))
    return f"{sort}:{buffer.raw[8 : 8 + size].hex()}"


@pytest.fixture
def aims(bundle, monkeypatch):
    """Something of the host for each attack."""
    monkeypatch.setenv("SECRET", "1")
    secret = bundle.outside / "secret"
    handle = os.open(secret, os.O_RDONLY)
    os.set_inheritable(handle, True)
    with subprocess.Popen(["sleep", "1000"]) as other:
        yield {
            "": "",
            "handle": handle_of(secret),
            "process": str(other.pid),
            "memory": f"/proc/{other.pid}/mem",
            "secret": str(secret),
            "descriptor": str(handle),
        }
        other.kill()
    os.close(handle)


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_gets_out(caged, aims, attack):
    status, said = caged(attack, aims[ATTACKS[attack]])
    assert status not in (0, 99, 127), said


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack not in LEFT_TO_SECCOMP])
def test_most_is_stopped_without_the_list_of_system_calls(caged, aims, attack, monkeypatch):
    """So it is on machines other than x86_64 and aarch64; and no part of the cage leans on another one."""
    monkeypatch.setattr(seccomp, "supported", lambda: False)
    status, said = caged(attack, aims[ATTACKS[attack]])
    assert status not in (0, 99, 127), said


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack not in NOT_OUTSIDE])
def test_the_same_attack_gets_through_without_the_cage(stand_in, aims, attack):
    """The control."""
    done = subprocess.run([stand_in, attack, aims[ATTACKS[attack]]], check=False, close_fds=False)
    assert done.returncode == 0


def test_it_keeps_two_capabilities(caged, monkeypatch):
    monkeypatch.setattr(seccomp, "supported", lambda: False)  # the list does not have capget(2)
    dac_override, fowner = 1 << 1, 1 << 3  # linux/capability.h
    kept = f"{dac_override | fowner:x}"
    assert caged("capabilities") == (0, f"{kept} {kept} 0, 0 0 0; {kept}\n")


def test_a_file_handle_opens_what_is_elsewhere_for_root(stand_in, aims, bundle):
    done = subprocess.run(["chroot", bundle.root, "/ldconfig", "handle", aims["handle"]], check=False)
    assert done.returncode != 0  # it is not there
    shutil.copy(stand_in, bundle.root / "ldconfig")
    assert subprocess.run(["chroot", bundle.root, "/ldconfig", "handle", aims["handle"]], check=False).returncode == 0


def test_files_of_the_container_are_at_hand(caged, bundle):
    assert caged("files") == (0, "")
    assert (bundle.root / "newer").read_text() == "text"


def test_files_behind_a_link_that_is_named_as_the_kernels_are_left_alone(bundle, stand_in):
    bundle.fill({"hidden/file": "text", "proc": {"link": "hidden"}, "sys": {"link": "/hidden"}})
    program, root = confined_ldconfig.copy(str(stand_in)), os.fsencode(bundle.root)
    assert confined_ldconfig.run(program, ["ldconfig", "files"], root, os.stat(root), SECONDS) == (0, "")


def test_a_root_that_is_made_writable_has_no_devices_and_no_set_user_ids(bundle):
    code = "import os, sys; sys.path.insert(0, sys.argv[1]); "
    code += "from ansible_collections.fleet.cdi.plugins.module_utils.hooks import confined_ldconfig; "
    code += "confined_ldconfig.make_writable(sys.argv[2].encode()); print(os.statvfs(sys.argv[2]).f_flag)"
    mounted = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    words = [sys.executable, "-c", code, str(COLLECTIONS.parent), str(bundle.root)]
    command = ["unshare", "--mount", "sh", "-c", mounted, "sh", str(bundle.root), *words]
    flags = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert flags & (os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV) == os.ST_NOSUID | os.ST_NODEV


def test_it_ends_with_its_processor_time(caged):
    assert caged("spin", seconds=1)[0] == -signal.SIGKILL


def test_a_crash_and_a_status_are_told(caged):
    assert caged("crash")[0] < 0
    assert caged("exit", "3") == (3, "")


def test_what_it_says_is_bounded(caged):
    assert caged("say")[1] == "\x1b[31mred\n/opt/lib: a line\n"
    assert len(caged("say much")[1]) == confined_ldconfig.MOST_SAID


def test_a_hook_shows_it_without_control_characters(bundle, stand_in):
    done = bundle.run("update-ldcache", "--ldconfig-path", str(stand_in))  # it takes -f for an attack, and ends with 99
    assert done.returncode == 1 and "exit status 99): it said nothing" in done.stderr


def test_later_processes_are_the_callers_own(caged):
    assert caged("exit", "0")[0] == 0
    assert os.readlink("/proc/self/ns/pid_for_children") == os.readlink("/proc/self/ns/pid")
    assert subprocess.run(["true"], check=False).returncode == 0


def test_the_mounts_are_the_childs_alone(caged, bundle):
    assert caged("exit", "0")[0] == 0
    assert str(bundle.root) not in Path("/proc/self/mounts").read_text()


def test_the_copy_can_not_be_changed():
    program = confined_ldconfig.copy(LDCONFIG)
    for attempt in (lambda: os.pwrite(program, b"x", 0), lambda: os.ftruncate(program, 0)):
        with pytest.raises(PermissionError):
            attempt()
    os.close(program)


def test_a_script_around_the_program_is_not_what_runs(tmp_path):
    """Ubuntu's ldconfig is a script, which would need a shell in the container."""
    (tmp_path / "ldconfig").write_text("#!/bin/sh")
    (tmp_path / "ldconfig.real").write_text("the program")
    with os.fdopen(confined_ldconfig.copy(str(tmp_path / "ldconfig"))) as copied:
        copied.seek(0)
        assert copied.read() == "the program"


def test_it_ends_with_whoever_waits_for_it(bundle, stand_in):
    bundle.fill({"proc": {"mode": 0o755}})
    code = "import os, sys; sys.path.insert(0, sys.argv[1]); "
    code += "from ansible_collections.fleet.cdi.plugins.module_utils.hooks import confined_ldconfig; "
    code += "program, root = confined_ldconfig.copy(sys.argv[2]), sys.argv[3].encode(); "
    code += "confined_ldconfig.run(program, ['ldconfig', 'spin'], root, os.stat(root), 600)"
    words = [sys.executable, "-c", code, str(COLLECTIONS.parent), str(stand_in), str(bundle.root)]
    with subprocess.Popen(words) as running:
        listed = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        command, deadline = b"", time.monotonic() + LONGEST
        while not command.startswith(b"ldconfig"):
            assert time.monotonic() < deadline
            child = listed.read_text().strip()
            command = Path(f"/proc/{child}/cmdline").read_bytes() if child else b""
        running.kill()
    assert gone(int(child))


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_of_system_calls_are_those_of_the_kernel(machine):
    if not HEADERS[machine].exists():
        pytest.skip(f"no {HEADERS[machine]}")
    told = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text(), re.MULTILINE)
    found = {**NEWER, **dict(told)}
    column = list(seccomp.ARCHITECTURES).index(machine)
    numbers = {**{name: row[column] for name, row in seccomp.CALLS.items()}, "mmap": seccomp.MMAP[machine]}
    alias = {"newfstatat": "fstatat"} if machine == "aarch64" else {}  # the names of its table's own
    wrong = {
        name: (number, found.get(alias.get(name, name)))
        for name, number in numbers.items()
        if number is not None and found.get(alias.get(name, name)) not in (str(number), None)
    }
    assert not wrong and len(numbers) > 50


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_names_of_architectures_are_those_of_the_kernel(machine):
    headers = [Path("/usr/include/linux", name) for name in ("audit.h", "elf-em.h")]
    if not all(path.exists() for path in headers):
        pytest.skip(f"no {headers[0]}")
    text = "".join(path.read_text() for path in headers)
    words = dict(re.findall(r"^#define\s+(\w+)\s+(.+?)\s*(?:/\*.*)?$", text, re.MULTILINE))
    named = words[f"AUDIT_ARCH_{machine.upper()}"].strip("()").split("|")
    assert seccomp.ARCHITECTURES[machine] == sum(int(words.get(words[name], words[name]), 0) for name in named)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(sys, "maxsize", 2**31 - 1), (sys, "byteorder", "big"), (os, "uname", lambda: os.uname_result("sn12m"))],
)
def test_no_filter_for_other_programs_and_machines(monkeypatch, module, name, value):
    assert seccomp.supported() == (os.uname().machine in seccomp.ARCHITECTURES)
    monkeypatch.setattr(module, name, value)
    assert not seccomp.supported()


def test_the_filter_has_a_program_for_each_architecture():
    for machine in seccomp.ARCHITECTURES:
        content = seccomp.program(machine)
        assert len(content) % 8 == 0 and len(content) // 8 < 4096
