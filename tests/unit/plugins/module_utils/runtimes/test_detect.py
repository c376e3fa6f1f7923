# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CDI version each release reads, and what is told of programs that answer well, badly or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect, table
from ansible_collections.fleet.cdi.plugins.module_utils.spec import model
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen import releases
from ansible_collections.fleet.cdi.plugins.module_utils.system import processes
from ansible_collections.fleet.cdi.tests.unit.limits import LONGEST, LeapingClock

HERE = Path(__file__).parent
RELEASES = yaml.safe_load((HERE / "releases.yml").read_text())
BANNERS = yaml.safe_load((HERE / "banners.yml").read_text())


def released(version):
    """YAML reads some as text, none as a number: all of them have two dots."""
    assert isinstance(version, str)
    return table.numbers(version)


class TestTable:
    @pytest.mark.parametrize(
        ("name", "version", "reads"),
        [
            (name, version, reads)
            for name, ranges in RELEASES.items()
            for reads, versions in ranges.items()
            for version in versions
            if reads != "newer"
        ],
    )
    def test_release(self, name, version, reads):
        assert table.reads(name, released(version)) == reads
        assert not table.is_newer(name, released(version))

    @pytest.mark.parametrize(("name", "version"), [(name, v) for name, all_ in RELEASES.items() for v in all_["newer"]])
    def test_a_newer_release_counts_as_the_last_known(self, name, version):
        assert table.reads(name, released(version)) == table.ENGINES[name].rows[-1][1] == model.VERSIONS[-1]
        assert table.is_newer(name, released(version))

    def test_every_row_is_in_order_tested_and_a_version(self):
        for name, engine in table.ENGINES.items():
            firsts = [first for first, _reads, _library in engine.rows]
            assert firsts == sorted(firsts)
            tested = {released(version) for versions in RELEASES[name].values() for version in versions}
            assert set(firsts) <= tested
            assert {reads for _first, reads, _library in engine.rows} <= set(model.VERSIONS)
            for _first, reads, library in engine.rows:
                assert releases.BY_NAME[library].reads == reads

    @pytest.mark.parametrize(
        ("name", "version", "library"),
        [
            ("podman", "3.4.4", ""),
            ("podman", "4.4.4", "0.5.1"),
            ("podman", "4.5.0", "0.5.4"),
            ("podman", "5.4.2", "0.8.0"),
            ("docker", "28.5.1", "1.0.0"),
            ("containerd", "1.7.0", "0.5.4"),
            ("containerd", "2.3.0", "1.1.0"),
            ("cri-o", "1.26.4", "0.5.1"),
            ("cri-o", "1.99.0", "1.1.0"),
        ],
    )
    def test_the_library(self, name, version, library):
        assert table.library(name, table.numbers(version)) == library


class Programs:
    """Directories with programs; detect() sees these, and nothing else of this machine."""

    def __init__(self, root, monkeypatch):
        self.root = root
        monkeypatch.setattr(detect, "DIRECTORIES", (str(root / "usual"),))

    def add(self, name, script, where="usual"):
        path = self.root / where / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)
        return str(path)

    def prints(self, name, text, where="usual"):
        return self.add(name, f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\n", where)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    return Programs(tmp_path, monkeypatch)


class TestDetect:
    @pytest.mark.parametrize("case", BANNERS, ids=lambda case: f"{case['program']}: {case['prints'][:50]!r}")
    def test_banner(self, case, tmp_path, monkeypatch):
        programs = Programs(tmp_path, monkeypatch)
        path = programs.add(case["program"], "#!/bin/sh\n")
        found = detect.detect("", lambda _program: case["prints"])
        if "says" in case:
            assert found.runtimes == ()
            assert len(found.warnings) == 1 and found.warnings[0].startswith(f"{path}: ")
            assert case["says"] in found.warnings[0]
        else:
            (engine,) = found.runtimes
            assert (engine.version, engine.path, engine.reads) == (case["version"], path, case["reads"])
            assert found.warnings == ()

    def test_nothing_installed(self, programs):
        programs.prints("docker", "Docker version 26.1.5, build 411e817")  # the client alone
        assert detect.detect("/nowhere::relative") == detect.DetectedRuntimes((), ())

    def test_all_four_in_the_table_order(self, programs):
        for name, text in (
            ("crio", "crio version 1.30.2"),
            ("podman", "podman version 5.4.2"),
            ("containerd", "containerd github.com/containerd/containerd 1.7.24 abc"),
            ("dockerd", "Docker version 26.1.5+dfsg1, build 411e817"),
        ):
            programs.prints(name, text)
        found = [(engine.name, engine.version, engine.reads) for engine in detect.detect("").runtimes]
        assert found == [
            ("docker", "26.1.5+dfsg1", "0.7.0"),
            ("podman", "5.4.2", "0.8.0"),
            ("containerd", "1.7.24", "0.7.0"),
            ("cri-o", "1.30.2", "0.7.0"),
        ]

    def test_two_installations_are_two_and_a_link_is_none(self, programs):
        usual = programs.prints("podman", "podman version 4.3.1")
        mine = programs.prints("podman", "podman version 5.4.2", "mine")
        (programs.root / "linked").symlink_to("usual")
        path = os.pathsep.join(str(programs.root / name) for name in ("mine", "linked"))
        found = [(engine.version, engine.path) for engine in detect.detect(path).runtimes]
        assert found == [("5.4.2", mine), ("4.3.1", usual.replace("/usual/", "/linked/"))]

    def test_a_newer_release_is_a_warning_that_names_it(self, programs):
        path = programs.prints("dockerd", "Docker version 31.0.1, build 411e817")
        found = detect.detect("")
        assert [engine.reads for engine in found.runtimes] == ["1.1.0"]
        assert len(found.warnings) == 1 and found.warnings[0].startswith(f"{path}: docker 31.0.1 is newer than 29.3")

    @pytest.mark.parametrize(
        ("script", "says"),
        [
            ("#!/bin/sh\nexit 3\n", "ended with status 3"),
            ("#!/bin/sh\necho podman version 4.3.1\nexit 3\n", "ended with status 3"),
            ("#!/bin/sh\nkill -SEGV $$\n", "ended with signal 11"),
            ("#!/nowhere/sh\n", "No such file"),
            ("\x7fELF of another machine", "Exec format error"),
            ("#!/bin/sh\nyes\n", "--version printed 'y'"),
            ("#!/bin/sh\necho podman version 4.3.1 >&2\n", "--version printed ''"),
        ],
        ids=lambda value: repr(value)[:40],
    )
    def test_a_program_that_fails_is_a_warning(self, programs, script, says):
        good = programs.prints("dockerd", "Docker version 26.1.5, build 411e817")
        path = programs.add("podman", script)
        found = detect.detect("")
        assert [engine.path for engine in found.runtimes] == [good]
        assert len(found.warnings) == 1 and found.warnings[0].startswith(f"{path}: can't tell its version: ")
        assert says in found.warnings[0]

    @pytest.mark.parametrize("changed", ["podman", "."])
    def test_a_program_that_another_user_can_change_is_not_run(self, programs, changed):
        """A user's directory in PATH would be run as root, and none of its programs need be the first of its name."""
        good = programs.prints("podman", "podman version 5.4.2")
        bad = programs.add("podman", f"#!/bin/sh\ntouch {programs.root}/ran\n", where="later")
        (programs.root / "later" / changed).chmod(0o777)
        found = detect.detect(str(programs.root / "later"))
        assert ([engine.path for engine in found.runtimes], found.unknown) == ([good], (bad,))
        assert found.warnings[0].startswith(f"{bad}: can't tell its version: ")
        assert not (programs.root / "ran").exists()

    def test_it_gets_none_of_our_environment(self, programs, monkeypatch):
        monkeypatch.setenv("FLEET_SECRET", "1")
        monkeypatch.setenv("CONTAINER_HOST", "tcp://elsewhere")
        path = programs.add("podman", "#!/bin/sh\nenv | cut -d= -f1 | sort\npwd\nreadlink /proc/self/fd/0\n")
        assert detect.version_text(path).split() == ["LC_ALL", "PATH", "PWD", "/", "/dev/null"]


def living(group):
    """The processes of a group, but for those that only wait for init to take note (proc_pid_stat(5))."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # ended meanwhile
        if int(its_group) == group and state not in "ZX":
            found.append(stat.parent.name)
    return found


class TestTimeLimit:
    @pytest.mark.parametrize(
        "script",
        [
            "{hangs}; sleep 600",
            "echo podman version 4.3.1; {hangs}; sleep 600",
            "echo podman version 4.3.1; exec >&-; {hangs}; sleep 600",
            "sleep 600 & {hangs}; wait",  # the child holds the pipe
            "trap '' TERM INT; {hangs}; while :; do sleep 1; done",
        ],
    )
    def test_a_program_that_hangs_is_ended_with_all_that_it_started(self, programs, script, monkeypatch):
        mark = programs.root / "pid"
        path = programs.add("podman", f"#!/bin/sh\n{script.format(hangs=f'echo $$ > {mark}')}\n")
        monkeypatch.setattr(processes, "time", LeapingClock(lambda: mark.exists() and mark.read_text() != ""))
        with pytest.raises(ValueError, match="within 100 seconds"):
            detect.version_text(path, 100.0)
        group = int(mark.read_text())
        deadline = time.monotonic() + LONGEST
        while living(group):  # SIGKILL takes a moment
            assert time.monotonic() < deadline, f"processes of group {group} are left"
            time.sleep(0.01)


class TestNamed:
    def test_versions(self):
        found = detect.named({"podman": "4.3.1", "docker": "24.0", "containerd": "v2.1.0"})
        assert [tuple(engine) for engine in found.runtimes] == [
            ("podman", "4.3.1", "", "0.5.0"),
            ("docker", "24.0", "", ""),
            ("containerd", "v2.1.0", "", "1.0.0"),
        ]
        assert detect.named({}) == detect.DetectedRuntimes((), ())

    def test_a_newer_release_is_a_warning_here_too(self):
        assert detect.named({"cri-o": "1.40"}).warnings[0].startswith("cri-o: cri-o 1.40 is newer than 1.35")

    @pytest.mark.parametrize(
        ("versions", "says"),
        [
            ({"crio": "1.30"}, "found the runtime 'crio'; expected one of docker, podman, containerd, cri-o"),
            ({"podman": "latest"}, "found the version 'latest' of podman; expected its release"),
            ({"podman": None}, "found the version None"),
            ({"podman": 5}, "found the version 5"),
            ({"cri-o": 1.30}, "found the version 1.3 of cri-o; expected its release as text, as in '1.30'"),
        ],
    )
    def test_refused(self, versions, says):
        with pytest.raises(CdiError, match="^runtimes: ") as caught:
            detect.named(versions)
        assert says in str(caught.value)


def test_importing_costs_no_subprocess():
    """A host without any engine should not pay for asking one."""
    lean = "import sys, ansible_collections.fleet.cdi.plugins.module_utils.runtimes.detect; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", lean], env={"PYTHONPATH": os.pathsep.join(sys.path)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert not {"subprocess", "select", "dataclasses", "pathlib"} & set(done.stdout.split())
