# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installing where it can't be finished: no permission, a full disk, a limit, SIGKILL at every step."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, guard


def in_child(act):
    """Run `act` in a process of its own; returns what it raised, as text, or ""."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            act()
        except CdiError as error:
            said = str(error)
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@needs_root
def test_symlink_of_another_user_is_refused(target):
    (target.directory / "real").mkdir()
    link = target.directory / "opt"
    link.symlink_to("real")
    os.lchown(link, 65534, 65534)
    with pytest.raises(CdiError, match=rf"{re.escape(str(link))} is a symlink of user 65534 to real"):
        target.install(target.release())
    assert not list((target.directory / "real").iterdir())


@needs_root
def test_user_without_permission_is_told(target):
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        target.prefix = f"{directory}/cdi"
        release = target.release()

        def act():
            os.setgid(65534)
            os.setuid(65534)
            target.install(release)

        said = in_child(act)
        assert said.startswith(
            f"{directory}/cdi/bin: can't write into it: Permission denied. Run as root (`sudo`, or `become: true` in a "
            "playbook)"
        ), said
        assert os.listdir(directory) == []


# --- full disks


def test_limit_on_file_sizes(target):
    one, two = target.release("1.0.0"), target.release("2.0.0", extra=f"a = '{'x' * 100_000}'\n")
    target.install(one)
    before = target.tree()

    def act():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        target.install(two)

    said = in_child(act)
    assert "File too large. Lift the limit on file sizes and run again; what was active before still is." in said
    assert target.tree() == before
    target.install(two)
    assert target.says() == two.id


@pytest.fixture
def small_disk(target):
    """A file system of its own under the prefix; call with a size in KiB to make it that large."""
    mount = target.directory / "opt"
    mount.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "fleet-cdi-test", str(mount)]
    if shutil.which("mount") is None or subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small file system")
    yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}k", str(mount)], check=True)
    subprocess.run(["umount", str(mount)], check=True)


def test_full_disk_at_any_point(target, small_disk):
    one, two = target.release("1.0.0"), target.release("2.0.0")
    target.install(one)
    before = target.tree()
    used = shutil.disk_usage(target.directory / "opt").used // 1024
    refused = 0
    for more in range(0, 1024, 8):
        small_disk(used + more)
        try:
            target.install(two)
        except CdiError as error:
            refused += 1
            assert "No space left on device" in str(error)
            assert target.tree() == before
            assert target.says() == one.id
        else:
            break
    assert refused > 5
    assert target.says() == two.id
    assert os.readlink(target.lib / "previous") == one.id


# --- killed, and two at a time

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def changes(event, arguments):
    """Whether an audit event is a step that changes files, or starts a process."""
    if event == "open":
        return bool(arguments[2] & WRITES)
    return event in (
        [
            "os.mkdir",
            "os.rename",
            "os.remove",
            "os.rmdir",
            "os.symlink",
            "os.chmod",
            "os.truncate",
            "shutil.rmtree",
            "subprocess.Popen",
        ]
    )


def run_until(step, act):
    """Run `act` in a process that is killed before its step number `step`; returns the steps that it took."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        taken = 0

        def hook(event, arguments):
            nonlocal taken
            if changes(event, arguments):
                if taken == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                taken += 1
                os.write(writing, f"{event}\n".encode())

        sys.addaudithook(hook)
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        taken = file.read().splitlines()
    assert os.waitpid(child, 0)[1] == (0 if step is None else signal.SIGKILL)
    return taken


def telling(steps):
    """The numbers of the steps to be killed at: all of them nightly.

    Otherwise the first, the last, and a third of those that are left of equal neighbours.
    """
    if os.environ.get("HYPOTHESIS_PROFILE") == "nightly":
        return range(len(steps))
    alike = ("open", "os.mkdir", "os.chmod", "os.remove", "os.rmdir")
    edges = {*range(3), *range(len(steps) - 5, len(steps))}
    found = [n for n, step in enumerate(steps) if step not in alike or step not in steps[max(n - 9, 0) : n]]
    return sorted({*edges, *found[::3]} & {*range(len(steps))})


def fresh(target):
    one = target.release("1.0.0")
    return lambda: target.install(one)


def upgrade(target):
    one, two, three = (target.release(version) for version in ("1.0.0", "2.0.0", "3.0.0"))
    target.install(one)
    target.install(two)
    return lambda: target.install(three)


def repair(target):
    one = target.release("1.0.0")
    target.install(one)
    (target.lib / one.id / build.ROOT / "records.py").write_text("CdiError = OSError\n")
    return lambda: target.install(one)


def relaunch(target):
    one = target.release("1.0.0")
    target.install(one)
    return lambda: target.install(one, state_dir="/srv/cdi")


def rollback(target):
    target.install(target.release("1.0.0"))
    target.install(target.release("2.0.0"))
    return target.rollback


def removal(target):
    target.install(target.release("1.0.0"))
    target.install(target.release("2.0.0"))
    return target.remove


@pytest.mark.parametrize("prepare", [fresh, upgrade, repair, relaunch, rollback, removal])
def test_killed_at_every_step_then_run_again(target, prepare):
    act = prepare(target)
    start, saved = target.directory / "opt", target.directory / "saved"
    start.mkdir(exist_ok=True)
    shutil.copytree(start, saved, symlinks=True)
    active = guard.active(target.prefix)
    steps = run_until(None, act)
    wanted, goal = target.tree(), guard.active(target.prefix)
    for step in telling(steps):
        shutil.rmtree(start, ignore_errors=True)
        shutil.copytree(saved, start, symlinks=True)
        assert run_until(step, act) == steps[:step]
        found = guard.active(target.prefix)
        assert found in (active, goal)
        # While a damaged release is replaced there is a moment without one; and removal takes the command first.
        if found and prepare not in (repair, removal):
            assert target.says() == found
        act()
        now = target.tree()
        # Which directories we made is not known if we were killed before noting it, or after removing the note.
        if prepare is fresh:
            record = "opt/cdi/lib/.fleet-cdi.json"
            assert set(now) - {record} == set(wanted) - {record}
        elif prepare is removal:
            assert set(now) <= {"opt/cdi", "opt/cdi/bin", "opt/cdi/lib"}
        else:
            assert now == wanted, f"killed before step {step}, {steps[step]}"
        assert not act().changed
