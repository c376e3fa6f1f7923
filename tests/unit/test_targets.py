# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each module is run by an integration target, and no target has the name of a role."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (CHECKOUT / "plugins/modules").glob("*.py"))
TARGETS = {
    path.parents[1].name: path.read_text(encoding="utf-8")
    for path in CHECKOUT.glob("tests/integration/targets/*/tasks/main.yml")
}


@pytest.mark.parametrize("module", MODULES)
def test_a_target_runs_each_module_and_registers_its_result(module: str) -> None:
    """A target has the name of what it tests: a module, or the module beside its info module."""
    names = {module, module.removesuffix("_info"), f"{module}_module"} & set(TARGETS)
    assert any(f"fleet.cdi.{module}:" in TARGETS[name] and "ansible.builtin.assert:" in TARGETS[name] for name in names)


def test_no_target_has_the_name_of_a_role() -> None:
    """ansible-test would run that role on this machine instead."""
    assert not set(TARGETS) & {path.name for path in (CHECKOUT / "roles").iterdir()}
