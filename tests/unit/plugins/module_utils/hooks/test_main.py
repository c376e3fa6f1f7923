# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every case of main.yml: what is done, what is refused, and that nothing outside of the container changes."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.state import container_process, loads

from .conftest import COLLECTIONS, tree

TABLE = yaml.safe_load(Path(__file__).with_name("main.yml").read_text(encoding="utf-8"))
DONE = [case for name in ("links", "modes", "profile", "words") for case in TABLE[name]]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: needs root")


def assert_is(bundle, name, wanted):
    path = bundle.place(name)
    if wanted is None:
        assert not os.path.lexists(path), path
    elif isinstance(wanted, str):
        assert path.read_text() == wanted
    elif "link" in wanted:
        assert os.readlink(path) == bundle.named(wanted["link"])
    else:
        assert stat.S_IMODE(path.lstat().st_mode) == wanted["mode"]


@pytest.mark.parametrize("case", DONE, ids=lambda case: case["name"])
def test_case(bundle, case):
    bundle.fill(case.get("root", {}))
    beside = tree(bundle.outside)
    done = bundle.run(*case["words"])
    if "fails" in case:
        assert done.returncode in (1, 2) and done.stderr.startswith("cdi-hook: ")
        assert len(done.stderr.splitlines()) == 1 and re.search(case["fails"], done.stderr), done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")
        first = tree(bundle.root)
        assert bundle.run(*case["words"]).returncode == 0
        assert tree(bundle.root) == first
    assert tree(bundle.outside) == beside and done.stdout == ""
    for name, wanted in case.get("after", {}).items():
        assert_is(bundle, name, wanted)
    assert not [name for name in tree(bundle.root) if ".cdi-hook-" in name]


@pytest.mark.parametrize("case", TABLE["states"], ids=lambda case: case["name"])
def test_state(bundle, case):
    if "config" in case:
        (bundle.directory / "config.json").write_text(bundle.named(case["config"]))
    state = case.get("state")
    state = "[" * 100000 if state == "[[[..." else state and bundle.named(state)
    done = bundle.run("createContainer", "--link", "a::/b", state=state)
    if "fails" in case:
        assert done.returncode == 1 and re.search(case["fails"], done.stderr), done.stderr
        assert tree(bundle.root) == {}
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert os.readlink(bundle.root / "b") == "a"


@pytest.mark.parametrize("error", [ImportError, AttributeError, TypeError])
def test_a_python_with_another_scanner(monkeypatch, error):
    """CPython promises neither that module nor what its scanner reads."""

    def refuse(_terms):
        raise error

    monkeypatch.setattr("_json.make_scanner", refuse)
    assert loads(' {"bundle": "/b"} ') == {"bundle": "/b"}
    with pytest.raises(ValueError, match="Extra data"):
        loads("{} {}")


def imported(words, state):
    """What a process of the hook's interpreter imports."""
    start = [sys.executable, "-IS", "-X", "importtime", *words]
    done = subprocess.run(start, input=state, capture_output=True, text=True, check=True, env={})
    return set(re.findall(r"^import time:.*\|\s+(\S+)$", done.stderr, re.MULTILINE))


def test_a_container_does_not_wait_for_imports(bundle):
    """A new one is a decision: json alone takes as long as the interpreter's start."""
    floor = imported(["-c", "import os"], "")
    words = [str(bundle.program), "createContainer", "--link", "a::/b", "--chmod", "700:/dev"]
    found = imported(words, json.dumps({"bundle": str(bundle.directory)})) - floor
    ours = {name.rpartition(".")[2] for name in found if ".hooks." in name}
    assert ours == {"container_root", "error", "main", "request", "state"}
    assert {name for name in found if not name.startswith("ansible_collections")} <= {"__future__", "_json", "_signal"}


def test_help_and_version(bundle):
    assert bundle.run("--help").stdout.startswith("usage: cdi-hook createContainer")
    assert bundle.run("--version").stdout.startswith("cdi-hook ")


def test_words_and_names_that_are_no_text(bundle):
    """A path on Linux is bytes."""
    odd = b"/lib/\xff\xfe"
    words = [str(bundle.program).encode(), b"createContainer", b"--link", b"\xffa::" + odd]
    state = b'{"bundle": "%s"}' % os.fsencode(bundle.directory)
    subprocess.run(words, input=state, check=True, env={"LC_ALL": "C"})
    assert os.readlink(os.fsencode(bundle.root) + odd) == b"\xffa"


@pytest.mark.parametrize("blocked", ["stdin", "file"])
def test_it_does_not_wait_for_ever(bundle, blocked):
    words = [str(bundle.program), "createContainer", "--timeout", "1", "--link", "a::/b"]
    if blocked == "file":
        os.mkfifo(bundle.directory / "state")
        words += ["--container-spec", str(bundle.directory / "state")]
    # As crun starts hooks.
    block = functools.partial(signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGALRM})
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stderr=pipe, text=True, preexec_fn=block) as running:
        running.wait(60)
        said = "createContainer: is not done after 1 s, so the container can't start; --timeout allows more [FC1409]"
        assert (running.returncode, running.stderr.read()) == (1, f"cdi-hook: {said}\n")


def test_the_file_of_a_state_is_closed(tmp_path):
    file = tmp_path / "state"
    before = os.listdir("/proc/self/fd")
    file.write_text('{"id": "a", "pid": 1}')
    assert container_process(str(file)) == ("a", 1)
    file.write_text(" " * (4 << 20) + "{}")
    with pytest.raises(HookError, match="is larger than 4 MiB"):
        container_process(str(file))
    assert os.listdir("/proc/self/fd") == before


def test_a_state_that_is_too_large(bundle):
    done = bundle.run("createContainer", "--link", "a::/b", state=" " * (4 << 20) + "{}")
    assert done.returncode == 1 and "standard input: is larger than 4 MiB; expected a JSON object" in done.stderr


def test_an_error_that_nobody_foresaw_is_one_line():
    code = "import sys; sys.path.insert(0, sys.argv[1]); "
    code += "from ansible_collections.fleet.cdi.plugins.module_utils.hooks import main; "
    code += "main.perform = lambda request: 1 // 0; main.main(['createContainer', '--link', 'a::/b'], '0.1.0')"
    words = [sys.executable, "-c", code, str(COLLECTIONS.parent)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    said = "cdi-hook: createContainer: an error of cdi-hook itself (ZeroDivisionError: "
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and done.stderr.startswith(said), done.stderr


@as_root
@pytest.mark.parametrize("sort", [stat.S_IFCHR, stat.S_IFBLK])
def test_a_device_nodes_mode_is_not_touched(bundle, sort):
    """Where a runtime mounts the host's own node, as without privileges, its mode would be the host's."""
    os.mknod(bundle.root / "node", 0o600 | sort, os.makedev(1, 3))
    done = bundle.run("createContainer", "--chmod", "666:/node")
    assert done.returncode == 1 and "is a device node; expected fileMode" in done.stderr
    assert stat.S_IMODE((bundle.root / "node").stat().st_mode) == 0o600


@as_root
def test_nvidias_egl_is_told_of_the_gpus_that_are_there(bundle):
    (bundle.root / "dev").mkdir()
    for name, minor in {"nvidia0": 0, "nvidia12": 12, "nvidia99": 99, "nvidiactl": 255, "nvidia-uvm": 1}.items():
        os.mknod(bundle.root / "dev" / name, 0o600 | stat.S_IFCHR, os.makedev(195, minor))
    (bundle.root / "dev/nvidia5").write_text("no device")
    file = bundle.root / "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
    for words in (["createContainer"], ["update-ldcache"]):
        assert bundle.run(*words).returncode == 0
        assert not file.exists(), words
    assert bundle.run("createContainer", "--application-profile").returncode == 0
    assert '"EGLVisibleDGPUDevices", 0x1001]' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o444
    before = file.read_text()
    assert bundle.run("update-application-profile").returncode == 0
    assert file.read_text() == before


@as_root
def test_two_containers_at_once_share_a_volume(bundle):
    """Both want the same links in it."""
    words = [
        str(bundle.program),
        "createContainer",
        *(part for number in range(40) for part in ("--link", f"t::/v/{number}/l")),
    ]
    state = f'{{"bundle": "{bundle.directory}"}}'
    running = [subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _one in range(4)]
    for one in running:
        one.stdin.write(state)
        one.stdin.close()
    assert [(one.wait(60), one.stderr.read()) for one in running] == [(0, "")] * 4
    for one in running:
        one.stderr.close()
    assert {os.readlink(bundle.root / f"v/{number}/l") for number in range(40)} == {"t"}


@pytest.mark.parametrize("handles", ["2>&-", "1>&- 2>&-", "2>/dev/full"])
def test_a_note_that_cannot_be_written_stops_no_container(bundle, handles):
    bundle.fill({"lib/ld-musl-x86_64.so.1": ""})
    bundle.command = ["sh", "-c", f'exec "$0" "$@" {handles}', str(bundle.program)]
    done = bundle.run("createContainer", "--folder", "/usr/lib")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "path", ["/proc/self/root", "/proc/self/root/proc/self/root", "/dev/../proc/self/cwd", "{bundle}/link"]
)
def test_the_hosts_root_directory_is_known_by_any_name(bundle, path):
    """/proc/self/cwd, as runtimes may start a hook anywhere."""
    (bundle.directory / "link").symlink_to("/")
    (bundle.directory / "config.json").write_text(json.dumps({"root": {"path": bundle.named(path)}}))
    done = bundle.run("createContainer", "--link", "a::/fleet-cdi-test-link", cwd="/")
    assert done.returncode == 1 and "is the host's own root directory; expected the container's" in done.stderr
    assert not os.path.lexists("/fleet-cdi-test-link")


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_DEBUG_OUTPUT", "GLIBC_TUNABLES", "PYTHONPATH", "ANY"])
def test_an_environment_that_no_spec_of_ours_gives_is_left_behind(bundle, variable):
    """The dynamic linker has obeyed it once; what the hook loads later does not."""
    seen = bundle.directory / "seen"
    launcher = bundle.program.read_text()
    probe = bundle.program.with_name("probe")
    probe.write_text(
        launcher.partition("sys.dont_write")[0] + f"open({str(seen)!r}, 'w').write(repr(dict(os.environ)))\n"
    )
    probe.chmod(0o755)
    for environment, expected in (({variable: "."}, set()), ({"PATH": "/bin"}, {"PATH"})):
        assert subprocess.run([probe], check=False, env=environment).returncode == 0
        assert set(ast.literal_eval(seen.read_text())) - {"LC_CTYPE"} == expected
