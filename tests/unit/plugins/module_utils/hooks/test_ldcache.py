# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's real ldconfig in containers' root directories, and how little it may do there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.hooks import compat, confined_ldconfig, ldcache
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.container_root import ContainerRoot
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError
from ansible_collections.fleet.cdi.plugins.module_utils.release import launcher

from .conftest import COLLECTIONS, tree

LDCONFIG = "/sbin/ldconfig"
# Any library of this machine, by the name of its file: the soname is another one.
LIBRARY = next((path for path in Path("/usr/lib").glob("*-linux-gnu/libz.so.1.*")), None)
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists(LDCONFIG) or LIBRARY is None,
    reason="needs root, ldconfig and a library with a soname of its own",
)


def cached(root):
    """What a dynamic linker finds in the container's cache: name -> path."""
    copy = root.parent / "cache"
    copy.write_bytes((root / "etc/ld.so.cache").read_bytes())
    done = subprocess.run([LDCONFIG, "-C", str(copy), "-p"], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if "=>" in line]
    return {words[0]: words[-1] for words in lines}


def install(bundle, folder="opt/lib", **files):
    """A library in the container, as a spec mounts it, in an image like Debian's."""
    bundle.fill({"etc/debian_version": "12", **files})
    (bundle.root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(LIBRARY, bundle.root / folder)


def conf(bundle, name):
    return (bundle.root / "etc/ld.so.conf.d" / name).read_text().splitlines()


def test_a_library_is_found_by_its_soname(bundle):
    install(bundle)
    done = bundle.run("createContainer", "--folder", "/opt/lib")
    assert (done.returncode, done.stderr) == (0, "")
    assert cached(bundle.root) == {"libz.so.1": "/opt/lib/libz.so.1"}
    assert os.readlink(bundle.root / "opt/lib/libz.so.1") == LIBRARY.name
    assert (bundle.root / "etc/ld.so.conf").read_text() == "include /etc/ld.so.conf.d/*.conf\n"
    assert conf(bundle, "00-fleet-cdi.conf") == ["/opt/lib"]
    assert conf(bundle, "zz-fleet-cdi.conf")[-2:] == ["/lib", "/usr/lib"]


def test_again_changes_nothing_and_another_spec_adds(bundle):
    install(bundle)
    bundle.run("update-ldcache", "--folder", "/opt/lib")
    first = {name: held for name, held in tree(bundle.root).items() if not name.endswith("ld.so.cache")}
    assert bundle.run("update-ldcache", "--folder=/opt/lib").returncode == 0
    assert {name: held for name, held in tree(bundle.root).items() if not name.endswith("ld.so.cache")} == first
    install(bundle, "srv/lib")
    assert bundle.run("createContainer", "--folder", "/srv/lib").returncode == 0
    assert conf(bundle, "00-fleet-cdi.conf") == ["/opt/lib", "/srv/lib"]


def test_what_is_searched_anyway_is_not_named_again(bundle):
    """A directory in a drop-in goes over all that come later."""
    config = {
        "etc/ld.so.conf": "# a comment\ninclude ld.so.conf.d/*.conf\n/opt/lib/\n",
        "etc/ld.so.conf.d/a.conf": "/srv/lib\n",
    }
    install(bundle, **config)
    folders = ("/opt/lib", "/srv/lib", f"/usr/lib/{os.uname().machine}-linux-gnu", "/new")
    bundle.run("createContainer", *(word for folder in folders for word in ("--folder", folder)))
    assert conf(bundle, "00-fleet-cdi.conf") == ["/new"]
    assert (bundle.root / "etc/ld.so.conf").read_text() == config["etc/ld.so.conf"]
    assert cached(bundle.root)["libz.so.1"] == "/opt/lib/libz.so.1"


def test_other_images_have_other_directories(bundle):
    install(bundle)
    (bundle.root / "etc/debian_version").unlink()
    bundle.run("createContainer", "--folder", "/opt/lib")
    assert conf(bundle, "zz-fleet-cdi.conf") == ["/lib", "/usr/lib", "/lib64", "/usr/lib64"]


def test_musl_has_no_cache(bundle):
    bundle.fill({"lib/ld-musl-x86_64.so.1": "loader"})
    before = tree(bundle.root)
    done = bundle.run("createContainer", "--folder", "/opt/lib")
    assert done.returncode == 0 and "C library is musl, which has no cache" in done.stderr
    assert tree(bundle.root) == before


def test_a_configuration_that_is_a_symlink_to_the_hosts_is_the_containers_own(bundle):
    (bundle.outside / "folder/ld.so.conf").write_text("/of/the/host\n")
    install(bundle, **{"etc/ld.so.conf.d": {"link": "{outside}/folder"}})
    before = tree(bundle.outside)
    assert bundle.run("createContainer", "--folder", "/opt/lib").returncode == 0
    assert tree(bundle.outside) == before
    assert bundle.place("{outside}/folder/00-fleet-cdi.conf").read_text() == "/opt/lib\n"


def test_a_directory_of_libraries_that_leads_to_the_hosts_is_left_alone(bundle):
    """ldconfig makes links where it finds libraries: in the container's directories, and never in the host's."""
    shutil.copy(LIBRARY, bundle.outside / "folder")
    us = f"proc/{os.getpid()}/root"
    install(bundle, a={"link": "{outside}/folder"}, b={"link": f"/{us}{{outside}}/folder"}, proc={"mode": 0o755})
    subprocess.run(["mount", "-t", "proc", "proc", str(bundle.root / "proc")], check=True)
    try:
        before = tree(bundle.outside)
        assert os.path.exists(f"{bundle.root}/{us}{bundle.outside}/folder")
        done = bundle.run("createContainer", "--folder", "/a", "--folder", "/b", "--folder", "/opt/lib")
        assert done.returncode == 0, done.stderr
        assert tree(bundle.outside) == before
        assert list(cached(bundle.root).values()) == ["/opt/lib/libz.so.1"]
    finally:
        subprocess.run(["umount", str(bundle.root / "proc")], check=True)


@pytest.mark.parametrize("victim", ["outside", "/"])
def test_a_root_directory_that_is_replaced_meanwhile_is_not_entered(bundle, monkeypatch, victim):
    """As by a user in whose directory it lies (podman run --rootfs). ldconfig finds it by its path again."""
    install(bundle)
    (bundle.outside / "etc").mkdir()
    before, real = tree(bundle.outside), confined_ldconfig.copy
    host = os.stat("/etc/ld.so.cache")

    def swapping(path):
        bundle.root.rename(bundle.directory / "old")
        bundle.root.symlink_to(bundle.outside if victim == "outside" else victim)
        return real(path)

    monkeypatch.setattr(confined_ldconfig, "copy", swapping)
    container = ContainerRoot(os.fsencode(bundle.root))
    with pytest.raises(HookError, match="can't be run in the container: its root directory was replaced meanwhile"):
        ldcache.update(container, ["/opt/lib"], LDCONFIG, os.fsencode(bundle.root), 30)
    assert tree(bundle.outside) == before
    assert os.path.samestat(os.stat("/etc/ld.so.cache"), host)


def test_a_host_without_ldconfig_is_named(bundle):
    done = bundle.run("createContainer", "--folder", "/opt/lib", "--ldconfig-path", "/nonexistent/ldconfig")
    assert done.returncode == 1
    assert "/nonexistent/ldconfig: No such file or directory; expected the host's ldconfig" in done.stderr


def test_one_that_fails_is_shown(bundle):
    (bundle.root / "etc/ld.so.cache~").mkdir(parents=True)  # where ldconfig writes the new one
    done = bundle.run("createContainer", "--folder", "/opt/lib")
    assert done.returncode == 1 and "/sbin/ldconfig: failed for the container (exit status 1)" in done.stderr
    assert "ld.so.cache~" in done.stderr


@pytest.fixture
def mounted(bundle):
    """Mount something at the container's root directory."""

    def mount(*words):
        subprocess.run(["mount", *words, str(bundle.root)], check=True)

    yield mount
    subprocess.run(["umount", str(bundle.root)], check=True)


def test_a_container_that_may_not_write_gets_it_all_the_same_and_may_not_write_then(bundle, mounted):
    """crun has made it read-only when hooks run, runc has not."""
    mounted("--bind", "-o", "ro", str(bundle.root))
    done = bundle.run("createContainer", "--link", "a::/b", "--folder", "/opt/lib")
    assert (done.returncode, done.stderr, os.readlink(bundle.root / "b")) == (0, "", "a")
    assert (bundle.root / "etc/ld.so.cache").exists()
    with pytest.raises(OSError, match="Read-only"):
        (bundle.root / "file").touch()


@pytest.mark.parametrize("words", [["--folder", "/opt/lib"], ["--link", "a::/b"]])
def test_a_root_that_nobody_can_write(bundle, mounted, words):
    mounted("-t", "tmpfs", "-o", "ro", "none")
    done = bundle.run("createContainer", *words)
    assert done.returncode == 1 and "Read-only file system" in done.stderr


def elf(note):
    """An ELF file for 64 bits with a note of NVIDIA's, as small as it can be (elf(5)); None: without one."""
    names = b"\0.shstrtab\0.note.cuda.fwd_compatibility\0"
    owner, text = b"NVIDIA Corporation\0", (note or "").encode()
    body = len(owner).to_bytes(4, "little") + len(text).to_bytes(4, "little") + b"\1\0\0\0"
    body += owner + b"\0" * (-len(owner) % 8) + text + b"another note"
    parts = [(1, 3, names), *([] if note is None else [(11, 7, body)])]
    table, content = bytes(64), b""
    for name, type_, held in parts:
        fields = (
            [name, 4],
            [type_, 4],
            [0, 8],
            [0, 8],
            [64 + len(content), 8],
            [len(held), 8],
            [0, 4],
            [0, 4],
            [8, 8],
            [0, 8],
        )
        table += b"".join(value.to_bytes(size, "little") for value, size in fields)
        content += held
    head = b"\x7fELF\2\1\1".ljust(40, b"\0") + (64 + len(content)).to_bytes(8, "little") + bytes(10)
    head += (64).to_bytes(2, "little") + (len(parts) + 1).to_bytes(2, "little") + (1).to_bytes(2, "little")
    return head + content + table


NOTE = '{"Format": 1, "CUDA Version": "12.8", "Driver": [535, 550], "Device": [1]}'


class TestCudaCompatibility:
    @pytest.mark.parametrize(
        ("library", "note", "driver", "preferred"),
        [
            ("libcuda.so.570.86.15", NOTE, "550.54.15", True),
            ("libcuda.so.570.86.15", NOTE, "560.28.03", False),  # not one of those that it is for
            ("libcuda.so.550.54.14", NOTE, "550.54.15", False),  # older than the host's
            ("libcuda.so.550.54.15", NOTE, "550.54.15", False),
            ("libcuda.so.550.54.15", NOTE, "550.54", True),
            ("libcuda.so.570.86.15", None, "550.54.15", True),
            ("libcuda.so.550.86.15", None, "550.54.15", False),  # of the same series
            ("libcuda.so.570.86.15", "no JSON", "550.54.15", True),  # as if it had none
            ("libcuda.so.570.86.15", "[]", "550.54.15", True),
            ("libcuda.so.570.x", None, "550.54.15", False),
            ("libcuda.so.1", NOTE, "550.54.15", False),  # no version in its name
        ],
    )
    def test_the_containers_own_goes_first_where_it_is_meant_for_the_driver(
        self, bundle, library, note, driver, preferred
    ):
        bundle.fill({"usr/local/cuda": {"link": "/usr/local/cuda-12.8"}, "usr/local/cuda-12.8/compat": {"mode": 0o755}})
        (bundle.root / "usr/local/cuda-12.8/compat" / library).write_bytes(elf(note))
        done = bundle.run("createContainer", "--cuda-compat", driver, "--folder", "/opt/lib")
        assert (done.returncode, bundle.root.joinpath("etc/ld.so.conf.d/00-compat-fleet-cdi.conf").exists()) == (
            0,
            preferred,
        )
        if preferred:
            assert conf(bundle, "00-compat-fleet-cdi.conf") == ["/usr/local/cuda/compat"]
            assert bundle.run("enable-cuda-compat", f"--host-driver-version={driver}").returncode == 0
            assert conf(bundle, "00-compat-fleet-cdi.conf") == ["/usr/local/cuda/compat"]

    def test_an_image_without_one_is_left_alone(self, bundle):
        assert bundle.run("enable-cuda-compat", "--host-driver-version=550.54.15").returncode == 0
        assert tree(bundle.root) == {}

    def test_two_are_told(self, bundle):
        for library in ("libcuda.so.570.1", "libcuda.so.580.1"):
            bundle.fill({f"usr/local/cuda/compat/{library}": "elf"})
        done = bundle.run("enable-cuda-compat", "--host-driver-version=550.54.15")
        assert done.returncode == 0 and "has libcuda.so.570.1, libcuda.so.580.1; which one is meant" in done.stderr

    @pytest.mark.parametrize("size", [0, 3, 63, 64, 100, 150])
    def test_a_file_that_ends_too_early_has_no_note(self, tmp_path, size):
        (tmp_path / "lib").write_bytes(elf(NOTE)[:size])
        handle = os.open(tmp_path / "lib", os.O_RDONLY)
        assert compat.read_note(handle) is None
        os.close(handle)

    def test_the_version_of_cuda_decides_where_the_drivers_is_not_known(self):
        note = {"CUDA Version": "12.8", "Driver": [535]}
        assert compat.is_for(note, (570, 0, 0), (), (12, 4, 0))
        assert not compat.is_for(note, (570, 0, 0), (), (12, 8, 0))
        assert not compat.is_for(note, (570, 0, 0), (), ())


def test_a_copy_of_nothing_is_refused():
    with pytest.raises(HookError, match="^/etc: Is a directory; expected the host's ldconfig"):
        confined_ldconfig.copy("/etc")


def test_a_drop_in_keeps_its_order(tmp_path):
    inside = ContainerRoot(os.fsencode(tmp_path))
    ldcache.add(inside, "/conf", ["/b", "/a", "/b"])
    ldcache.add(inside, "/conf", ["/a", "/c"])
    assert (tmp_path / "conf").read_text() == "/b\n/a\n/c\n"


HUGE = {
    "a file": ("etc/ld.so.conf", "/a\n" * 100_000, "/etc/ld.so.conf: found a file of more than 262144 bytes"),
    "lines": ("etc/ld.so.conf", "".join(f"/d{n}\n" for n in range(10_001)), "found more than 10000 lines"),
    "a file that includes itself": ("etc/ld.so.conf", "include ld.so.conf\n", "found more than 1000 files"),
    "two that do": ("etc/ld.so.conf.d/a.conf", "include *.conf\ninclude ld.so.conf.d/*\n", "more than 1000 files"),
    "files": ("etc/ld.so.conf", "".join(f"include /d{n}\n" for n in range(2000)), "found more than 1000 files"),
    "our own drop-in": ("etc/ld.so.conf.d/00-fleet-cdi.conf", "/a\n" * 100_000, "found a file of more than 262144"),
}


@pytest.mark.parametrize("what", HUGE)
def test_what_is_read_of_an_image_is_bounded_and_the_bound_is_named(bundle, what):
    name, text, expected = HUGE[what]
    bundle.fill({name: text})
    done = bundle.run("createContainer", "--folder", "/opt/lib")
    assert done.returncode == 1 and expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_names_that_are_kept_of_a_directory_are_bounded_and_others_cost_nothing(bundle):
    bundle.fill({"etc/ld.so.conf.d/x": "", "usr/lib": {"mode": 0o755}})
    for number in range(1100):
        os.link(bundle.root / "etc/ld.so.conf.d/x", bundle.root / f"etc/ld.so.conf.d/{number}.other")
    assert bundle.run("createContainer", "--folder", "/opt/lib").returncode == 0
    for number in range(1100):
        os.link(bundle.root / "etc/ld.so.conf.d/x", bundle.root / f"etc/ld.so.conf.d/{number}.conf")
    done = bundle.run("createContainer", "--folder", "/opt/lib")
    assert done.returncode == 1
    assert "/etc/ld.so.conf.d: found more than 1000 names like *.conf in the image" in done.stderr


def test_lines_end_where_they_end_to_ldconfig(bundle):
    bundle.fill({"etc/ld.so.conf": "include \0\ninclude a\0b\n/known\0more\n/a\x85/one\n"})
    words = [word for name in ("known", "one", "two") for word in ("--folder", f"/{name}")]
    assert bundle.run("createContainer", *words).returncode == 0
    assert conf(bundle, "00-fleet-cdi.conf") == ["/one", "/two"]


def test_a_sparse_file_takes_no_memory(bundle):
    bundle.fill({"etc/ld.so.conf": "/a\n"})
    os.truncate(bundle.root / "etc/ld.so.conf", 1 << 40)
    assert "of more than 262144 bytes" in bundle.run("update-ldcache").stderr


@pytest.mark.parametrize("at", [40, 58, 60, 62])
@pytest.mark.parametrize("value", [0, 1, 2**15, 2**63 - 1, 2**63, 2**64 - 1])
def test_numbers_of_a_hostile_elf_file(tmp_path, at, value):
    size = 8 if at == 40 else 2
    content = bytearray(elf(NOTE))
    content[at : at + size] = (value & (256**size - 1)).to_bytes(size, "little")
    (tmp_path / "lib").write_bytes(content)
    handle = os.open(tmp_path / "lib", os.O_RDONLY)
    compat.read_note(handle)  # and raises nothing
    os.close(handle)


def test_a_note_with_other_types_is_as_good_as_none():
    for note in ({"CUDA Version": ["12.8"]}, {"CUDA Version": 12.8}, {"CUDA Version": None, "Driver": {"535": 1}}):
        assert not compat.is_for(note, (570, 0, 0), (), (12, 4, 0))
        assert not compat.is_for(note, (570, 0, 0), (535, 0, 0), ())


def test_a_user_namespace_with_the_hosts_processes_is_enough(bundle):
    """As rootless podman starts hooks with --pid=host."""
    enter = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "--user", "--map-root-user"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets no ordinary user make a user namespace")
    install(bundle)
    # A release that an ordinary user can read, with an interpreter of the host's.
    release = bundle.directory.parent / "release"
    shutil.copytree(
        COLLECTIONS / "fleet/cdi/plugins/module_utils",
        release / "ansible_collections/fleet/cdi/plugins/module_utils",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    program = release / "bin/cdi-hook"
    program.parent.mkdir()
    program.write_text(launcher.texts("/usr/bin/python3", {})[launcher.CDI_HOOK])
    program.chmod(0o755)
    for path in (release.parent, *release.parent.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    for path in bundle.directory.parents:
        path.chmod(path.stat().st_mode | 0o111)
    state = json.dumps({"bundle": str(bundle.directory)})
    words = [*enter, str(program), "createContainer", "--folder", "/opt/lib"]
    done = subprocess.run(words, input=state, capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert cached(bundle.root) == {"libz.so.1": "/opt/lib/libz.so.1"}
