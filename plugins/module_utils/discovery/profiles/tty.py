# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual consoles: /dev/tty1 to /dev/tty63.

The option is that of the CDI proposal of 2017 ("Configuration", generic.conf). Its text calls num_system_reserved both
the number of reserved consoles and the first free one; its ADD example, where 12 makes tty13 the first, decides.
"""

from __future__ import annotations

from typing import Any

from ..select import Profile, Selection, SelectRule, select
from ..snapshot import Snapshot

LAST = 63  # MAX_NR_CONSOLES; tty0 is an alias of the console in the foreground, so it is nobody's
RESERVED = 12  # getty and the display managers of distributions use up to tty12


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each console that the system leaves."""
    first = options.get("num_system_reserved", RESERVED) + 1
    consoles = tuple(f"tty{number}" for number in range(first, LAST + 1))
    return select(SelectRule(subsystem=("tty",), sysname=consoles), snapshot)


PROFILE = Profile(
    kind="fleet.cdi/tty",
    name_by=("sysname",),
    options={"num_system_reserved": {"type": "integer", "minimum": 0, "maximum": LAST - 1}},
    find=find,
)
