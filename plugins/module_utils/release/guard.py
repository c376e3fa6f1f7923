# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One release per host: find the active one, and refuse to write beside another."""

from __future__ import annotations

import os
import re
from typing import Optional

from ..records import CdiError

RELEASE = re.compile(r"[0-9][0-9A-Za-z.+-]*-[0-9a-f]{12}")


def active(prefix: str) -> Optional[str]:
    """Return the id `<version>-<digest>` of the link `<prefix>/lib/current`; None without the link."""
    try:
        target = os.readlink(os.path.join(prefix, "lib", "current"))
    except OSError:  # missing, or not a symlink: no release was activated
        return None
    return target if RELEASE.fullmatch(target) else None


def check(prefix: str, release: str, check_mode: bool = False) -> list[str]:
    """Raise CdiError if another release than `release` is active under `prefix`. No active release is fine.

    In check mode, return a list with a warning instead: the same run may replace the other release.
    """
    found = active(prefix)
    if found in (None, release):
        return []
    text = (
        f"{os.path.join(prefix, 'lib', 'current')}: release {found} is active here, but this controller's is "
        f"{release}. One host has one release: run fleet.cdi.host_release (the role does), or use the other controller."
    )
    if not check_mode:
        raise CdiError(text)
    return [text]
