# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks that are killed before and after each system call, as by a runtime's time limit, and run again.

Nobody undoes a hook: what it writes goes with the container, unless that is a volume. So a file is the old one or the
new one at each moment, what is left beside it is nothing that ldconfig reads, and the next hook does it all.
"""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest
import syscalls

from ansible_collections.fleet.cdi.plugins.module_utils.hooks import ldcache, profile
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.container_root import ContainerRoot

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as hooks have it")
LEFT = ".cdi-hook-"  # what the name of a leftover begins with


def drop_ins(inside: ContainerRoot) -> None:
    """A new drop-in, in a directory that may be missing, and a longer one in place of another."""
    ldcache.add(inside, ldcache.LAST, ["/lib", "/usr/lib"])
    ldcache.add(inside, ldcache.OURS, ["/opt/driver", "/opt/lib"])


def links(inside: ContainerRoot) -> None:
    """A link where there was none, and one in place of another."""
    inside.link("libcuda.so.1", "/opt/driver/libcuda.so")
    inside.link("libcuda.so.570", "/opt/driver/libcuda.so.1")


def application_profile(inside: ContainerRoot) -> None:
    """A profile for the GPUs whose nodes are there."""
    profile.write(inside)


OLD = {"etc/ld.so.conf.d/00-fleet-cdi.conf": "/opt/lib\n", "opt/driver/libcuda.so.1": "->libcuda.so.535"}
NEW = {
    drop_ins: {
        "etc/ld.so.conf.d/00-fleet-cdi.conf": "/opt/lib\n/opt/driver\n",
        "etc/ld.so.conf.d/zz-fleet-cdi.conf": "/lib\n/usr/lib\n",
    },
    links: {"opt/driver/libcuda.so": "->libcuda.so.1", "opt/driver/libcuda.so.1": "->libcuda.so.570"},
    application_profile: {profile.FILE.lstrip("/"): profile.TEXT.format(mask=1)},
}


def container(root: Path) -> Path:
    """The root directory of a container that has run before, with an older driver."""
    for name, held in OLD.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if held.startswith("->"):
            path.symlink_to(held[2:])
        else:
            path.write_text(held)
    (root / "dev").mkdir()
    os.mknod(root / "dev/nvidia0", stat.S_IFCHR, os.makedev(195, 0))
    return root


def everything(root: Path) -> dict[str, str]:
    """Path -> text of each file, and "->" with that of each symlink."""
    paths = [path for path in root.rglob("*") if path.is_symlink() or path.is_file()]
    return {
        str(path.relative_to(root)): f"->{os.readlink(path)}" if path.is_symlink() else path.read_text()
        for path in paths
    }


@pytest.mark.parametrize("work", NEW, ids=lambda work: work.__name__)
def test_a_killed_hook_leaves_whole_files_and_the_next_one_ends_its_work(work, tmp_path):
    why = syscalls.permitted()
    if why:
        pytest.skip(why)
    before, after = OLD, {**OLD, **NEW[work]}
    stop, met, left_some = 0, True, False
    while met:
        stop += 1
        root = container(tmp_path / str(stop))
        inside = ContainerRoot(os.fsencode(root))
        met = syscalls.run(lambda: work(inside), stop, lambda pid: os.kill(pid, signal.SIGKILL)).met  # noqa: B023
        found = everything(root)
        left = {name for name in found if os.path.basename(name).startswith(LEFT)}
        left_some = left_some or bool(left)
        for name in found.keys() - left:
            assert found[name] in (before.get(name), after.get(name)), f"killed at stop {stop}: {name}"
        assert before.keys() <= found.keys(), f"killed at stop {stop}"
        work(inside)
        assert {name: text for name, text in everything(root).items() if name not in left} == after
        os.close(inside.root)
    assert stop > 20 and everything(root) == after, "nothing is left by one that was not killed"
    assert left_some, "no kill came while a file was being made"


def test_ldconfig_does_not_read_what_is_left(tmp_path):
    """ld.so.conf includes *.conf."""
    inside = ContainerRoot(os.fsencode(tmp_path))
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf").write_text("include ld.so.conf.d/*.conf\n")
    (tmp_path / f"etc/ld.so.conf.d/{LEFT}0123456789abcdef").write_text("/of/a/killed/one\n")
    (tmp_path / "etc/ld.so.conf.d/a.conf").write_text("/of/the/image\n")
    assert ldcache._configured(inside) == {"/of/the/image"}
