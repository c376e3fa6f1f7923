# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verb plugin: which configuration it reads."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration


@pytest.fixture
def fleet_cdi(tmp_path, capsys):
    """Run the verb on directories of the test's own: (exit code, stdout, stderr)."""
    directory = str(tmp_path / "own")
    defaults = {"state_dir": directory, "inventory": directory, "spec_dirs": [directory], "prefix": directory}

    def run(*arguments):
        status = main(["plugin", *map(str, arguments)], "test", defaults)
        return (status, *capsys.readouterr())

    return run


def test_check_refuses_a_configuration_that_is_not_there(fleet_cdi, tmp_path):
    """It showed what the defaults offer, so a misspelt path looked like a configuration that works."""
    status, out, err = fleet_cdi("check", "--config", tmp_path / "nope.json")
    assert (status, out) == (2, "")
    assert err.startswith(
        f"fleet-cdi: {tmp_path}/nope.json: can't be read (No such file or directory); expected the device plugin's "
        'configuration, of which the least is {"version": 1} [FC1651]'
    )


def test_check_shows_what_the_defaults_offer_without_a_configuration(fleet_cdi, tmp_path, monkeypatch):
    monkeypatch.setattr(configuration, "PATH", str(tmp_path / "nope.json"))
    status, out, _err = fleet_cdi("check")
    assert status in (0, 1) and out
