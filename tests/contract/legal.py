# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which texts are names of extended resources: IsExtendedResourceName of pkg/apis/core/v1/helper, spelled out."""

from __future__ import annotations

import re

# IsQualifiedName and IsDNS1123Subdomain of apimachinery's validation.
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUOTA = "requests."  # what a quota prefixes to the name, which must be legal with it


def is_extended(name: str) -> bool:
    """Whether a device plugin may register `name`."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA):
        return False
    domain, _slash, rest = (_QUOTA + name).partition("/")
    return (
        "/" not in rest
        and len(domain) <= 253
        and _DOMAIN.fullmatch(domain) is not None
        and len(rest) <= 63
        and _NAME.fullmatch(rest) is not None
    )
