# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi functions: what it prints, and its exit codes. What it does: converge/driver/test_virtual_functions.py."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import functions
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

DEFAULTS = {"state_dir": "", "inventory": "", "spec_dirs": [], "prefix": ""}


@pytest.fixture
def run(monkeypatch, capsys):
    """run(*arguments) -> (exit code, stdout, stderr), on a host where ens1 has its functions and ens2 can have none."""

    def make(wanted, _check):
        if wanted.device == "ens2":
            raise CdiError("ens2: has no SR-IOV")
        return wanted.device != "ens1"

    monkeypatch.setattr(functions, "make_functions", make)
    return lambda *arguments: (main(["functions", *arguments], "test", DEFAULTS), *capsys.readouterr())


def test_what_was_made_and_what_could_not_be(run):
    assert run("ens1=8") == (0, "Nothing to make.\n", "")
    assert run("ens1=8", "ens0=4") == (0, "made: virtual functions of ens0\n", "")
    assert run("ens0=4", "--check") == (0, "would be made: virtual functions of ens0\n", "")
    status, out, err = run("ens2=4", "ens0=4")
    assert (status, out, err) == (1, "made: virtual functions of ens0\n", "fleet-cdi: ens2: has no SR-IOV\n")
    status, out, err = run("ens2=4", "ens0=4", "--json")
    assert (status, json.loads(out), err) == (1, {"changed": ["ens0"], "failed": ["ens2: has no SR-IOV"]}, "")


def test_nothing_is_made_where_a_word_makes_no_sense(run):
    status, out, err = run("ens0=4", "ens3")
    assert (status, out) == (2, "")
    wanted = "expected DEVICE=COUNT, as in 0000:3b:00.0=8 or ens1f0=8"
    assert err == f"fleet-cdi: virtual function: found 'ens3'; {wanted} [FC1212]\n"
