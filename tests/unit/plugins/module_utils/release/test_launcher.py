# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher under real interpreters, at awkward paths, among awkward neighbours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, host, launcher


@pytest.mark.parametrize("name", ["python", "two words", "long" + "x" * 200, "ünïcödé", "semi;colon & (co)"])
def test_runs_under_an_interpreter_at_any_path(target, tmp_path, run, name):
    (tmp_path / name).mkdir()
    python = tmp_path / name / "python3"
    # A script, not a symlink: Python finds its home by the name that it is started by.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    release = target.release()
    target.install(release, python=host.probe(str(python), run))
    assert target.says() == release.id


@pytest.mark.parametrize(
    "python",
    ["python3", "./python3", "/opt/a'b/python", '/opt/a"b', "/opt/$HOME/python", "/opt/`id`", "/a\\b", "/a\nb", ""],
)
def test_interpreter_that_no_script_can_name_is_refused(python):
    with pytest.raises(CdiError, match=r"^python: found .*absolute path"):
        launcher.text(python, {})


def test_short_path_needs_no_shell():
    assert launcher.text("/usr/bin/python3", {}).startswith("#!/usr/bin/python3 -IS\n")
    assert launcher.text("/a b/python3", {}).startswith("#!/bin/sh\n")


@pytest.mark.parametrize("python", ["/usr/bin/python3", "/a b/python3"])
def test_all_start_without_site(python):
    texts = launcher.texts(python, {})
    assert sorted(texts) == ["cdi-hook", "drm", "fleet-cdi", "generic-tty", "rule", "slurm-job", "sriov"]
    assert all(" -IS" in text.partition("import")[0] for text in texts.values())


def test_text_is_a_function_of_its_arguments():
    one = launcher.text("/usr/bin/python3", {"prefix": "/a", "spec_dirs": ["/b"]})
    assert one == launcher.text("/usr/bin/python3", {"spec_dirs": ["/b"], "prefix": "/a"})
    assert one != launcher.text("/usr/bin/python3", {"spec_dirs": ["/c"], "prefix": "/a"})
    assert one != launcher.text("/usr/bin/python3.9", {"spec_dirs": ["/b"], "prefix": "/a"})


def test_environment_and_directory_of_the_caller_stay_out(target, tmp_path):
    release = target.release()
    target.install(release)
    trap = tmp_path / "trap"
    (trap / "ansible_collections").mkdir(parents=True)
    for name in ("argparse.py", "ansible_collections/__init__.py"):
        (trap / name).write_text("raise SystemExit('caught')\n")
    command = [f"{target.prefix}/bin/fleet-cdi", "--version"]
    environment = {**os.environ, "PYTHONPATH": str(trap), "PYTHONSTARTUP": str(trap / "argparse.py")}
    done = subprocess.run(command, cwd=trap, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(release.id)


def test_ansible_of_the_host_stays_out(target, tmp_path, run):
    """The PyPI package `ansible` brings ansible_collections/__init__.py, a regular package, into site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    os.makedirs(f"{site}/ansible_collections")
    with open(f"{site}/ansible_collections/__init__.py", "w") as file:
        file.write("raise SystemExit('caught')\n")
    python = str(tmp_path / "venv/bin/python3")
    assert run([python, "-I", "-c", "import ansible_collections"])[0] == 1  # the trap is set
    release = target.release()
    target.install(release, python=host.probe(python, run))
    assert target.says() == release.id


def test_leaves_nothing_in_the_release(target):
    release = target.release()
    target.install(release)
    before = target.tree()
    for cache in target.lib.rglob("*.pyc"):
        cache.unlink()
    target.says()
    assert set(target.tree()) == {path for path in before if not path.endswith(".pyc")}


@pytest.mark.parametrize("harm", ["", "def", "raise ValueError", None])
@pytest.mark.parametrize("name", ["records.py", "cli/main.py"])
def test_a_broken_release_is_could_not_be_done_and_no_finding(target, run, name, harm):
    target.install(target.release())
    path = target.lib / "current" / build.ROOT / name
    compiled = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    compiled.unlink()
    if harm is None:
        path.unlink()
    else:
        path.write_text(harm)
    status, out, err = run([f"{target.prefix}/bin/fleet-cdi", "--version"])
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"fleet-cdi: {os.path.realpath(path)}") or str(os.path.realpath(compiled)) in err
    assert "ansible-playbook fleet.cdi.provision" in err
