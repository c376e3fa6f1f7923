# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the exit status of a command of a resource means (docs/device-plugin.md)."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.commands import setup
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors


@pytest.mark.parametrize(
    ("code", "status", "in_use"),
    [(errors.SETUP, 75, True), (errors.SETUP, 1, False), (errors.SETUP, 76, False), (errors.TEARDOWN, 75, False)],
)
def test_a_setup_says_by_75_that_the_device_is_in_use(code: int, status: int, in_use: bool) -> None:
    with pytest.raises(errors.ProtocolError, match=f"failed \\(exit status {status}\\)") as error:
        setup.run(code, ["/bin/sh", "-c", f"exit {status}"], {}, 60)
    assert (isinstance(error.value, setup.DeviceInUse), error.value.code) == (in_use, code)
