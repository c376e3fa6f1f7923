# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cdi-hook beside NVIDIA's own nvidia-cdi-hook, each on a root directory of its own: what containers find is the same.

One process of ours against one for each of theirs, with the words that specs of both have.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import judge
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.build_spec import spec_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.release import launcher
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia

SOURCE = Path(__file__).parent
PACKAGE = "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook"
LIBRARY = next((path for path in Path("/usr/lib").glob("*-linux-gnu/libz.so.1.*")), None)
PLACE = "/usr/lib/vendor"

# Where both say the same in other words: files of ld.so.conf.d whose names begin so.
DROP_INS = {"00-nvcr-": "folders", "00-fleet-cdi": "folders", "zz-nvcr-": "system", "zz-fleet-cdi": "system"}
DROP_INS |= {"00-compat-": "compat"}

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the vendor's hook makes namespaces: needs root"),
    pytest.mark.skipif(LIBRARY is None or not os.path.exists("/sbin/ldconfig"), reason="needs ldconfig and libz"),
]


@pytest.fixture(scope="module")
def theirs():
    """nvidia-cdi-hook, built where its source is newer. It takes cgo."""
    program = judge.BUILT / "nvidia-cdi-hook"
    if shutil.which("gcc") is None:
        pytest.skip("NVIDIA's hook is not compared: building it takes gcc (apt-get install gcc libc6-dev)")
    if not program.exists() or program.stat().st_mtime < (SOURCE / "hook.mod").stat().st_mtime:
        judge.BUILT.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CGO_ENABLED": "1", "CGO_CFLAGS": "-O0 -w"}
        try:
            command = [judge.find_go(), "build", "-modfile=hook.mod", "-buildvcs=false", "-p=2", "-o", str(program)]
        except judge.Unavailable as why:
            pytest.skip(f"NVIDIA's hook is not compared: {why}")
        done = subprocess.run(
            [*command, PACKAGE], cwd=SOURCE, env=environment, check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"NVIDIA's hook is not compared: it can't be built: {done.stderr.strip()[-500:]}")
    return program


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """cdi-hook, as a release has it."""
    release = tmp_path_factory.mktemp("release")
    (release / "bin").mkdir()
    (release / "ansible_collections").symlink_to(Path(launcher.__file__).parents[5])
    program = release / "bin/cdi-hook"
    program.write_text(launcher.texts(sys.executable, {})[launcher.CDI_HOOK])
    program.chmod(0o755)
    return program


def image(directory, fill):
    """A bundle whose root directory `fill` makes."""
    (directory / "root").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"ociVersion": "1.0.2", "root": {"path": "root"}}))
    fill(directory / "root")
    return directory


def run(program, bundle, *words):
    state = json.dumps({"ociVersion": "1.0.2", "id": "one", "status": "created", "bundle": str(bundle)})
    # A container's root directory is a mount: theirs makes it the root of a namespace (pivot_root).
    start = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$1" && shift && exec "$@"', "sh"]
    command = [*start, str(bundle / "root"), str(program), *words]
    return subprocess.run(command, input=state, capture_output=True, text=True, check=False).returncode


def found(bundle):
    """What is in a container then: links, modes, directories of drop-ins, what the linker's cache leads to."""
    root, seen = bundle / "root", {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        drop_in = next((key for start, key in DROP_INS.items() if path.name.startswith(start)), "")
        if path.is_symlink():
            seen[name] = os.readlink(path)
        elif drop_in:
            seen[drop_in] = [line for line in path.read_text().splitlines() if "x32" not in line]
        elif path.name == "ld.so.cache":
            copy = bundle / "cache"
            shutil.copy(path, copy)
            listed = subprocess.run(["/sbin/ldconfig", "-C", copy, "-p"], capture_output=True, text=True, check=True)
            seen[name] = sorted(re.findall(r"(\S+) \(.*\) => (\S+)", listed.stdout))
        elif path.is_dir():
            seen[name] = "directory" if name.startswith("etc/nvidia") else oct(path.stat().st_mode)  # theirs: 0555
        else:
            seen[name] = path.read_text(errors="replace") if path.suffix == ".conf" and "ld.so" in name else "file"
    return seen


def library(root, place=PLACE):
    (root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    shutil.copy(LIBRARY, root / place.lstrip("/"))


def write(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def debian(root):
    library(root)
    write(root, etc__debian_version="12", **{"etc__ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n"})


def configured(root):
    debian(root)
    write(root, **{"etc__ld.so.conf.d__old.conf": f"# ours\n{PLACE}\n"})


def linked(root):
    """As images since the merge of /usr: /lib is a link."""
    debian(root)
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/lib/other.so").symlink_to("old")
    (root / "usr/local/lib64").mkdir(parents=True)
    (root / "usr/lib64").symlink_to("/usr/local/lib64")


def other(root):
    library(root)
    (root / "etc").mkdir()  # theirs fails without it


IMAGES = {"debian": debian, "others": other, "configured": configured, "linked": linked}
LINKS = ("libz.so.1::/lib/libz.so", "../a/b::/usr/lib64/new/deep", "/abs::/usr/lib/other.so", "t::/../../x")


@pytest.mark.parametrize("name", IMAGES)
def test_links_and_cache(theirs, ours, tmp_path, name):
    one, other = (image(tmp_path / side, IMAGES[name]) for side in ("theirs", "ours"))
    links = [word for link in LINKS for word in ("--link", link)]
    folders = ["--folder", PLACE, "--folder", "/usr/lib", "--folder", PLACE]
    assert run(theirs, one, "create-symlinks", *links) == 0
    assert run(theirs, one, "update-ldcache", *folders) == 0
    assert run(ours, other, "createContainer", *links, *folders) == 0
    assert found(one) == found(other)
    assert found(other)["etc/ld.so.cache"] == [("libz.so.1", f"{PLACE}/libz.so.1")]


def test_modes(theirs, ours, tmp_path):
    def fill(root):
        (root / "dev/dri").mkdir(parents=True, mode=0o700)

    one, other = (image(tmp_path / side, fill) for side in ("theirs", "ours"))
    words = ["chmod", "--mode", "755", "--path", "/dev/dri", "--path", "/nothing"]
    assert [run(program, bundle, *words) for program, bundle in ((theirs, one), (ours, other))] == [0, 0]
    assert found(one) == found(other) and found(other)["dev/dri"] == oct(0o40755)


@pytest.mark.parametrize(
    "words", [["create-symlinks", "--link", "a"], ["chmod", "--mode", "x"], ["update-ldcache", "--folder"]]
)
def test_what_is_no_request_fails(theirs, ours, tmp_path, words):
    bundle = image(tmp_path / "bundle", debian)
    assert run(ours, bundle, *words) != 0
    assert run(theirs, bundle, *words) != 0


def test_a_link_where_a_directory_is_fails(theirs, ours, tmp_path):
    def fill(root):
        (root / "lib/here").mkdir(parents=True)

    for program, side in ((theirs, "theirs"), (ours, "ours")):
        bundle = image(tmp_path / side, fill)
        assert run(program, bundle, "create-symlinks", "--link", "a::/lib/here") != 0
        assert found(bundle)["lib/here"] == oct(0o40755)


@pytest.mark.parametrize(
    ("library_name", "driver"),
    [("libcuda.so.570.86.15", "550.54.15"), ("libcuda.so.550.54.15", "550.54.15"), ("libcuda.so.535.1.1", "550.54.15")],
)
def test_cuda_compatibility(theirs, ours, tmp_path, library_name, driver):
    def fill(root):
        debian(root)
        write(root, **{f"usr__local__cuda__compat__{library_name}": "no ELF"})

    one, other = (image(tmp_path / side, fill) for side in ("theirs", "ours"))
    words = ["enable-cuda-compat", f"--host-driver-version={driver}"]
    assert [run(program, bundle, *words) for program, bundle in ((theirs, one), (ours, other))] == [0, 0]
    assert found(one) == found(other)
    assert ("compat" in found(other)) == (library_name.endswith("86.15"))


def test_the_profile_of_applications(theirs, ours, tmp_path):
    def fill(root):
        (root / "dev").mkdir()
        for name, minor in {"nvidia1": 1, "nvidia6": 6, "nvidiactl": 255}.items():
            os.mknod(root / "dev" / name, 0o20600, os.makedev(195, minor))

    masks = []
    for program, side in ((theirs, "theirs"), (ours, "ours")):
        bundle = image(tmp_path / side, fill)
        assert run(program, bundle, "update-application-profile") == 0
        text = (bundle / "root/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf").read_text()
        masks.append(re.findall(r'"EGLVisibleDGPUDevices",\s*(\w+)\]', text))
    assert masks == [["0x42"], ["0x42"]]


def test_all_that_the_spec_of_eight_gpus_asks_for(theirs, ours, tmp_path):
    """The hooks of one spec, with the vendor's program on the host and without it, in a container with one GPU."""
    bundles = []
    for side, program, case in (("theirs", theirs, {}), ("ours", ours, {"remove": [nvidia.HOOK]})):
        root, _gpus = nvidia.of_case({"gpus": "A100", **case}, tmp_path / f"host-{side}")
        result = discover({"gpus": {"profile": "nvidia"}}, snapshot.take(root))
        spec = spec_of(result.kinds[0], result.devices)
        own = spec["devices"][0]["containerEdits"]

        def fill(container, own=own):
            debian(container)
            for node in own["deviceNodes"]:
                path = container / node["path"].lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                number = int(re.search(r"[0-9]+$", node["path"])[0])
                os.mknod(path, 0o20600, os.makedev(195, number))

        bundle = image(tmp_path / side, fill)
        hooks = [*spec["containerEdits"]["hooks"], *own.get("hooks", ())]
        for hook in hooks:
            known = hook["args"][1] not in ("disable-device-node-modification", "apply-cuda-memory-limits")
            assert not known or run(program, bundle, *hook["args"][1:]) == 0
        bundles.append((bundle, len(hooks)))
    (one, several), (other, single) = bundles
    assert single == 1 < several
    assert found(one) == found(other)
    assert found(other)["dev/dri/by-path/pci-0000:07:00.0-render"] == "../renderD131"
    assert not [name for name in found(other) if "0000:0f:00.0" in name]
