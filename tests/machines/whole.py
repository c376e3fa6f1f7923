# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs only when it is asked for: cases that take minutes each (WHOLE=1), and other machines (MACHINE=selinux)."""

from __future__ import annotations

import os

import pytest

REBOOTS = int(os.environ.get("REBOOTS") or 3)  # boots with permuted slots
# Words for the kernel of machines that boot often and are asked nothing about AppArmor: under emulation it compiles its
# profiles for half a minute at each boot.
QUICK = ("apparmor=0", "systemd.mask=systemd-binfmt.service", "systemd.mask=ldconfig.service")

MACHINE = os.environ.get("MACHINE") or "trixie"  # of machines.yml

only_whole = pytest.mark.skipif(not os.environ.get("WHOLE"), reason="takes minutes: make machines WHOLE=1")


def only_on(*names: str) -> pytest.MarkDecorator:
    """Skip what is about other machines of machines.yml than the one that is asked for."""
    return pytest.mark.skipif(
        MACHINE not in names, reason=f"is about another machine: make machines MACHINE={names[0]}"
    )
