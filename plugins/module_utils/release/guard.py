# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One release per host: what is active, and the refusal to write beside another one."""

from __future__ import annotations

import os
import re
from typing import Optional

from ..records import CdiError

RELEASE = re.compile(r"[0-9][0-9A-Za-z.+-]*-[0-9a-f]{12}")


def active(prefix: str) -> Optional[str]:
    """The id, `<version>-<digest>`, that `<prefix>/lib/current` names; None where there is no such link."""
    try:
        target = os.readlink(os.path.join(prefix, "lib", "current"))
    except OSError:  # missing, or no symlink: nothing that release activated
        return None
    return target if RELEASE.fullmatch(target) else None


def check(prefix: str, release: str, check_mode: bool = False) -> list[str]:
    """Raise CdiError if another release than `release` is active under `prefix`; none at all is fine.

    In check mode that is a warning, in the list that is returned: the other release may be about to be replaced.
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
