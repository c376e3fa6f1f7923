# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an instance is not ready to replace an older one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Optional

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.status_document import lacking
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status

LOOKS = "still looking at the devices"


def node(looked: bool, *states: str) -> Any:
    """A node with resources a, b, ... in these states."""
    served = {name: SimpleNamespace(name=name, state=state) for name, state in zip("ab", states)}
    return SimpleNamespace(looked=looked, served=served)


@pytest.mark.parametrize(
    ("error", "of_node", "why"),
    [
        ("c.json: version: found 2; expected 1", None, "c.json: version: found 2; expected 1"),
        (None, None, LOOKS),
        (None, node(False), LOOKS),
        (None, node(True), ""),
        (None, node(True, instance_status.REGISTERED, instance_status.REFUSED), ""),  # waiting does not end the second
        (None, node(True, instance_status.REGISTERING, instance_status.WAITING), "a: registering; b: waiting"),
    ],
)
def test_what_it_waits_for(error: Optional[str], of_node: Any, why: str) -> None:
    assert lacking(error, of_node) == why
