# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What belongs to each module: the file that answers it, its action plugin, its place in the action group."""

from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.cli.call import CALLS

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (CHECKOUT / "plugins/modules").glob("*.py"))


def test_the_file_that_answers_a_module_has_its_name() -> None:
    assert sorted(CALLS) == MODULES
    for module, file in CALLS.items():
        assert file.rpartition(".")[2] == module
        assert (CHECKOUT / "plugins/module_utils" / (file.replace(".", "/") + ".py")).is_file()


def test_each_module_has_an_action_plugin_and_is_in_the_action_group() -> None:
    assert sorted(path.stem for path in (CHECKOUT / "plugins/action").glob("*.py")) == MODULES
    runtime = yaml.safe_load((CHECKOUT / "meta/runtime.yml").read_text(encoding="utf-8"))
    assert runtime["action_groups"]["all"] == MODULES
