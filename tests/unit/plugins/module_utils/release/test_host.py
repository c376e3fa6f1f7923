# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real interpreters are asked, real os-release files are read."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import host
from ansible_collections.fleet.cdi.tests.unit.builders import program


def test_probe_describes_this_interpreter(run):
    found = host.probe(sys.executable, run)
    assert found.path == sys.executable
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.tag == sys.implementation.cache_tag
    assert found.missing_packages == (() if importlib.util.find_spec("pyudev") else ("python3-pyudev",))


def test_probe_names_what_is_missing(tmp_path, run):
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)])
    assert host.probe(str(tmp_path / "bin/python3"), run).missing_packages == ("python3-pyudev",)


def test_what_the_device_plugin_needs_is_asked_for_where_that_is_to_run(tmp_path, run):
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)])
    found = host.probe(str(tmp_path / "bin/python3"), run, ("discovery", "device_plugin"))
    assert found.missing_packages == ("python3-pyudev", "python3-grpcio", "python3-protobuf")
    assert host.probe(str(tmp_path / "bin/python3"), run, ()).missing_packages == ()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            """echo '{"version": [3, 8, 18], "tag": "cpython-38", "found": []}'""",
            r"is Python 3\.8\.18; a release needs >= 3\.9",
        ),
        ("echo 'Unknown option: -I' >&2; exit 2", r"is not Python >= 3\.9 \(exit status 2: Unknown option: -I"),
        ("echo hello", r"is not Python >= 3\.9 \(exit status 0: hello\)"),
        ("echo '{}'", r"is not Python >= 3\.9"),
    ],
)
def test_probe_refuses_what_is_no_python_of_today(tmp_path, script, message, run):
    with pytest.raises(CdiError, match=message):
        host.probe(program(tmp_path, "python3", script)[0], run)


@pytest.mark.parametrize("version", ["3.6", "3.8", "2.7"])
def test_probe_refuses_a_real_old_python(version, run):
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
        f"versions/{version}.*/bin/python{version}"
    )
    python = next(map(str, managed), None) or shutil.which(f"python{version}")
    if python is None or run([python, "-c", ""])[0]:
        pytest.skip(f"no python{version} on the path or in pyenv")
    with pytest.raises(CdiError, match=r">= 3\.9"):
        host.probe(python, run)


@pytest.mark.parametrize(("name", "why"), [("missing", "No such file"), ("directory", "Permission denied")])
def test_probe_refuses_what_can_not_be_run(tmp_path, name, why, run):
    (tmp_path / "directory").mkdir()
    with pytest.raises(CdiError, match=rf"python: can't run .*{name}: {why}"):
        host.probe(str(tmp_path / name), run)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('NAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n', ("debian", "12", "Debian GNU/Linux")),
        ("ID='rhel'\nVERSION_ID=9.4\n# NAME=comment\n", ("rhel", "9.4", "")),
        ('NAME="quotes \\"inside\\""\nID=arch\n', ("arch", "", 'quotes "inside"')),
        ("ID=unbalanced'\nno line\n=\n", ("unbalanced'", "", "")),
        ("", ("", "", "")),
        (None, ("", "", "")),
    ],
)
@pytest.mark.parametrize("place", ["etc/os-release", "usr/lib/os-release"])
def test_distribution(tmp_path, place, text, wanted):
    if text is not None:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(text)
    assert host.distribution(str(tmp_path)) == dict(zip(("id", "version_id", "name"), wanted))


def test_etc_wins(tmp_path):
    for place, name in (("etc", "local"), ("usr/lib", "vendor")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "os-release").write_text(f"ID={name}\n")
    assert host.distribution(str(tmp_path))["id"] == "local"


@pytest.mark.parametrize(
    "name, version, more, fits",
    [
        ("debian", "12", {}, True),
        ("debian", "", {}, True),
        ("debian", "11", {}, False),
        ("debian", "11", {"debian": ["11"]}, True),
        ("debian", "12", {"debian": ["11"]}, True),
        ("ubuntu", "22.04", {}, True),
        ("ubuntu", "22", {}, False),
        ("ubuntu", "", {}, False),
        ("rocky", "9.4", {}, True),
        ("rocky", "91", {}, False),
        ("ol", "9.4", {}, False),
        ("ol", "9.4", {"ol": ["9"]}, True),
        ("arch", "", {}, False),
        ("arch", "", {"arch": [""]}, True),
    ],
)
def test_a_distribution_is_refused_by_name(name, version, more, fits):
    found = {"id": name, "version_id": version, "name": name.title()}
    if fits:
        host.refuse_unsupported(found, more)
    else:
        with pytest.raises(
            CdiError, match=f"found ID '{name}' with VERSION_ID '{version}'.*debian 12/13.*ubuntu 22.04"
        ):
            host.refuse_unsupported(found, more)


@pytest.mark.parametrize("more", [{"ol": "9"}, {"ol": [9]}, {"ol": None}, {"ol": {"9": 1}}])
def test_a_table_of_more_distributions_holds_lists_of_text(more):
    with pytest.raises(CdiError, match=r"distributions: found .*; expected lists of VERSION_ID as text by ID, as in"):
        host.refuse_unsupported({"id": "ol", "version_id": "9", "name": ""}, more)
